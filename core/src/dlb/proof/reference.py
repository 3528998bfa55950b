"""The reference of every built model: the canonical graph in float64, computed without a framework."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from dlb.errors import DataError
from dlb.threads import together
from dlb_graph.comparing.distance import inner_product, norm, pieces, relative_l2
from dlb_graph.comparing.tolerances import (
    FLOAT32_LEAST,
    FLOAT32_MOST,
    FLOAT32_MULTIPLE,
    SLOPE_TOLERANCE,
)
from dlb_graph.workload import Loss, Model, SoftmaxCrossEntropy, state_names
from dlb_graph.workload.shapes import trained_names

if TYPE_CHECKING:
    from dlb_graph.truth.backward import Altered
    from dlb_graph.truth.evaluate import Evaluator

__all__ = ["Reference", "Slope"]

Array = npt.NDArray[Any]
T = TypeVar("T")
_PLAIN = SoftmaxCrossEntropy()
#: Relative steps of the differences. A long step crosses kinks of ReLU and max pooling, with errors of parts
#: in a thousand. A short step loses digits to rounding. A shorter step is used if the one before gives an error
#: above the tolerance, as in networks whose poolings are nearly tied (caffe-cifar10: 4e-5, 1e-5 and 5e-7). A
#: wrong gradient has an error at any step.
STEPS = (1e-8, 1e-9, 3e-10)
#: Error of a difference of two losses, in units in the last place of a float64 logit.
LOGIT_ROUNDINGS = 4
#: Directions that are tried. Their median error excludes one direction that crosses a kink.
DIRECTIONS = 3
#: How far straight-through roundings are moved at most, in steps of what is rounded.
OFF_TIES = 0.25


@dataclass(frozen=True)
class Slope:
    """A directional derivative.

    Attributes:
        gradient: computed with the adapter's gradient.
        difference: computed with central differences of the canonical graph's loss.
        typical: the typical size of a slope along a random direction (norm / sqrt(elements)), or the
            rounding error of the difference divided by the tolerance, if that is larger.
        step: step of the differences.
    """

    gradient: float
    difference: float
    typical: float
    step: float

    @property
    def error(self) -> float:
        """The difference of both, relative to the larger of the slope and its typical size."""
        return abs(self.gradient - self.difference) / max(abs(self.difference), self.typical)


class Reference:
    """The canonical graph of a model at given weights, on one batch.

    Values that do not depend on the adapter are computed once. Threads may share an object.

    Args:
        model: the model as it is built for the proof.
        weights: seeded weights, float32, by ``layer.parameter``.
        inputs: float32 or int64 [batch, ...].
        labels: int64 [batch] or [batch, T], or real targets of the shape of the last layer's value.
        masks: factors of dropout in training mode, [rows, ...], by layer. A batch of n samples uses the
            first n rows. A dropout without a mask is the identity.
        loss: the loss that slopes are computed for.
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

    def first(self, samples: int) -> Reference:
        """The reference on the first samples of the batch."""
        inputs, labels = self.inputs[:samples], self.labels[:samples]
        return Reference(self.model, self.weights, inputs, labels, self.masks, self.loss)

    def _compute_once(self, key: object, compute: Callable[[], T]) -> T:
        """The result of ``compute``, which is called once for each key."""
        with self._lock:
            if key not in self._cache:
                self._cache[key] = compute()
            return self._cache[key]  # type: ignore[no-any-return]

    @property
    def logits(self) -> Array:
        """The last layer's value in evaluation mode, float64 [batch, ...]."""
        last = self.model.nodes[-1].name
        if "layers" in self._cache:
            return self.layers[last]
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
            return self.layers  # no layer differs between the modes
        names = [node.name for node in self.model.nodes]
        return self._compute_once("training layers", lambda: self._values(names, training=True))

    def training_values(self, dtype: Literal["float64", "float32"]) -> dict[str, Array]:
        """Every layer's value in training mode, computed in a dtype, and not kept."""
        names = [node.name for node in self.model.nodes]
        return self._values(names, training=True, dtype=dtype)

    def _values(
        self,
        names: list[str],
        *,
        training: bool,
        dtype: Literal["float64", "float32"] = "float64",
    ) -> dict[str, Array]:
        from dlb_graph.truth.canonical import canonical_graph
        from dlb_graph.truth.evaluate import Evaluator

        masks = self._batch_masks(self.inputs)
        graph = canonical_graph(self.model, None, dtype=dtype, training=training, masks=masks)
        # Weights are inputs of the graph. As initialisers they would be in memory twice.
        return Evaluator(graph).run({self.model.input.name: self.inputs, **self.weights}, names)

    def _batch_masks(self, inputs: Array) -> dict[str, Array]:
        """The masks of a batch."""
        return {name: mask[: len(inputs)] for name, mask in self.masks.items()}

    def isolated_layers(
        self,
        values: Mapping[str, Array],
        *,
        training: bool = False,
        weights: Mapping[str, Array] | None = None,
        dtype: Literal["float64", "float32"] = "float64",
        layers: Collection[str] | None = None,
    ) -> Iterator[tuple[str, Array]]:
        """Every layer's name and its value, computed from an adapter's inputs to that layer.

        Values are computed one at a time, to save memory.

        Args:
            values: every layer's value, as an adapter computed it.
            weights: by ``layer.parameter``; the reference's if left out.
            dtype: dtype of the computation.
            layers: names of those that are computed; all if left out.
        """
        from dlb_graph.truth.canonical import INPUT_PREFIX, layers_graph
        from dlb_graph.truth.evaluate import Evaluator

        masks = self._batch_masks(self.inputs)
        graph = layers_graph(self.model, None, dtype=dtype, training=training, masks=masks)
        weights = self.weights if weights is None else weights
        available = {**values, **weights, self.model.input.name: self.inputs}
        read = {
            value.name: available[value.name.removeprefix(INPUT_PREFIX)]
            for value in graph.graph.input
        }
        names = [node.name for node in self.model.nodes] if layers is None else layers
        return Evaluator(graph).stream(read, names)

    def gradients(
        self,
        values: Mapping[str, Array],
        weights: Mapping[str, Array] | None = None,
        dtype: str = "float64",
        rounded: Callable[[Array], Array] | None = None,
        altered: Altered | None = None,
    ) -> dict[str, Array]:
        """The loss and its gradients in training mode, by name, from given values of layers.

        Args:
            values: every layer's value in training mode: an adapter's, or the truth's.
            weights: by ``layer.parameter``; the reference's if left out.
            dtype: dtype of the backward pass.
            rounded: rounds what passes from one layer to the one below it; None to leave it.
            altered: the backward pass of a layer, in place of its own.
        """
        from dlb_graph.truth.backward import model_gradients

        return model_gradients(
            self.model,
            self.weights if weights is None else weights,
            self.inputs,
            values,
            self.labels,
            self.loss,
            self._batch_masks(self.inputs),
            dtype,
            rounded,
            altered,
        )

    @property
    def gradient_norm(self) -> float:
        """The norm of all parameters' gradients together, which clipping compares with its limit."""
        return self._compute_once("gradient norm", self._gradient_norm)

    def _gradient_norm(self) -> float:
        gradients = self.gradients(self.training_layers)
        return norm(gradients[name] for name in trained_names(self.model))

    @property
    def largest_gradient(self) -> float:
        """The size of the largest element of all gradients, which clipping by value limits."""
        return self._compute_once("largest gradient", self._largest_gradient)

    def _largest_gradient(self) -> float:
        gradients = self.gradients(self.training_layers)
        return max(float(np.abs(gradients[name]).max()) for name in trained_names(self.model))

    @property
    def largest_norm(self) -> float:
        """The largest norm of a parameter's gradient, which clipping by variable compares with its limit."""
        return self._compute_once("largest norm", self._largest_norm)

    def _largest_norm(self) -> float:
        gradients = self.gradients(self.training_layers)
        return max(norm([gradients[name]]) for name in trained_names(self.model))

    def running(
        self,
        weights: Mapping[str, Array],
        inputs: Array,
        dtype: Literal["float64", "float32"] = "float64",
        parts: int = 1,
    ) -> dict[str, Array]:
        """Running statistics after one step in training mode, by ``layer.parameter``.

        Args:
            weights: every parameter and state before the step, by ``layer.parameter``.
            inputs: the batch of the step.
            dtype: dtype of the computation.
            parts: how many equal parts the step takes its batch in.
        """
        from dlb_graph.truth.canonical import canonical_graph
        from dlb_graph.truth.evaluate import evaluate

        masks = self._batch_masks(inputs[: len(inputs) // parts])
        graph = canonical_graph(self.model, None, dtype=dtype, training=True, masks=masks)
        running: dict[str, Array] = {}
        for part in np.split(inputs, parts):
            values = evaluate(graph, {self.model.input.name: part, **weights, **running})
            running = {name: values[f"{name}/running"] for name in state_names(self.model)}
        return running

    @property
    def float32_baseline(self) -> float:
        """Relative L2 error of ONNX Runtime's float32 logits of the canonical graph.

        Infinite if ONNX Runtime refuses the graph.
        """
        return self._compute_once("float32 baseline", self._float32_baseline)

    def _float32_baseline(self) -> float:
        from dlb_graph.truth.canonical import canonical_graph
        from dlb_graph.truth.runtime import run_model

        graph = canonical_graph(self.model, self.weights, dtype="float32")
        try:
            logits = run_model(graph.SerializeToString(), {self.model.input.name: self.inputs})[0]
        except DataError:
            return np.inf
        return relative_l2(logits, self.logits)

    @property
    def float32_tolerance(self) -> float:
        """Tolerance of a float32 forward pass: a multiple of ONNX Runtime's error on the same graph.

        An error larger than :data:`FLOAT32_MOST` is not rounding, so it is ignored. ONNX Runtime before 1.31
        has such an error in the last window of an average pooling in ceil mode. An error is also missing if
        ONNX Runtime refuses the graph.
        """
        error = self.float32_baseline
        return FLOAT32_MULTIPLE * max(error if error < FLOAT32_MOST else 0.0, FLOAT32_LEAST)

    def slopes(
        self, gradients: Mapping[str, Array], inputs: Array | None, seed: int
    ) -> dict[str, Slope]:
        """Directional derivatives of the loss in training mode, for ``all parameters`` and ``input``.

        Directions are random unit vectors. The result is the slope of median error.

        A straight-through gradient is the derivative of another loss, that of a constant addition where the
        model rounds. If there is one, the reference's own gradients are tried instead, next to the model's
        values: the adapter's are compared with the reference's anyway.

        Args:
            gradients: gradients of every trained parameter, float64, by ``layer.parameter``.
            inputs: gradient of the input; None if the input is integers.
            seed: seed of the directions.
        """
        if self._offsets:
            own = self._compute_once("gradients off ties", self._gradients_off_ties)
            gradients = {name: own[name] for name in gradients}
            inputs = own["input"] if inputs is not None else None
        moved = {"all parameters": gradients}
        if inputs is not None:
            moved["input"] = {self.model.input.name: inputs}
        return {
            variables: self._median_slope(variables, tensors, seed)
            for variables, tensors in moved.items()
            if tensors
        }

    def _median_slope(self, variables: str, gradients: Mapping[str, Array], seed: int) -> Slope:
        """The slope of median error among :data:`DIRECTIONS` directions."""
        point = self._point(variables)
        # In the model's order, so that every adapter gets the same directions.
        gradients = {key: gradients[key] for key in point if key in gradients}
        typical = norm(gradients.values()) / math.sqrt(
            sum(piece.size for piece in gradients.values())
        )
        tried = []
        for number in range(DIRECTIONS):
            # Drawn again for each adapter: keeping them would take several times the model's memory.
            generator = np.random.default_rng((seed, number))
            direction = {
                key: generator.standard_normal(array.shape) for key, array in gradients.items()
            }
            length = norm(direction.values())
            product = sum(
                inner_product(piece, direction_piece)
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
                    product / length, slope, max(typical, uncertain / SLOPE_TOLERANCE), step
                )
                if piece.error <= SLOPE_TOLERANCE:
                    break
            tried.append(piece)
        # A NaN counts as the largest error.
        ordered = sorted(tried, key=lambda piece: np.nan_to_num(piece.error, nan=np.inf))
        return ordered[DIRECTIONS // 2]

    def _step_length(self, variables: str, relative_step: float) -> float:
        """The step of differences: relative to the norm of the variables, or to 1 if that is larger."""
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
        """The loss's central difference along a direction scaled to length 1, and its rounding error."""

        point = self._point(variables)
        base = {self.model.input.name: self.inputs, "labels": self.labels, **self.weights}
        last = self.model.nodes[-1].name

        def moved_logits(sign: float) -> Array:
            moved = {
                key: point[key] + sign * step / length * array for key, array in direction.items()
            }
            return evaluator.run({**base, **moved}, [last])[last]

        # Made here, since another thread would wait for this one.
        evaluator = self._loss_evaluator()
        logits = together(partial(moved_logits, 1.0), partial(moved_logits, -1.0))
        rounding = LOGIT_ROUNDINGS * float(np.spacing(np.abs(logits[0]).max()))
        rounding *= self.loss.steepness(logits[0], self.labels)
        difference = self.loss.difference(logits[0], logits[1], self.labels)
        return difference / (2 * step), rounding / (2 * step)

    def _loss_evaluator(self) -> Evaluator:
        return self._compute_once("loss", self._make_loss_evaluator)

    def _make_loss_evaluator(self) -> Evaluator:
        from dlb_graph.truth.canonical import loss_graph
        from dlb_graph.truth.evaluate import Evaluator

        graph = loss_graph(
            self.model,
            None,
            dtype="float64",
            training=True,
            masks=self._batch_masks(self.inputs),
            offsets=self._offsets,
            loss=self.loss,
        )
        return Evaluator(graph)

    @property
    def _offsets(self) -> Mapping[str, Array]:
        """What straight-through roundings add in differences, by layer name."""
        return self._compute_once("offsets", self._drawn_offsets)

    def _drawn_offsets(self) -> dict[str, Array]:
        """How far each is from what it reads, and a drawn part of a step more.

        Rounded values are often equal, or 0, where a maximum or a ReLU has no derivative.
        """
        from dlb_graph.truth.canonical import rounding_offsets

        exact = rounding_offsets(
            self.model, lambda: {self.model.input.name: self.inputs, **self.training_layers}
        )
        generator = np.random.default_rng(0)
        return {
            name: offset + generator.uniform(-OFF_TIES, OFF_TIES, offset.shape)
            for name, offset in exact.items()
        }

    def _gradients_off_ties(self) -> dict[str, Array]:
        """The reference's own gradients, from values with :attr:`_offsets`."""
        names = [node.name for node in self.model.nodes]
        base = {self.model.input.name: self.inputs, "labels": self.labels, **self.weights}
        return self.gradients(self._loss_evaluator().run(base, names))
