"""The losses, by kind: functions of outputs and labels, or targets of the outputs' shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import chainer.functions as F
from chainer import Variable

from dlb_worker.model import Loss


def mean_loss(outputs: Variable, targets: Any, loss: Loss) -> Variable:
    """The mean loss of a batch."""
    return LOSSES[loss.kind](outputs, targets, loss)


def _softmax_cross_entropy(logits: Variable, labels: Any, loss: Loss) -> Variable:
    """Of logits [N, C], [N, T, C] with labels [N, T], or [N, C, H, W] with labels [N, H, W]."""
    smoothing, ignored, xp, weights = loss.label_smoothing, loss.ignore_index, logits.xp, None
    if logits.ndim == 4 and smoothing:
        logits = F.transpose(logits, (0, 2, 3, 1))
    if logits.ndim == 3 or smoothing:
        logits, labels = F.reshape(logits, (-1, logits.shape[-1])), labels.ravel()
    if loss.class_weights:
        weights = xp.array(loss.class_weights, logits.dtype)
    if not smoothing and ignored is None:
        return F.softmax_cross_entropy(logits, labels, class_weight=weights)
    if not smoothing:
        # Chainer's own mean is that over the other labels, and what it ignores is -1.
        labels = xp.where(labels == ignored, xp.int32(-1), labels)
        return F.mean(F.softmax_cross_entropy(logits, labels, class_weight=weights, reduce="no"))
    counted = xp.full(labels.shape, True) if ignored is None else labels != ignored
    labels = xp.where(counted, labels, xp.int32(0))
    logarithm = F.log_softmax(logits)
    hit, every = F.select_item(logarithm, labels), F.mean(logarithm, axis=1)
    losses = -((1 - smoothing) * hit + smoothing * every)
    factors = counted.astype(logits.dtype)
    return F.mean(losses * (factors if weights is None else factors * weights[labels]))


def _ctc(logits: Variable, labels: Any, loss: Loss) -> Variable:
    """Of logits [N, T, C] and labels [N, L], -1 after the last: the forward variables of Graves et al. 2006.

    Chainer's own takes logarithms of probabilities, which large logits make 0.
    """
    xp, samples, count = logits.xp, len(labels), 2 * labels.shape[1] + 1
    classes = xp.full((samples, count), loss.blank, "int32")
    classes[:, 1::2] = xp.where(labels < 0, loss.blank, labels)
    skips = (classes[:, 2:] != classes[:, :-2]) & (classes[:, 2:] != loss.blank)
    barred = xp.where(skips, 0, NEVER).astype(logits.dtype)
    starts = xp.where(xp.arange(count) < 2, 0, NEVER).astype(logits.dtype)
    missing = xp.full((samples, 1), NEVER, logits.dtype)
    rows = xp.arange(samples)[:, None]
    logarithms = [F.log_softmax(step) for step in F.separate(logits, axis=1)]
    emitted = [F.get_item(step, (rows, classes)) for step in logarithms]
    state = emitted[0] + xp.broadcast_to(starts, (samples, count))
    for each in emitted[1:]:
        one = F.concat([missing, state[:, :-1]], axis=1)
        two = F.concat([missing, missing, state[:, :-2] + barred], axis=1)
        state = F.logsumexp(F.stack([state, one, two]), axis=0) + each
    last, states = 2 * (labels >= 0).sum(axis=1, keepdims=True), xp.arange(count)
    ends = xp.where((states == last) | (states == last - 1), 0, NEVER).astype(logits.dtype)
    return -F.mean(F.logsumexp(state + ends, axis=1))


#: The logarithm of what no path reaches.
NEVER = -1e30
LOSSES: dict[str, Callable[[Variable, Any, Loss], Variable]] = {
    "softmax_cross_entropy": _softmax_cross_entropy,
    "binary_cross_entropy": lambda x, y, loss: F.mean(F.softplus(x) - x * y),
    "squared_error": lambda x, y, loss: F.mean_squared_error(x, y),
    "absolute_error": lambda x, y, loss: F.mean_absolute_error(x, y),
    "ctc": _ctc,
    "huber": lambda x, y, loss: F.mean(F.huber_loss(x, y, loss.delta, reduce="no")),
}
