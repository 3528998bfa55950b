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
    if loss.kind == "ctc":
        return CTC(loss, dtype, outputs)
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


class CTC(HybridBlock):
    """gluon's CTCLoss in float32 if the blank is the first or the last class, which are all that it knows.

    Else the forward variables of Graves et al. 2006. Labels are -1 after the last.
    """

    def __init__(self, loss: Loss, dtype: str, outputs: tuple[int, ...]) -> None:
        super().__init__()
        self.steps, self.classes = outputs
        self.blank, self.count, self.dtype = loss.blank, 2 * loss.most_labels + 1, dtype
        self.side = {0: "first", self.classes - 1: "last"}.get(loss.blank)
        starts = mx.nd.where(
            mx.nd.arange(self.count) < 2, *(mx.nd.full(self.count, n) for n in (0, NEVER))
        )
        self.starts = self.params.get_constant("starts", starts.astype(dtype).reshape((1, -1)))

    def hybrid_forward(self, F: Any, logits: Any, labels: Any, starts: Any) -> Any:
        if self.dtype == "float32" and self.side:
            labels = F.cast(labels, self.dtype)
            if self.side == "first":  # whose labels end with 0
                labels = F.relu(labels)
            return F.CTCLoss(F.swapaxes(logits, 0, 1), labels, blank_label=self.side)
        return self._by_steps(F, logits, F.cast(labels, self.dtype), starts)

    def _by_steps(self, F: Any, logits: Any, labels: Any, starts: Any) -> Any:
        cut, count = F.slice_axis, self.count
        is_label = labels >= 0
        blanks = F.zeros_like(labels) + self.blank
        pairs = F.stack(blanks, F.where(is_label, labels, blanks), axis=2).reshape((0, -1))
        first = cut(blanks, axis=1, begin=0, end=1)
        classes = F.concat(pairs, first, dim=1)
        inner = cut(classes, axis=1, begin=2, end=count)
        skips = (inner != cut(classes, axis=1, begin=0, end=count - 2)) * (inner != self.blank)
        barred = (1 - skips) * NEVER
        missing = F.zeros_like(first) + NEVER
        chosen = F.one_hot(classes, self.classes, dtype=self.dtype)
        emitted = F.batch_dot(F.log_softmax(logits, axis=-1), chosen, transpose_b=True)
        state = F.broadcast_add(_step(F, emitted, 0), starts)
        for step in range(1, self.steps):
            one = F.concat(missing, cut(state, axis=1, begin=0, end=count - 1), dim=1)
            two = cut(state, axis=1, begin=0, end=count - 2) + barred
            two = F.concat(missing, missing, two, dim=1)
            state = _log_sum(F, F.stack(state, one, two, axis=2)) + _step(F, emitted, step)
        last = 2 * F.sum(is_label, axis=1, keepdims=True)
        states = F.broadcast_add(
            F.zeros_like(state), F.arange(0, count, dtype=self.dtype).reshape((1, -1))
        )
        ends = F.broadcast_equal(states, last) + F.broadcast_equal(states, last - 1)
        return -_log_sum(F, state + (1 - ends) * NEVER)


def _step(F: Any, values: Any, step: int) -> Any:
    """One step of [N, T, states]."""
    return F.squeeze(F.slice_axis(values, axis=1, begin=step, end=step + 1), axis=1)


def _log_sum(F: Any, logarithms: Any) -> Any:
    """The logarithm of the sum along the last axis, of the logarithms of what is added."""
    most = F.BlockGrad(F.max(logarithms, axis=-1, keepdims=True))
    total = F.sum(F.exp(F.broadcast_sub(logarithms, most)), axis=-1)
    return F.log(total) + F.squeeze(most, axis=-1)


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


#: The logarithm of what no path reaches.
NEVER = -1e30
#: The losses of targets.
LOSSES: dict[str, Callable[[Loss], HybridBlock]] = {
    "binary_cross_entropy": lambda loss: BinaryCrossEntropy(),
    # gluon's is half of it.
    "squared_error": lambda loss: gluon.loss.L2Loss(weight=2.0),
    "absolute_error": lambda loss: gluon.loss.L1Loss(),
    # gluon's is divided by it.
    "huber": lambda loss: gluon.loss.HuberLoss(rho=loss.delta, weight=loss.delta),
}
