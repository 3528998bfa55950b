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


def _ctc(logits: tf.Tensor, labels: tf.Tensor, loss: Loss) -> tf.Tensor:
    """Of logits [N, T, C] and labels [N, L], -1 after the last; TensorFlow's own computes in float32."""
    is_label = labels >= 0
    lengths = tf.reduce_sum(tf.cast(is_label, tf.int32), 1)
    if logits.dtype == tf.float64:
        return _ctc_by_steps(logits, tf.where(is_label, labels, loss.blank), lengths, loss.blank)
    return tf.nn.ctc_loss(
        tf.cast(tf.where(is_label, labels, 0), tf.int32),
        logits,
        lengths,
        tf.fill([tf.shape(logits)[0]], logits.shape[1]),
        logits_time_major=False,
        blank_index=loss.blank,
    )


def _ctc_by_steps(
    logits: tf.Tensor, labels: tf.Tensor, lengths: tf.Tensor, blank: int
) -> tf.Tensor:
    """The forward variables of Graves et al. 2006, of labels that are blanks after the last."""
    count = 2 * labels.shape[1] + 1
    blanks = tf.fill(tf.shape(labels), tf.cast(blank, labels.dtype))
    pairs = tf.reshape(tf.stack([blanks, labels], 2), [-1, count - 1])
    classes = tf.concat([pairs, blanks[:, :1]], 1)
    skips = (classes[:, 2:] != classes[:, :-2]) & (classes[:, 2:] != tf.cast(blank, labels.dtype))
    emitted = tf.gather(tf.nn.log_softmax(logits), classes, axis=2, batch_dims=1)
    never = tf.cast(NEVER, logits.dtype)
    missing = tf.fill(tf.shape(emitted[:, 0, :1]), never)
    barred = tf.where(skips, tf.zeros_like(never), never)
    state = emitted[:, 0] + tf.where(tf.range(count) < 2, tf.zeros_like(never), never)
    for step in range(1, logits.shape[1]):
        one = tf.concat([missing, state[:, :-1]], 1)
        two = tf.concat([missing, missing, state[:, :-2] + barred], 1)
        state = tf.reduce_logsumexp(tf.stack([state, one, two]), 0) + emitted[:, step]
    last, states = 2 * lengths[:, None], tf.range(count)
    ends = tf.where((states == last) | (states == last - 1), state, never)
    return -tf.reduce_logsumexp(ends, 1)


#: The logarithm of what no path reaches.
NEVER = -1e30
#: Keras's own have the mean over the last axis taken.
LOSSES: dict[str, Callable[[tf.Tensor, tf.Tensor, Loss], tf.Tensor]] = {
    "softmax_cross_entropy": _softmax_cross_entropy,
    "binary_cross_entropy": lambda x, y, loss: tf.nn.sigmoid_cross_entropy_with_logits(y, x),
    "squared_error": lambda x, y, loss: keras.losses.mean_squared_error(y, x),
    "absolute_error": lambda x, y, loss: keras.losses.mean_absolute_error(y, x),
    "ctc": _ctc,
    "huber": lambda x, y, loss: keras.losses.huber(y, x, loss.delta),
}
