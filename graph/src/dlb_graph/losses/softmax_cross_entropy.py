"""Cross-entropy of classes."""

from __future__ import annotations

import math
from typing import Any, Union

from dlb_graph.layers.base import Graph
from dlb_graph.layers.numbers import Array, np
from dlb_graph.losses.base import LABELS, LOSS, MAP_AXES, Loss, Shape, classes_and_places, ratio

__all__ = ["SoftmaxCrossEntropy"]


class SoftmaxCrossEntropy(Loss, tag="softmax_cross_entropy", kw_only=True, frozen=True):
    """Softmax cross-entropy with integer labels, averaged over samples (and time steps, or places of a map).

    ONNX SoftmaxCrossEntropyLoss with reduction ``mean``. With a ``label_smoothing`` s above 0 and K
    classes, the target probability is ``1 - s + s / K`` for the label and ``s / K`` for every other
    class (Szegedy et al., arXiv:1512.00567, section 7; torch.nn.CrossEntropyLoss)::

        -(1 - s) * log_softmax[label] - s * mean(log_softmax)

    With ``class_weights``, one for each class, the loss of a sample (or time step) is multiplied by the weight
    of its label; 0 ignores a label. The mean is still that over all samples, as Keras's ``class_weight`` and
    Chainer's have it. torch and ONNX divide by the sum of the batch's weights, so that the workers of a
    distributed run, which have other labels each, would not compute the mean of the whole batch.

    With an ``ignore_index``, the loss of a sample (or time step) of that label is 0. It may be a class, or a
    number that is none, such as -100 (torch.nn.CrossEntropyLoss) or 255. The mean is again that over all
    samples, where torch and ONNX divide by the number of the others.
    """

    label_smoothing: float = 0.0
    class_weights: tuple[float, ...] = ()
    ignore_index: Union[int, None] = None

    targets = "class"

    def target_shape(self, outputs: Shape) -> Shape:
        return classes_and_places(outputs)[1]

    def fault(self, outputs: Shape) -> str:
        if len(outputs) > MAP_AXES:
            return (
                f"the last layer gives {list(outputs)} a sample, and softmax cross-entropy reads [classes], "
                "[T, classes] or [classes, H, W]: add a reshape"
            )
        smoothing, weights = self.label_smoothing, self.class_weights
        classes, _ = classes_and_places(outputs)
        if not 0 <= smoothing < 1:
            return f"loss.label_smoothing = {smoothing} must be 0 (none) or more, and below 1"
        if weights and len(weights) != classes:
            return (
                f"loss.class_weights has {len(weights)} numbers, and the last layer gives {classes} classes: "
                "give one for each, or leave it out"
            )
        if weights and not (min(weights) >= 0 and 0 < sum(weights) < math.inf):
            return "loss.class_weights must be 0 or more and finite, and one above 0"
        if self.ignore_index is not None and abs(self.ignore_index) >= 1 << 31:
            return f"loss.ignore_index = {self.ignore_index} must be a number of 32 bits"
        return ""

    def _counted(self, targets: Array) -> Array:
        """Which labels count."""
        ignore = self.ignore_index
        return np.full(targets.shape, True) if ignore is None else targets != ignore

    def _labels_and_factors(self, targets: Array) -> tuple[Array, Array | None]:
        """Labels, class 0 for ignored ones, and what the loss at each is multiplied by, if anything."""
        ignore, weights = self.ignore_index, self.class_weights
        if ignore is None and not weights:
            return targets, None
        counted = self._counted(targets)
        labels = np.where(counted, targets, 0)
        return labels, counted * (np.array(weights)[labels] if weights else 1.0)

    def value_and_gradient(self, outputs: Array, targets: Array) -> tuple[float, Array]:
        outputs, (targets, factors) = _classes_last(outputs), self._labels_and_factors(targets)
        shifted = outputs - outputs.max(axis=-1, keepdims=True)
        log_shares = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
        smoothing, number = self.label_smoothing, outputs.dtype.type
        at_labels = np.take_along_axis(log_shares, targets[..., None], -1)[..., 0]
        losses = -(1 - smoothing) * at_labels - smoothing * log_shares.mean(axis=-1)
        gradient = np.exp(log_shares) - number(smoothing / outputs.shape[-1])
        at_label = np.take_along_axis(gradient, targets[..., None], -1) - number(1 - smoothing)
        np.put_along_axis(gradient, targets[..., None], at_label, -1)
        if factors is not None:
            factors = factors.astype(outputs.dtype)
            losses, gradient = factors * losses, factors[..., None] * gradient
        gradient = gradient / number(targets.size)
        return float(losses.mean()), np.moveaxis(gradient, -1, 1) if targets.ndim == 3 else gradient

    def difference(self, outputs: Array, base: Array, targets: Array) -> float:
        """log(1 + sum(p * (exp(d) - 1))) - d[label].

        p is the softmax of ``base``, and d the difference of the outputs. If labels are smoothed by s, d[label]
        becomes (1 - s) * d[label] + s * mean(d). Class weights multiply it.
        """
        outputs, base = _classes_last(outputs), _classes_last(base)
        targets, factors = self._labels_and_factors(targets)
        apart = outputs - base
        shifted = np.exp(base - base.max(axis=-1, keepdims=True))
        probabilities = shifted / shifted.sum(axis=-1, keepdims=True)
        log_ratio = np.log1p((probabilities * np.expm1(apart)).sum(axis=-1))
        at_labels = np.take_along_axis(apart, targets[..., None], -1)[..., 0]
        smoothing = self.label_smoothing
        differences = log_ratio - (1 - smoothing) * at_labels - smoothing * apart.mean(axis=-1)
        return float((differences if factors is None else factors * differences).mean())

    def add_nodes(self, graph: Graph, outputs: str, shape: tuple[int, ...]) -> None:
        """ONNX's SoftmaxCrossEntropyLoss; its own weights would divide by their sum."""
        if len(shape) == 2:
            outputs = graph.node("Transpose", [outputs], f"{LOSS}/classes_second", perm=[0, 2, 1])
        labels, factors = self._add_labels_and_factors(graph)
        smoothing, weighted = self.label_smoothing, bool(factors)
        reduction = "none" if weighted else "mean"
        name = f"{LOSS}/samples" if weighted else LOSS
        label_loss, log_softmax = f"{LOSS}/hit", f"{LOSS}/log_softmax"
        graph.node(
            "SoftmaxCrossEntropyLoss",
            [outputs, labels],
            [label_loss, log_softmax] if smoothing else name,
            reduction=reduction,
            name=LOSS,
        )
        if smoothing:
            over: dict[str, Any] = {"axes": [1]} if weighted else {}
            mean = graph.node("ReduceMean", [log_softmax], f"{LOSS}/mean", keepdims=0, **over)
            within = graph.within(f"{LOSS}/smoothed")
            parts = [
                within.add("Mul", value, within.held(factor))
                for value, factor in ((label_loss, 1 - smoothing), (mean, smoothing))
            ]
            graph.node("Sub", parts, name, name=f"{LOSS}/smoothed")
        if weighted:
            products = graph.node("Mul", [name, factors], f"{LOSS}/products")
            graph.node("ReduceMean", [products], LOSS, keepdims=0)

    def _add_labels_and_factors(self, graph: Graph) -> tuple[str, str]:
        """The nodes of :meth:`_labels_and_factors`; "" where there are no factors."""
        ignore, weights = self.ignore_index, self.class_weights
        labels, factors, within = LABELS, "", graph.within(f"{LOSS}/labels")
        add, held = within.add, within.held
        if ignore is not None:
            ignored = add("Equal", LABELS, held(ignore))
            labels = add("Where", ignored, held(0), LABELS)
        if weights:
            factors = add("Gather", held(weights), labels)
        if ignore is not None:
            factors = add("Where", ignored, held(0.0), factors or held(1.0))
        return labels, factors

    def cancellation(self, outputs: Array, targets: Array) -> float:
        """The gradient is the difference of probabilities and labels, each as often as its label's weight."""
        outputs, (targets, factors) = _classes_last(outputs), self._labels_and_factors(targets)
        rows = outputs.reshape(-1, outputs.shape[-1]).astype(np.float64)
        shifted = np.exp(rows - rows.max(axis=1, keepdims=True))
        probabilities = shifted / shifted.sum(axis=1, keepdims=True)
        labels, smoothing = targets.reshape(-1), self.label_smoothing
        shares = np.full_like(rows, smoothing / rows.shape[1])
        shares[np.arange(len(rows)), labels] += 1 - smoothing
        if factors is not None:
            factors = factors.reshape(-1, 1)
            probabilities, shares = factors * probabilities, factors * shares
        return ratio(probabilities, probabilities - shares)

    def accuracy(self, outputs: Array, targets: Array) -> float | None:
        """The largest output is at the label, of those that count. Outputs that are not finite are wrong."""
        outputs, counted = _classes_last(outputs), self._counted(targets)
        correct = np.isfinite(outputs).all(axis=-1) & (outputs.argmax(-1) == targets)
        return float(correct[counted].mean()) if counted.any() else None


def _classes_last(outputs: Array) -> Array:
    """Outputs of a batch, those of maps [batch, H, W, classes]."""
    return np.moveaxis(outputs, 1, -1) if outputs.ndim == 1 + MAP_AXES else outputs
