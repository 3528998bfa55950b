"""A model that an adapter built as a subject: what it gives for each check in float64, next to the truth."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any

import numpy.typing as npt

from dlb.proof.check_table import Ability
from dlb.proof.checks.backward import loss_gradients, own_gradients, slope_sides
from dlb.proof.checks.layers import isolated_layers, layer_values, missing_layers
from dlb.proof.findings import Figure, Finding
from dlb.proof.findings.workload import Otherwise
from dlb.proof.reference import Reference
from dlb.proof.subject import Sides
from dlb.proof.update_batches import as_dtype
from dlb.supervision.remote import RemoteModel
from dlb_graph.comparing.near_misses import layer_otherwise, weights_otherwise
from dlb_graph.comparing.tolerances import FLOAT64_TOLERANCE, Tensors

__all__ = ["BuiltSubject", "given_weights"]

Array = npt.NDArray[Any]


class BuiltSubject:
    """A model that an adapter built in float64, compared with the canonical graph.

    Args:
        training: whether it can run in training mode with the reference's masks.
        seed: of the directions of finite differences.
    """

    references: tuple[str, ...] = ()

    def __init__(
        self, model: RemoteModel, reference: Reference, adapter: str, *, training: bool, seed: int
    ) -> None:
        self.model, self.reference, self.name, self._seed = model, reference, adapter, seed
        self.abilities: frozenset[Ability] = frozenset({"training"} if training else ())
        self._values: dict[bool, dict[str, Array]] = {}

    @property
    def compares(self) -> Mapping[str, Callable[[], Sides]]:
        """What it gives for each check."""
        return {
            "weights float64": self.weights,
            "forward float64": self.layers,
            "isolated layers": self.isolated,
            "forward float64, training": partial(self.layers, training=True),
            "isolated layers, training": partial(self.isolated, training=True),
            "gradients float64": self.loss_gradients,
            "gradients by differences": self.slopes,
        }

    def values(self, training: bool) -> dict[str, Array]:
        """Every layer's value on the reference's batch."""
        if training not in self._values:
            inputs = as_dtype(self.reference.inputs, self.model.dtype)
            names = [node.name for node in self.reference.model.nodes]
            self._values[training] = self.model.forward(inputs, training=training, layers=names)
        return self._values[training]

    @cached_property
    def gradients(self) -> dict[str, Array]:
        """Its loss and gradients on the reference's batch."""
        return own_gradients(self.model, self.reference)

    def weights(self) -> Sides:
        """Every parameter after loading."""
        return given_weights(self.model.weights()[0], self.reference.weights, self.model.dtype)

    def layers(self, training: bool = False) -> Sides:
        """Every layer's value, with the errors of those before it."""
        truth, values = self._truth(training), self.values(training)
        return layer_values(self.reference.model, values, truth, self.model.native_layers)

    def isolated(self, training: bool = False) -> Sides:
        """Every layer's value by itself."""
        values = self.values(training)
        if missing := missing_layers(values, self._truth(training)):
            return Sides(tolerance=FLOAT64_TOLERANCE, doubts=(missing,))
        canonical = self.reference.isolated_layers(values, training=training)
        model, own = self.reference.model, {**self.reference.weights, **values}
        own[model.input.name] = self.reference.inputs
        otherwise = partial(
            layer_otherwise, model, values=own, training=training, masks=self.reference.masks
        )
        return isolated_layers(model, values, canonical, self.model.native_layers, otherwise)

    def loss_gradients(self) -> Sides:
        """The loss and its gradients, and the truth's backward pass from the model's own values."""
        values = self.values(training=True)
        return loss_gradients(self.model, self.reference, values, self.gradients)

    def slopes(self) -> Sides:
        """Its gradients along directions, and finite differences of the truth's loss."""
        parameters = {
            name: array for name, array in self.gradients.items() if name not in ("loss", "input")
        }
        of_input = self.gradients.get("input")
        return slope_sides(self.reference.slopes(parameters, of_input, self._seed))

    def _truth(self, training: bool) -> dict[str, Array]:
        return self.reference.training_layers if training else self.reference.layers


def given_weights(loaded: Tensors, weights: Tensors, dtype: str) -> Sides:
    """Every parameter after loading, and those that were loaded, by ``layer.parameter``."""
    given = {name: array.astype(dtype) for name, array in weights.items()}

    def locate(compared: tuple[Figure, ...]) -> tuple[Finding, ...]:
        fields = weights_otherwise(loaded, given)
        return (Finding(cause=Otherwise(fields=fields)),) if fields else ()

    return Sides(loaded, given, locate=locate)
