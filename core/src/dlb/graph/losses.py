"""The losses in NumPy and in ONNX: a class for each type of :mod:`dlb.workload.losses`.

A further loss is a struct there, a class here, and an entry in each adapter that has it.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.graph.ctc import CTCFormula
from dlb.graph.layer_nodes import Graph
from dlb.graph.loss_formula import LABELS, LOSS, Formula, ratio
from dlb.graph.operators import sigmoid
from dlb.workload.losses import (
    CTC,
    MAP_AXES,
    AbsoluteError,
    BinaryCrossEntropy,
    Huber,
    Loss,
    SoftmaxCrossEntropy,
    SquaredError,
)

__all__ = ["LABELS", "LOSS", "Formula", "formula"]

Array = npt.NDArray[Any]


def formula(loss: Loss) -> Formula:
    """The formula of a loss."""
    return _FORMULAS[type(loss)](loss)


class _SoftmaxCrossEntropy(Formula):
    def __init__(self, loss: SoftmaxCrossEntropy) -> None:
        self.loss = loss

    def _counted(self, targets: Array) -> Array:
        """Which labels count."""
        ignore = self.loss.ignore_index
        return np.full(targets.shape, True) if ignore is None else targets != ignore

    def _labels_and_factors(self, targets: Array) -> tuple[Array, Array | None]:
        """Labels, class 0 for ignored ones, and what the loss at each is multiplied by, if anything."""
        ignore, weights = self.loss.ignore_index, self.loss.class_weights
        if ignore is None and not weights:
            return targets, None
        counted = self._counted(targets)
        labels = np.where(counted, targets, 0)
        return labels, counted * (np.array(weights)[labels] if weights else 1.0)

    def value_and_gradient(self, outputs: Array, targets: Array) -> tuple[float, Array]:
        outputs, (targets, factors) = _classes_last(outputs), self._labels_and_factors(targets)
        shifted = outputs - outputs.max(axis=-1, keepdims=True)
        log_shares = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
        smoothing, number = self.loss.label_smoothing, outputs.dtype.type
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
        smoothing = self.loss.label_smoothing
        differences = log_ratio - (1 - smoothing) * at_labels - smoothing * apart.mean(axis=-1)
        return float((differences if factors is None else factors * differences).mean())

    def add_nodes(self, graph: Graph, outputs: str, shape: tuple[int, ...]) -> None:
        """ONNX's SoftmaxCrossEntropyLoss; its own weights would divide by their sum."""
        if len(shape) == 2:
            outputs = graph.node("Transpose", [outputs], f"{LOSS}/classes_second", perm=[0, 2, 1])
        labels, factors = self._add_labels_and_factors(graph)
        smoothing, weighted = self.loss.label_smoothing, bool(factors)
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
            parts = [
                graph.node(
                    "Mul",
                    [value, graph.initializer(f"{value}/share", np.array(factor))],
                    f"{value}/part",
                )
                for value, factor in ((label_loss, 1 - smoothing), (mean, smoothing))
            ]
            graph.node("Sub", parts, name, name=f"{LOSS}/smoothed")
        if weighted:
            products = graph.node("Mul", [name, factors], f"{LOSS}/products")
            graph.node("ReduceMean", [products], LOSS, keepdims=0)

    def _add_labels_and_factors(self, graph: Graph) -> tuple[str, str]:
        """The nodes of :meth:`_labels_and_factors`; "" where there are no factors."""
        ignore, weights = self.loss.ignore_index, self.loss.class_weights
        labels, factors = LABELS, ""
        if ignore is not None:
            label = graph.initializer(f"{LOSS}/ignore_index", np.array(ignore))
            ignored = graph.node("Equal", [LABELS, label], f"{LOSS}/ignored")
            other = graph.initializer(f"{LOSS}/any_class", np.array(0))
            labels = graph.node("Where", [ignored, other, LABELS], f"{LOSS}/counted_labels")
        if weights:
            given = graph.initializer(f"{LOSS}/class_weights", np.array(weights))
            factors = graph.node("Gather", [given, labels], f"{LOSS}/factors")
        if ignore is not None:
            factors = factors or graph.initializer(f"{LOSS}/one", np.array(1.0))
            nothing = graph.initializer(f"{LOSS}/nothing", np.array(0.0))
            factors = graph.node("Where", [ignored, nothing, factors], f"{LOSS}/counted")
        return labels, factors

    def cancellation(self, outputs: Array, targets: Array) -> float:
        """The gradient is the difference of probabilities and labels, each as often as its label's weight."""
        outputs, (targets, factors) = _classes_last(outputs), self._labels_and_factors(targets)
        rows = outputs.reshape(-1, outputs.shape[-1]).astype(np.float64)
        shifted = np.exp(rows - rows.max(axis=1, keepdims=True))
        probabilities = shifted / shifted.sum(axis=1, keepdims=True)
        labels, smoothing = targets.reshape(-1), self.loss.label_smoothing
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


