"""Batches through tf.data, or from tensors already on the device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import tensorflow as tf

from dlb_tf.layout import Layout
from dlb_worker.batches import from_memory
from dlb_worker.contract import Batches, DataRequest


def load(request: DataRequest) -> Batches:
    """(inputs, labels) on the device, for each row of the order; images are made NHWC, films NDHWC, once."""
    device = "/GPU:0" if request.device == "cuda" else "/CPU:0"
    layout = Layout("maps" if request.inputs.ndim in (4, 5) else "plain")
    large = isinstance(request.inputs.base, np.memmap)
    if request.input_mode == "pipeline" and (large or request.crops is not None):
        return _ahead(_gathered(request, layout), device)
    request = replace(request, inputs=layout.to_native(request.inputs))
    if request.input_mode == "memory":
        with tf.device(device):
            return from_memory(request, tf.constant, tf.gather, tf.constant(request.order))
    with tf.device("/CPU:0"):
        inputs, labels = tf.constant(request.inputs), tf.constant(request.labels)
    batches = tf.data.Dataset.from_tensor_slices(request.order).map(
        lambda row: (tf.gather(inputs, row), tf.gather(labels, row))
    )
    return _ahead(batches, device)


def _ahead(batches: tf.data.Dataset, device: str) -> tf.data.Dataset:
    """The batches, made and brought to the device while the step before is computed."""
    if device == "/GPU:0":
        return batches.apply(tf.data.experimental.prefetch_to_device(device))
    return batches.prefetch(tf.data.AUTOTUNE)


def _gathered(request: DataRequest, layout: Layout) -> tf.data.Dataset:
    """Batches that the core gathers: of what is too large for one tensor of it all, or augmented."""

    def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for step in range(len(request.order)):
            inputs, labels = request.batch(step)
            yield np.ascontiguousarray(layout.to_native(inputs)), labels

    signature = tuple(map(tf.type_spec_from_value, next(batches())))
    return tf.data.Dataset.from_generator(batches, output_signature=signature)
