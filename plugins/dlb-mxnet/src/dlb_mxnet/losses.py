"""The losses, by kind: blocks that give one number a sample, the mean over the sample's, as gluon's own do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mxnet as mx
from mxnet import gluon
from mxnet.gluon import HybridBlock

from dlb_worker.model import Loss


def make_loss(loss: Loss, dtype: str) -> HybridBlock:
    """The block of a loss, which still has to be initialised."""
    return LOSSES[loss.kind](loss, dtype)


class ComposedLoss(HybridBlock):
    """Softmax cross-entropy of smoothed labels, or weighted by label."""

    def __init__(self, loss: Loss, dtype: str) -> None:
        super().__init__()
        self.smoothing = loss.label_smoothing
        if loss.class_weights:
            weights = mx.nd.array(loss.class_weights, dtype=dtype)
            self.weights = self.params.get_constant("weights", weights)

    def hybrid_forward(self, F: Any, logits: Any, labels: Any, weights: Any = None) -> Any:
        logarithm = F.log_softmax(logits, axis=-1)
        hit = F.pick(logarithm, labels, axis=-1) * (1 - self.smoothing)
        shared = F.mean(logarithm, axis=-1) * self.smoothing
        losses = hit + shared
        if weights is not None:
            losses = losses * F.take(weights, labels)
        return -F.mean(losses, axis=0, exclude=True)


class BinaryCrossEntropy(HybridBlock):
    """As gluon's SigmoidBCELoss, but for the gradient where a logit is 0: its ReLU has none there."""

    def hybrid_forward(self, F: Any, logits: Any, targets: Any) -> Any:
        size = F.abs(logits)
        losses = (logits + size) / 2 - logits * targets + F.log1p(F.exp(-size))
        return F.mean(losses, axis=0, exclude=True)


def _softmax_cross_entropy(loss: Loss, dtype: str) -> HybridBlock:
    if loss.label_smoothing or loss.class_weights:
        return ComposedLoss(loss, dtype)
    return gluon.loss.SoftmaxCrossEntropyLoss()


LOSSES: dict[str, Callable[[Loss, str], HybridBlock]] = {
    "softmax_cross_entropy": _softmax_cross_entropy,
    "binary_cross_entropy": lambda loss, dtype: BinaryCrossEntropy(),
    # gluon's is half of it.
    "squared_error": lambda loss, dtype: gluon.loss.L2Loss(weight=2.0),
    "absolute_error": lambda loss, dtype: gluon.loss.L1Loss(),
    # gluon's is divided by it.
    "huber": lambda loss, dtype: gluon.loss.HuberLoss(rho=loss.delta, weight=loss.delta),
}
