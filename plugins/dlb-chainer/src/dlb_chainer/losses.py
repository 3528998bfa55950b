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
    """Of logits [N, C], or [N, T, C] with labels [N, T]."""
    if logits.ndim > 2:
        logits, labels = F.reshape(logits, (-1, logits.shape[-1])), labels.ravel()
    smoothing, weights = loss.label_smoothing, None
    if loss.class_weights:
        weights = logits.xp.array(loss.class_weights, logits.dtype)
    if not smoothing:
        return F.softmax_cross_entropy(logits, labels, class_weight=weights)
    logarithm = F.log_softmax(logits)
    hit, every = F.select_item(logarithm, labels), F.mean(logarithm, axis=1)
    losses = -((1 - smoothing) * hit + smoothing * every)
    return F.mean(losses if weights is None else losses * weights[labels])


LOSSES: dict[str, Callable[[Variable, Any, Loss], Variable]] = {
    "softmax_cross_entropy": _softmax_cross_entropy,
    "binary_cross_entropy": lambda x, y, loss: F.mean(F.softplus(x) - x * y),
    "squared_error": lambda x, y, loss: F.mean_squared_error(x, y),
    "absolute_error": lambda x, y, loss: F.mean_absolute_error(x, y),
    "huber": lambda x, y, loss: F.mean(F.huber_loss(x, y, loss.delta, reduce="no")),
}
