"""What is right: the canonical graph in float64, its backward pass, and slopes of its loss by differences."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlb_graph import workload as W
from dlb_graph.truth.backward import model_gradients
from dlb_graph.truth.canonical import (
    LABELS,
    LOSS,
    canonical_graph,
    loss_graph,
    rounding_offsets,
)
from dlb_graph.truth.evaluate import Evaluator

from .subject import PLAIN_LOSS, Arrays

#: Rounding of the loss, in its own size: a few hundred roundings of float64, which partly cancel.
_LOSS_ROUNDING = 4 * np.finfo(np.float64).eps
#: Step lengths of differences, longest first: the rounding of the loss counts for less in a long
#: step; a kink of a ReLU or a maximum is less likely to lie within a short one.
_STEPS = (3e-3, 3e-4, 3e-5, 3e-6)
_NO_MASKS: Arrays = {}


def values(
    model: W.Model,
    weights: Arrays,
    inputs: np.ndarray,
    *,
    training: bool = False,
    masks: Arrays = _NO_MASKS,
) -> dict[str, np.ndarray]:
    """The value of every layer; in training also ``layer.mean/running`` and the like.

    ``masks`` are those of dropouts, as many rows as the batch has.
    """
    made = canonical_graph(
        model, weights, dtype="float64", outputs="layers", training=training, masks=masks
    )
    return Evaluator(made).run({model.input.name: inputs})


def loss(
    model: W.Model,
    weights: Arrays,
    inputs: np.ndarray,
    labels: np.ndarray,
    masks: Arrays = _NO_MASKS,
    by: W.Loss = PLAIN_LOSS,
) -> float:
    """The mean loss of a batch in training mode."""
    return Loss(model, weights, inputs, labels, masks, by).at({})


def gradients(
    model: W.Model,
    weights: Arrays,
    inputs: np.ndarray,
    labels: np.ndarray,
    masks: Arrays = _NO_MASKS,
    by: W.Loss = PLAIN_LOSS,
) -> dict[str, np.ndarray]:
    """Gradients of the mean loss of a batch in training mode, by name of parameter or real input.

    They are of the core's backward pass, whose slopes the core's tests compare with differences.
    """
    layers = values(model, weights, inputs, training=True, masks=masks)
    found = model_gradients(model, weights, inputs, layers, labels, by, masks)
    del found["loss"]
    if "input" in found:
        found[model.input.name] = found.pop("input")
    return found


@dataclass(frozen=True)
class Slope:
    """A derivative, and by how much it may be off."""

    value: float
    uncertainty: float


class Loss:
    """The loss of one batch in training mode, as a function of the parameters and the input.

    A straight-through rounding adds what it adds here, wherever these are moved: so a derivative is that by its
    gradient.
    """

    def __init__(
        self,
        model: W.Model,
        weights: Arrays,
        inputs: np.ndarray,
        labels: np.ndarray,
        masks: Arrays = _NO_MASKS,
        by: W.Loss = PLAIN_LOSS,
    ) -> None:
        def start() -> Arrays:
            own = values(model, weights, inputs, training=True, masks=masks)
            return {model.input.name: inputs, **own}

        graph = loss_graph(
            model,
            weights,
            dtype="float64",
            training=True,
            masks=masks,
            offsets=rounding_offsets(model, start),
            loss=by,
        )
        self._evaluator = Evaluator(graph)
        self._fixed = {model.input.name: inputs, LABELS: labels}
        self._start = {
            **{name: np.asarray(value, np.float64) for name, value in weights.items()},
            model.input.name: inputs,
        }

    def at(self, moved: Arrays) -> float:
        """The loss with some parameters, or the input, in another place."""
        return float(self._evaluator.run({**self._fixed, **moved}, [LOSS])[LOSS])

    def along(self, directions: Arrays) -> Slope:
        """The derivative along a direction, by name of parameter or input.

        Central differences of fourth order, at two lengths whose disagreement tells how far off
        they are, for the step length that does best.
        """
        best = Slope(float("nan"), float("inf"))
        for length in _STEPS:
            long = self._difference(directions, length)
            short = self._difference(directions, length / 2)
            rounding = 3 * _LOSS_ROUNDING * abs(self.at({})) / length
            found = Slope(short, abs(long - short) + rounding)
            if found.uncertainty < best.uncertainty:
                best = found
            if best.uncertainty < 1e-11:
                break
        return best

    def _difference(self, directions: Arrays, length: float) -> float:
        def at(steps: int) -> float:
            return self.at(
                {
                    name: self._start[name] + steps * length * direction
                    for name, direction in directions.items()
                }
            )

        return (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * length)
