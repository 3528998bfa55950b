"""The losses, by kind: functions of outputs and labels, or targets of the outputs' shape."""

from __future__ import annotations

from collections.abc import Callable

import keras
import tensorflow as tf

from dlb_worker.model import Loss


def mean_loss(outputs: tf.Tensor, targets: tf.Tensor, loss: Loss) -> tf.Tensor:
    """The mean loss of a batch."""
    if outputs.dtype == tf.bfloat16:
        outputs = tf.cast(outputs, tf.float32)
    return tf.reduce_mean(LOSSES[loss.kind](outputs, targets, loss))


def _softmax_cross_entropy(logits: tf.Tensor, labels: tf.Tensor, loss: Loss) -> tf.Tensor:
    """Of logits [N, C], [N, T, C] with labels [N, T], or [N, H, W, C] with labels [N, H, W]."""
    smoothing, classes = loss.label_smoothing, logits.shape[-1]
    counted = None
    if loss.ignore_index is not None:
        counted = labels != tf.cast(loss.ignore_index, labels.dtype)
        labels = tf.where(counted, labels, 0)
    if smoothing:
        other = smoothing / classes
        shares = tf.one_hot(labels, classes, 1 - smoothing + other, other, dtype=logits.dtype)
        losses = tf.nn.softmax_cross_entropy_with_logits(shares, logits)
    else:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    if loss.class_weights:
        losses *= tf.gather(tf.constant(loss.class_weights, logits.dtype), labels)
    return losses if counted is None else losses * tf.cast(counted, losses.dtype)


#: Keras's own have the mean over the last axis taken.
LOSSES: dict[str, Callable[[tf.Tensor, tf.Tensor, Loss], tf.Tensor]] = {
    "softmax_cross_entropy": _softmax_cross_entropy,
    "binary_cross_entropy": lambda x, y, loss: tf.nn.sigmoid_cross_entropy_with_logits(y, x),
    "squared_error": lambda x, y, loss: keras.losses.mean_squared_error(y, x),
    "absolute_error": lambda x, y, loss: keras.losses.mean_absolute_error(y, x),
    "huber": lambda x, y, loss: keras.losses.huber(y, x, loss.delta),
}
