"""What is true, computed with no framework: the canonical graph in float64."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dlb.errors import DataError
from dlb.proof.distance import relative_l2
from dlb.proof.rungs import FLOAT32_LEAST, FLOAT32_MULTIPLE, SLOPE_GATE
from dlb.workload import Model, state_names

if TYPE_CHECKING:
    from dlb.graph.evaluate import Evaluator

__all__ = ["Reference"]

Array = npt.NDArray[Any]
#: Relative step of the differences. A long one crosses kinks of ReLU and max pooling, where it is off
#: by parts in a thousand; a short one loses digits to rounding. On LeNet-5, steps of 1e-6, 1e-7, 1e-8
#: and 1e-9 err by 1e-9 (or 1e-3 across a kink), 5e-8, 4e-7 and 4e-6 of a typical slope.
STEP = 1e-8
#: No float32 forward pass of a model worth comparing is further from the truth by rounding.
FLOAT32_MOST = 1e-3
#: Roundings of a loss in float64 that a difference of two may be off by.
LOSS_ROUNDINGS = 4
#: Directions tried; their median is free of the one that crosses a kink even so.
DIRECTIONS = 3


class Reference:
    """The canonical graph of a model at given weights, on one batch.

    Args:
        model: with dropout at rate 0.
        weights: seeded, float32, by ``layer.parameter``.
        inputs: [batch, ...] float32 or int64.
        labels: int64 [batch] or [batch, T].
    """

    def __init__(
        self, model: Model, weights: Mapping[str, Array], inputs: Array, labels: Array
    ) -> None:
        self.model = model
        self.weights = weights
        self.inputs = inputs
        self.labels = labels
        #: Differences do not depend on the adapter: by what is moved, seed, and direction.
        self._differences: dict[tuple[str, int, int], tuple[float, float]] = {}

    @cached_property
    def layers(self) -> dict[str, Array]:
        """Every layer's value in evaluation mode, float64, in order."""
        return self._layers(training=False)

    @cached_property
    def training_layers(self) -> dict[str, Array]:
        """Every layer's value in training mode, float64, in order."""
        return self._layers(training=True)

    def _layers(self, training: bool) -> dict[str, Array]:
        from dlb.graph.canonical import canonical_graph
        from dlb.graph.evaluate import evaluate

        graph = canonical_graph(
            self.model, self.weights, dtype="float64", outputs="layers", training=training
        )
        values = evaluate(graph, {self.model.input.name: self.inputs})
        return {node.name: values[node.name] for node in self.model.nodes}

    def alone(self, values: Mapping[str, Array], *, training: bool = False) -> dict[str, Array]:
        """Every layer's value in float64, each given the values that its readers would have had.

        Args:
            values: every layer's, as an adapter computed them.
        """
        from dlb.graph.canonical import GIVEN, layers_graph
        from dlb.graph.evaluate import evaluate

        graph = layers_graph(self.model, self.weights, dtype="float64", training=training)
        given = {**values, self.model.input.name: self.inputs}
        read = {value.name: given[value.name.removeprefix(GIVEN)] for value in graph.graph.input}
        found = evaluate(graph, read)
        return {node.name: found[node.name] for node in self.model.nodes}

    def running(self, weights: Mapping[str, Array], inputs: Array) -> dict[str, Array]:
        """Running statistics after one step in training mode, float64, by ``layer.parameter``.

        Args:
            weights: every parameter and state before the step.
            inputs: its batch.
        """
        from dlb.graph.canonical import canonical_graph
        from dlb.graph.evaluate import evaluate

        graph = canonical_graph(self.model, weights, dtype="float64", training=True)
        found = evaluate(graph, {self.model.input.name: inputs})
        return {name: found[f"{name}/running"] for name in state_names(self.model)}

    @cached_property
    def float32_gate(self) -> float:
        """How far a float32 forward pass may be from the truth: a multiple of how far ONNX Runtime
        is, on the same graph.

        Where that is further than rounding explains, ONNX Runtime computes something else (before
        1.31 the last window of an average pooling in ceil mode), and is no witness. Nor is it where
        it refuses the graph (a pooling in ceil mode whose last window lies in the padding).
        """
        from dlb.graph.canonical import canonical_graph
        from dlb.graph.runtime import run_model

        graph = canonical_graph(self.model, self.weights, dtype="float32")
        truth = self.layers[self.model.nodes[-1].name]
        try:
            logits = run_model(graph.SerializeToString(), {self.model.input.name: self.inputs})[0]
            error = relative_l2(logits, truth)
        except DataError:
            error = np.inf
        return FLOAT32_MULTIPLE * max(error if error < FLOAT32_MOST else 0.0, FLOAT32_LEAST)

    def slopes(
        self, gradients: Mapping[str, Array], inputs: Array | None, seed: int
    ) -> dict[str, tuple[float, float, float]]:
        """Directional derivatives of the loss in training mode: by gradient, by differences, and
        the size that one along a random direction typically has (norm / sqrt(elements)), or that
        of which the gate is what rounding leaves of the difference, if that is larger.

        Along random unit directions over all parameters together, and over the input. Of several
        directions the one of median error is given.

        Args:
            gradients: of every trained parameter, float64.
            inputs: gradient of the input, or None for integers.
        """
        name = self.model.input.name
        found = {"all parameters": self._middle("parameters", gradients, seed)}
        if inputs is not None:
            found["input"] = self._middle("input", {name: inputs}, seed)
        return found

    def _middle(
        self, what: str, gradients: Mapping[str, Array], seed: int
    ) -> tuple[float, float, float]:
        """The slope of median error of several directions."""
        at = self.weights if what == "parameters" else {self.model.input.name: self.inputs}
        # In the model's order: every adapter must be asked along the same directions.
        gradients = {key: gradients[key] for key in at if key in gradients}
        total = np.sqrt(sum(float(np.sum(array**2)) for array in gradients.values()))
        typical = float(total / np.sqrt(sum(array.size for array in gradients.values())))
        tried = []
        for number in range(DIRECTIONS):
            # Drawn anew for each adapter: to keep them would take several times the model.
            generator = np.random.default_rng((seed, number))
            direction = {
                key: generator.standard_normal(array.shape) for key, array in gradients.items()
            }
            norm = np.sqrt(sum(float(np.sum(array**2)) for array in direction.values()))
            own = sum(float(np.sum(gradients[key] * direction[key])) for key in gradients) / norm
            if (what, seed, number) not in self._differences:
                start = {key: at[key].astype(np.float64) for key in gradients}
                unit = {key: array / norm for key, array in direction.items()}
                self._differences[what, seed, number] = self._difference(start, unit)
            slope, uncertain = self._differences[what, seed, number]
            tried.append((own, slope, max(typical, uncertain / SLOPE_GATE)))
        # A NaN sorts last, so that it cannot hide behind the others.
        ordered = sorted(tried, key=lambda one: np.nan_to_num(abs(one[0] - one[1]), nan=np.inf))
        return ordered[DIRECTIONS // 2]

    def _difference(
        self, start: Mapping[str, Array], unit: Mapping[str, Array]
    ) -> tuple[float, float]:
        """The loss's central difference along a unit direction, and what its rounding may be."""
        # A step that is small beside the numbers it moves, whatever their scale.
        scale = np.sqrt(sum(float(np.sum(array**2)) for array in start.values()))
        step = STEP * max(float(scale), 1.0)
        base: dict[str, Array] = {self.model.input.name: self.inputs, "labels": self.labels}
        ends = []
        for sign in (1.0, -1.0):
            moved = {key: array + sign * step * unit[key] for key, array in start.items()}
            ends.append(float(self._loss.run({**base, **moved}, ["loss"])["loss"]))
        rounded = LOSS_ROUNDINGS * float(np.spacing(abs(ends[0])))
        return (ends[0] - ends[1]) / (2 * step), rounded / (2 * step)

    @cached_property
    def _loss(self) -> Evaluator:
        from dlb.graph.canonical import loss_graph
        from dlb.graph.evaluate import Evaluator

        return Evaluator(loss_graph(self.model, self.weights, dtype="float64", training=True))
