"""The losses, by kind: blocks that give one number a sample, the mean over the sample's, as gluon's own do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mxnet as mx
from mxnet import gluon
from mxnet.gluon import HybridBlock

from dlb_worker.model import Loss


def make_loss(loss: Loss, dtype: str, outputs: tuple[int, ...]) -> HybridBlock:
    """The block of a loss, which still has to be initialised, of a sample's outputs of a shape."""
    if loss.of_classes:
        return _softmax_cross_entropy(loss, dtype, 1 if len(outputs) == 3 else -1)
    return LOSSES[loss.kind](loss)


class ComposedLoss(HybridBlock):
    """Softmax cross-entropy of smoothed labels, weighted by label, or without one label.

    Operators read the nearest class for a label that is none.
    """

    def __init__(self, loss: Loss, dtype: str, axis: int) -> None:
        super().__init__()
        self.smoothing, self.ignored, self.axis = loss.label_smoothing, loss.ignore_index, axis
        if loss.class_weights:
            weights = mx.nd.array(loss.class_weights, dtype=dtype)
            self.weights = self.params.get_constant("weights", weights)

    def hybrid_forward(self, F: Any, logits: Any, labels: Any, weights: Any = None) -> Any:
        logarithm = F.log_softmax(logits, axis=self.axis)
        hit = F.pick(logarithm, labels, axis=self.axis) * (1 - self.smoothing)
        shared = F.mean(logarithm, axis=self.axis) * self.smoothing
        losses = hit + shared
        if weights is not None:
            losses = losses * F.take(weights, labels)
        if self.ignored is not None:
            losses = F.where(labels != self.ignored, losses, F.zeros_like(losses))
        return -F.mean(losses, axis=0, exclude=True)


class BinaryCrossEntropy(HybridBlock):
    """As gluon's SigmoidBCELoss, but for the gradient where a logit is 0: its ReLU has none there."""

    def hybrid_forward(self, F: Any, logits: Any, targets: Any) -> Any:
        size = F.abs(logits)
        losses = (logits + size) / 2 - logits * targets + F.log1p(F.exp(-size))
        return F.mean(losses, axis=0, exclude=True)


def _softmax_cross_entropy(loss: Loss, dtype: str, axis: int) -> HybridBlock:
    if loss.label_smoothing or loss.class_weights or loss.ignore_index is not None:
        return ComposedLoss(loss, dtype, axis)
    return gluon.loss.SoftmaxCrossEntropyLoss(axis=axis)


#: The losses of targets.
LOSSES: dict[str, Callable[[Loss], HybridBlock]] = {
    "binary_cross_entropy": lambda loss: BinaryCrossEntropy(),
    # gluon's is half of it.
    "squared_error": lambda loss: gluon.loss.L2Loss(weight=2.0),
    "absolute_error": lambda loss: gluon.loss.L1Loss(),
    # gluon's is divided by it.
    "huber": lambda loss: gluon.loss.HuberLoss(rho=loss.delta, weight=loss.delta),
}
