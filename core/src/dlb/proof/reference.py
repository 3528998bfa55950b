"""What is true, computed with no framework: the canonical graph in float64."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from dlb.errors import DataError
from dlb.proof.distance import norm, pieces, relative_l2
from dlb.proof.tolerances import (
    FLOAT32_LEAST,
    FLOAT32_MOST,
    FLOAT32_MULTIPLE,
    SLOPE_TOLERANCE,
)
from dlb.workload import Loss, Model, SoftmaxCrossEntropy, state_names

if TYPE_CHECKING:
    from dlb.graph.evaluate import Evaluator

__all__ = ["Reference", "Slope", "loss_difference"]

Array = npt.NDArray[Any]
T = TypeVar("T")
_PLAIN = SoftmaxCrossEntropy()
#: Relative steps of the differences. A long one crosses kinks of ReLU and max pooling, where it is off
#: by parts in a thousand; a short one loses digits to rounding. On LeNet-5, steps of 1e-6, 1e-7, 1e-8
#: and 1e-9 err by 1e-3 (across a kink), 4e-9, 5e-8 and 6e-7 of a typical slope. The second is taken
#: where the first is past the tolerance: on a network of small weights that all but tie in its poolings
#: (caffe-cifar10), they err by 2e-5 and 6e-6. A wrong gradient is off at any step.
STEPS = (1e-8, 1e-9)
#: Roundings of a logit in float64 that a difference of two losses may be off by.
LOGIT_ROUNDINGS = 4
#: Directions tried; their median is free of the one that crosses a kink even so.
DIRECTIONS = 3


@dataclass(frozen=True)
class Slope:
    """A directional derivative.

    Attributes:
        gradient: by the adapter's gradient.
        difference: by differences of the canonical graph's loss.
        typical: the size that one along a random direction typically has (norm / sqrt(elements)),
            or that of which the tolerance is what rounding leaves of the difference, if that is larger.
        step: of the differences.
    """

    gradient: float
    difference: float
    typical: float
    step: float

    @property
    def error(self) -> float:
        """By how much the two are apart, as a share of the larger of slope and typical size."""
        return abs(self.gradient - self.difference) / max(abs(self.difference), self.typical)


class Reference:
    """The canonical graph of a model at given weights, on one batch.

    What is true for every adapter is computed once, whichever thread asks first.

    Args:
        model: as it is built for the proof.
        weights: seeded, float32, by ``layer.parameter``.
        inputs: [batch, ...] float32 or int64.
        labels: int64 [batch] or [batch, T].
        masks: what dropout multiplies by in training, [rows, ...] by layer name; a batch takes as
            many of the first rows as it has samples. Without one, dropout is the identity.
        loss: what slopes are of.
    """

    def __init__(
        self,
        model: Model,
        weights: Mapping[str, Array],
        inputs: Array,
        labels: Array,
        masks: Mapping[str, Array] | None = None,
        loss: Loss = _PLAIN,
    ) -> None:
        self.model = model
        self.loss = loss
        self.weights = weights
        self.inputs = inputs
        self.labels = labels
        self.masks = masks or {}
        self._cache: dict[object, Any] = {}
        self._lock = threading.RLock()

    def _compute_once(self, key: object, compute: Callable[[], T]) -> T:
        """What ``compute`` gave, or gives, for a key."""
        with self._lock:
            if key not in self._cache:
                self._cache[key] = compute()
            return self._cache[key]  # type: ignore[no-any-return]

    @property
    def logits(self) -> Array:
        """The last layer's value in evaluation mode, float64."""
        last = self.model.nodes[-1].name
        return self._compute_once("logits", lambda: self._values([last], training=False)[last])

    @property
    def layers(self) -> dict[str, Array]:
        """Every layer's value in evaluation mode, float64, in order."""
        names = [node.name for node in self.model.nodes]
        return self._compute_once("layers", lambda: self._values(names, training=False))

    @property
    def training_layers(self) -> dict[str, Array]:
        """Every layer's value in training mode, float64, in order."""
        if not state_names(self.model) and not self.masks:
            return self.layers  # nothing in it does anything else then
        names = [node.name for node in self.model.nodes]
        return self._compute_once("training layers", lambda: self._values(names, training=True))

    def _values(self, names: list[str], *, training: bool) -> dict[str, Array]:
        from dlb.graph.canonical import canonical_graph
        from dlb.graph.evaluate import Evaluator

        masks = self._batch_masks(self.inputs)
        graph = canonical_graph(self.model, None, dtype="float64", training=training, masks=masks)
        # Given, not held: a graph that holds weights holds them twice.
        return Evaluator(graph).run({self.model.input.name: self.inputs, **self.weights}, names)

    def _batch_masks(self, inputs: Array) -> dict[str, Array]:
        """The masks of a batch."""
        return {name: mask[: len(inputs)] for name, mask in self.masks.items()}

    def isolated_layers(
        self, values: Mapping[str, Array], *, training: bool = False
    ) -> Iterator[tuple[str, Array]]:
        """Every layer's name and value in float64, each given the values that it would have read;
        one after the other, since all together are as many as the model's own.

        Args:
            values: every layer's, as an adapter computed them.
        """
        from dlb.graph.canonical import GIVEN, layers_graph
        from dlb.graph.evaluate import Evaluator

        masks = self._batch_masks(self.inputs)
        graph = layers_graph(self.model, None, dtype="float64", training=training, masks=masks)
        available = {**values, **self.weights, self.model.input.name: self.inputs}
        read = {
            value.name: available[value.name.removeprefix(GIVEN)] for value in graph.graph.input
        }
        return Evaluator(graph).each(read, [node.name for node in self.model.nodes])

    def running(self, weights: Mapping[str, Array], inputs: Array) -> dict[str, Array]:
        """Running statistics after one step in training mode, float64, by ``layer.parameter``.

        Args:
            weights: every parameter and state before the step.
            inputs: its batch.
        """
        from dlb.graph.canonical import canonical_graph
        from dlb.graph.evaluate import evaluate

        masks = self._batch_masks(inputs)
        graph = canonical_graph(self.model, None, dtype="float64", training=True, masks=masks)
        values = evaluate(graph, {self.model.input.name: inputs, **weights})
        return {name: values[f"{name}/running"] for name in state_names(self.model)}

    @property
    def float32_baseline(self) -> float:
        """How far ONNX Runtime's float32 logits of the canonical graph are from the truth: a second
        account of what the graph computes, by other code. Infinite where it refuses the graph."""
        return self._compute_once("float32 baseline", self._float32_baseline)

    def _float32_baseline(self) -> float:
        from dlb.graph.canonical import canonical_graph
        from dlb.graph.runtime import run_model

        graph = canonical_graph(self.model, self.weights, dtype="float32")
        try:
            logits = run_model(graph.SerializeToString(), {self.model.input.name: self.inputs})[0]
        except DataError:
            return np.inf
        return relative_l2(logits, self.logits)

    @property
    def float32_tolerance(self) -> float:
        """How far a float32 forward pass may be from the truth: a multiple of how far ONNX Runtime
        is, on the same graph.

        Where that is further than rounding explains, ONNX Runtime computes something else (before
        1.31 the last window of an average pooling in ceil mode), and is no measure. Nor is it where
        it refuses the graph (a pooling in ceil mode that counts its padding, and whose last window
        of one axis starts there).
        """
        error = self.float32_baseline
        return FLOAT32_MULTIPLE * max(error if error < FLOAT32_MOST else 0.0, FLOAT32_LEAST)

    def slopes(
        self, gradients: Mapping[str, Array], inputs: Array | None, seed: int
    ) -> dict[str, Slope]:
        """Directional derivatives of the loss in training mode, by what is moved.

        Along random unit directions over all parameters together, and over the input. Of several
        directions the one of median error is given.

        Args:
            gradients: of every trained parameter, float64.
            inputs: gradient of the input, or None for integers.
        """
        moved = {"all parameters": gradients}
        if inputs is not None:
            moved["input"] = {self.model.input.name: inputs}
        return {
            variables: self._median_slope(variables, tensors, seed)
            for variables, tensors in moved.items()
            if tensors
        }

    def _median_slope(self, variables: str, gradients: Mapping[str, Array], seed: int) -> Slope:
        """The slope of median error of several directions."""
        point = self._point(variables)
        # In the model's order: every adapter must be asked along the same directions.
        gradients = {key: gradients[key] for key in point if key in gradients}
        typical = norm(gradients.values()) / math.sqrt(
            sum(piece.size for piece in gradients.values())
        )
        tried = []
        for number in range(DIRECTIONS):
            # Drawn anew for each adapter: to keep them would take several times the model.
            generator = np.random.default_rng((seed, number))
            direction = {
                key: generator.standard_normal(array.shape) for key, array in gradients.items()
            }
            length = norm(direction.values())
            inner_product = sum(
                float(piece @ direction_piece)
                for key, array in gradients.items()
                for piece, direction_piece in pieces(array, direction[key])
            )
            for relative_step in STEPS:
                step = self._step_length(variables, relative_step)
                # Differences do not depend on the adapter.
                slope, uncertain = self._compute_once(
                    (variables, seed, number, step),
                    partial(self._difference, variables, direction, length, step),
                )
                piece = Slope(
                    inner_product / length, slope, max(typical, uncertain / SLOPE_TOLERANCE), step
                )
                if piece.error <= SLOPE_TOLERANCE:
                    break
            tried.append(piece)
        # A NaN sorts last, so that it cannot hide behind the others.
        ordered = sorted(tried, key=lambda piece: np.nan_to_num(piece.error, nan=np.inf))
        return ordered[DIRECTIONS // 2]

    def _step_length(self, variables: str, relative_step: float) -> float:
        """A step of differences: a share of the norm of what is moved, whatever its scale."""
        point = self._point(variables)
        states = state_names(self.model)
        return relative_step * max(norm(point[name] for name in point if name not in states), 1.0)

    def _point(self, variables: str) -> Mapping[str, Array]:
        return (
            self.weights if variables == "all parameters" else {self.model.input.name: self.inputs}
        )

    def _difference(
        self, variables: str, direction: Mapping[str, Array], length: float, step: float
    ) -> tuple[float, float]:
        """The loss's central difference along a direction of a length, brought to 1, and what
        rounding of the logits may make of it."""
        point = self._point(variables)
        base = {self.model.input.name: self.inputs, "labels": self.labels, **self.weights}
        logits = []
        for sign in (1.0, -1.0):
            moved = {
                key: point[key] + sign * step / length * array for key, array in direction.items()
            }
            last = self.model.nodes[-1].name
            logits.append(self._loss_evaluator().run({**base, **moved}, [last])[last])
        rounding = LOGIT_ROUNDINGS * float(np.spacing(np.abs(logits[0]).max()))
        difference = loss_difference(logits[0], logits[1], self.labels, self.loss.label_smoothing)
        return difference / (2 * step), rounding / (2 * step)

    def _loss_evaluator(self) -> Evaluator:
        return self._compute_once("loss", self._make_loss_evaluator)

    def _make_loss_evaluator(self) -> Evaluator:
        from dlb.graph.canonical import loss_graph
        from dlb.graph.evaluate import Evaluator

        masks = self._batch_masks(self.inputs)
        graph = loss_graph(
            self.model, None, dtype="float64", training=True, masks=masks, loss=self.loss
        )
        return Evaluator(graph)


def loss_difference(
    logits: Array, base_logits: Array, labels: Array, label_smoothing: float = 0.0
) -> float:
    """The softmax cross-entropy of ``logits`` less that of ``others``, averaged as the loss is.

    To subtract two losses leaves the digits that log-sum-exp rounds away, which is most of them
    where logits are small beside their logarithm. With p the softmax of ``others`` and d what
    ``logits`` are apart from them, it is ``log(1 + sum(p * (exp(d) - 1))) - d[label]``, or less
    ``(1 - s) * d[label] + s * mean(d)`` of labels smoothed by s.

    Args:
        logits, others: float64 [..., classes].
        labels: int64 [...].
        label_smoothing: the loss's.
    """
    logit_differences = logits - base_logits
    shifted = np.exp(base_logits - base_logits.max(axis=-1, keepdims=True))
    probabilities = shifted / shifted.sum(axis=-1, keepdims=True)
    log_ratio = np.log1p((probabilities * np.expm1(logit_differences)).sum(axis=-1))
    label_differences = np.take_along_axis(logit_differences, labels[..., None], -1)[..., 0]
    mean_differences = logit_differences.mean(axis=-1)
    return float(
        (
            log_ratio
            - (1 - label_smoothing) * label_differences
            - label_smoothing * mean_differences
        ).mean()
    )
