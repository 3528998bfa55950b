"""A user's model and the reference that it is a port of: what both compute, each once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy.typing as npt

from dlb.proof.findings import Finding
from dlb.proof.port.culprit import ComparedLayers, compare_layers, owner_pairs
from dlb.proof.port.layer_events import Side
from dlb.proof.port.model import Model
from dlb.proof.port.reference_model import ReferenceModel
from dlb.proof.port.weight_map import Pair
from dlb.proof.tolerances import FLOAT64_TOLERANCE
from dlb_worker.contract import ForwardPass, Gradients, UserLayer

__all__ = ["PortComparison"]

Array = npt.NDArray[Any]


class PortComparison:
    """One user's model and the reference.

    Attributes:
        truth: the reference.
        model: the model.
        pairs: their matched parameters.
        owners: layers that own them, by the reference's layer.
        weights: the reference's.
        normalisations: batch normalisations that are counterparts and keep a fixed share.
    """

    def __init__(
        self,
        truth: ReferenceModel,
        model: Model,
        pairs: Sequence[Pair],
        weights: Mapping[str, Array],
    ) -> None:
        self.truth, self.model, self.pairs, self.weights = truth, model, pairs, weights
        self.owners = owner_pairs(pairs)
        self.normalisations = _normalisations(truth.model, model, self.owners)
        self._layers: dict[bool, ComparedLayers] = {}

    @property
    def carried(self) -> dict[str, Array]:
        """The reference's weights, as the model reads them."""
        return {pair.target.name: pair.carry(self.weights[pair.source.name]) for pair in self.pairs}

    @cached_property
    def evaluated(self) -> ForwardPass:
        """The model's pass in evaluation mode."""
        return self._forward(training=False)

    @cached_property
    def trained(self) -> ForwardPass:
        """The model's pass in training mode."""
        return self._forward(training=True)

    def _forward(self, training: bool) -> ForwardPass:
        owners = list(self.owners.values())
        return self.model.forward(self.truth.inputs, training=training, layers=owners)

    @cached_property
    def gradients(self) -> Gradients:
        """The model's pass forward and back: in training mode, unless that draws."""
        return self.model.gradients(
            self.truth.inputs, self.truth.cotangents, training=self.drawing is None
        )

    @cached_property
    def drawing(self) -> Finding | None:
        """What draws random numbers in training mode, in either model."""
        return self.truth.drawing or self.model.drawing(self.truth.inputs)

    def in_reference(self, gradients: Gradients, model: Model) -> dict[str, Array]:
        """Gradients of the reference or of the model by the reference's names, in its layout."""
        found = gradients.parameters
        if model.name == self.model.name:
            found = {
                pair.source.name: pair.bring_back(found[pair.target.name])
                for pair in self.pairs
                if pair.target.name in found
            }
        else:
            names = {pair.source.name for pair in self.pairs}
            found = {name: array for name, array in found.items() if name in names}
        return dict(found) if gradients.inputs is None else {**found, "input": gradients.inputs}

    def layers(self, training: bool) -> ComparedLayers:
        """The layers that own matched parameters; where they differ, all layers between them."""
        if training not in self._layers:
            self._layers[training] = self._compare_layers(training)
        return self._layers[training]

    def _compare_layers(self, training: bool) -> ComparedLayers:
        ours, theirs = (
            (self.truth.trained, self.trained)
            if training
            else (self.truth.evaluated, self.evaluated)
        )
        compared = compare_layers(*self._sides(ours, theirs), self.pairs, FLOAT64_TOLERANCE)
        if not compared.culprit:
            return compared
        # Once more with every layer's values, to look between those that have parameters.
        both = [
            model.forward(self.truth.inputs, training=training, layers=list(model.remote.layers))
            for model in (self.truth.model, self.model)
        ]
        return compare_layers(*self._sides(*both), self.pairs, FLOAT64_TOLERANCE)

    def _sides(self, ours: ForwardPass, theirs: ForwardPass) -> tuple[Side, Side]:
        reference = self.truth.model
        return (
            Side(reference.name, reference.remote.layers, ours),
            Side(self.model.name, self.model.remote.layers, theirs),
        )


def _normalisations(
    reference: Model, model: Model, owners: Mapping[str, str]
) -> list[tuple[UserLayer, UserLayer]]:
    """Batch normalisations that are counterparts; not those that keep no fixed share, both."""
    ours, theirs = reference.remote.layers, model.remote.layers
    pairs = [
        (ours[own], theirs[other])
        for own, other in owners.items()
        if own in ours and other in theirs and ours[own].kind == "batch_norm"
    ]
    return [pair for pair in pairs if any(layer.momentum is not None for layer in pair)]
