"""Batches through tf.data, or from tensors already on the device."""

from __future__ import annotations

from collections.abc import Iterator

import tensorflow as tf

from dlb.contract import Batches, LoadRequest
from dlb_tf.layout import Layout


def load(request: LoadRequest) -> Batches:
    """(inputs, labels) on the device, for each row of the order; images are made NHWC once."""
    device = "/GPU:0" if request.device == "cuda" else "/CPU:0"
    layout = Layout("maps" if request.inputs.ndim == 4 else "plain")
    samples = layout.to_native(request.inputs)
    if request.via == "memory":
        with tf.device(device):
            inputs, labels, order = (
                tf.constant(array) for array in (samples, request.labels, request.order)
            )
        return _from_memory(inputs, labels, order)
    with tf.device("/CPU:0"):
        inputs, labels = tf.constant(samples), tf.constant(request.labels)
    batches = tf.data.Dataset.from_tensor_slices(request.order).map(
        lambda row: (tf.gather(inputs, row), tf.gather(labels, row))
    )
    if request.device == "cuda":
        return batches.apply(tf.data.experimental.prefetch_to_device(device))
    return batches.prefetch(tf.data.AUTOTUNE)


def _from_memory(
    inputs: tf.Tensor, labels: tf.Tensor, order: tf.Tensor
) -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
    for row in order:
        yield tf.gather(inputs, row), tf.gather(labels, row)