class _Pointwise(Formula):
    """A loss of each output and its target, which have one shape, averaged over all numbers.

    Methods of one underscore are of arrays: outputs x and targets y in their type.
    """

    def __init__(self, loss: Any) -> None:
        self.loss = loss

    @abc.abstractmethod
    def _values(self, x: Array, y: Array) -> Any:
        """The loss of each number."""

    @abc.abstractmethod
    def _slopes(self, x: Array, y: Array) -> Any:
        """Its derivative with respect to the output."""

    @abc.abstractmethod
    def _differences(self, x: Array, base: Array, y: Array) -> Any:
        """The loss of each number minus that at ``base``."""

    @abc.abstractmethod
    def _add_values(self, graph: Graph, outputs: str) -> str:
        """Add the ONNX nodes of each number's loss; returns its name."""

    def value_and_gradient(self, outputs: Array, targets: Array) -> tuple[float, Array]:
        targets = targets.astype(outputs.dtype, copy=False)
        slopes = self._slopes(outputs, targets)
        value = float(self._values(outputs, targets).mean())
        return value, slopes / outputs.dtype.type(outputs.size)

    def difference(self, outputs: Array, base: Array, targets: Array) -> float:
        return float(self._differences(outputs, base, targets.astype(outputs.dtype)).mean())

    def add_nodes(self, graph: Graph, outputs: str, shape: tuple[int, ...]) -> None:
        graph.node("ReduceMean", [self._add_values(graph, outputs)], LOSS, keepdims=0)

    def steepness(self, outputs: Array, targets: Array) -> float:
        slopes = self._slopes(outputs, targets.astype(outputs.dtype))
        return max(1.0, float(np.abs(slopes).mean()))


class _BinaryCrossEntropy(_Pointwise):
    def _values(self, x: Array, y: Array) -> Any:
        return np.maximum(x, 0) - x * y + np.log1p(np.exp(-np.abs(x)))

    def _slopes(self, x: Array, y: Array) -> Any:
        return sigmoid(x) - y

    def _differences(self, x: Array, base: Array, y: Array) -> Any:
        """log(1 + s * (exp(d) - 1)) - y * d, with s the sigmoid of ``base`` and d the difference."""
        return np.log1p(sigmoid(base) * np.expm1(x - base)) - y * (x - base)

    def _add_values(self, graph: Graph, outputs: str) -> str:
        soft = graph.node("Softplus", [outputs], f"{LOSS}/softplus")
        products = graph.node("Mul", [outputs, LABELS], f"{LOSS}/products")
        return graph.node("Sub", [soft, products], f"{LOSS}/numbers")

    def cancellation(self, outputs: Array, targets: Array) -> float:
        """The gradient is the difference of probabilities and targets."""
        probabilities = sigmoid(outputs.astype(np.float64))
        return ratio(probabilities, probabilities - targets)

    def accuracy(self, outputs: Array, targets: Array) -> float:
        """An output is above 0 where its target is above 1/2. Outputs that are not finite count as wrong."""
        return float((np.isfinite(outputs) & ((outputs > 0) == (targets > 0.5))).mean())


class _OfErrors(_Pointwise):
    """A loss of errors, output minus target."""

    def _add_errors(self, graph: Graph, outputs: str) -> str:
        return graph.node("Sub", [outputs, LABELS], f"{LOSS}/errors")


class _SquaredError(_OfErrors):
    def _values(self, x: Array, y: Array) -> Any:
        errors = x - y
        return errors * errors

    def _slopes(self, x: Array, y: Array) -> Any:
        return 2 * (x - y)

    def _differences(self, x: Array, base: Array, y: Array) -> Any:
        return (x - base) * ((x - y) + (base - y))

    def _add_values(self, graph: Graph, outputs: str) -> str:
        errors = self._add_errors(graph, outputs)
        return graph.node("Mul", [errors, errors], f"{LOSS}/squares")


class _AbsoluteError(_OfErrors):
    def _values(self, x: Array, y: Array) -> Any:
        return np.abs(x - y)

    def _slopes(self, x: Array, y: Array) -> Any:
        return np.sign(x - y)

    def _differences(self, x: Array, base: Array, y: Array) -> Any:
        """On one side of the target, the difference of the outputs with its sign."""
        errors, before = x - y, base - y
        one_side = errors * before > 0
        return np.where(one_side, np.sign(before) * (x - base), np.abs(errors) - np.abs(before))

    def _add_values(self, graph: Graph, outputs: str) -> str:
        return graph.node("Abs", [self._add_errors(graph, outputs)], f"{LOSS}/sizes")


class _Huber(_OfErrors):
    loss: Huber

    def _values(self, x: Array, y: Array) -> Any:
        sizes = np.abs(x - y)
        limited = np.minimum(sizes, self.loss.delta)
        return limited * (sizes - limited / 2)

    def _slopes(self, x: Array, y: Array) -> Any:
        return np.clip(x - y, -self.loss.delta, self.loss.delta)

    def _differences(self, x: Array, base: Array, y: Array) -> Any:
        """On one piece of the function, the difference of the outputs times the slope between both."""
        errors, before, delta = x - y, base - y, self.loss.delta
        inside = (np.abs(errors) <= delta) & (np.abs(before) <= delta)
        beyond = (np.minimum(np.abs(errors), np.abs(before)) > delta) & (errors * before > 0)
        slopes = np.where(inside, (errors + before) / 2, delta * np.sign(before))
        across = self._values(x, y) - self._values(base, y)
        return np.where(inside | beyond, (x - base) * slopes, across)

    def _add_values(self, graph: Graph, outputs: str) -> str:
        sizes = graph.node("Abs", [self._add_errors(graph, outputs)], f"{LOSS}/sizes")
        delta = graph.initializer(f"{LOSS}/delta", np.array(self.loss.delta))
        limited = graph.node("Min", [sizes, delta], f"{LOSS}/limited")
        half = graph.initializer(f"{LOSS}/half", np.array(0.5))
        halves = graph.node("Mul", [limited, half], f"{LOSS}/halves")
        rest = graph.node("Sub", [sizes, halves], f"{LOSS}/rest")
        return graph.node("Mul", [limited, rest], f"{LOSS}/numbers")


_FORMULAS: dict[type[Any], Callable[[Any], Formula]] = {
    SoftmaxCrossEntropy: _SoftmaxCrossEntropy,
    BinaryCrossEntropy: _BinaryCrossEntropy,
    SquaredError: _SquaredError,
    AbsoluteError: _AbsoluteError,
    Huber: _Huber,
    CTC: CTCFormula,
}
