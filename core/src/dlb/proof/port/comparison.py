"""The values of a user's model and of the reference, each computed once."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy.typing as npt

from dlb.errors import DlbError
from dlb.failure import Failure
from dlb.proof.findings import Finding
from dlb.proof.findings.common import CannotRun
from dlb.proof.port.culprit import ComparedLayers, compare_layers, outputs_agree, owner_pairs
from dlb.proof.port.inputs import INPUT, Inputs
from dlb.proof.port.layer_events import Side
from dlb.proof.port.model import Model
from dlb.proof.port.reference_model import ReferenceModel
from dlb.proof.port.states import ComparedStates
from dlb.proof.tolerances import FLOAT32_LAYERS, FLOAT64_TOLERANCE
from dlb_worker.contract import ForwardPass, Gradients, UserLayer

__all__ = ["PortComparison", "input_names"]

Array = npt.NDArray[Any]


class PortComparison:
    """One user's model and the reference.

    Attributes:
        truth: the reference.
        model: the user's model.
        states: what neither model trains, compared as it was made.
        pairs: matched parameters that are carried.
        logs: folder of logs.
        owners: layers of the model that own matched parameters, by the reference's layer.
        weights: the reference's weights, by parameter.
        normalisations: pairs of batch normalisations that have a fixed momentum.
    """

    def __init__(
        self,
        truth: ReferenceModel,
        model: Model,
        states: ComparedStates,
        weights: Mapping[str, Array],
        logs: Path,
    ) -> None:
        self.truth, self.model, self.states, self.weights = truth, model, states, weights
        self.pairs = states.carried
        self.logs = logs
        self.owners = owner_pairs(self.pairs)
        self.normalisations = _normalisations(truth.model, model, self.owners)
        #: The reference's gradients at perturbed weights, once the checks in float32 need them.
        self.perturbed: list[Gradients] = []
        self._layers: dict[bool, ComparedLayers] = {}
        #: Passes with the values of all layers, of modes in which layers differ.
        self._traced: dict[bool, tuple[Side, Side]] = {}

    @property
    def float32_only(self) -> bool:
        """Whether the model runs in float32 only, so that it can be compared within rounding only."""
        return self.model.remote.dtype == "float32"

    @property
    def tolerance(self) -> float:
        """The largest distance of values of layers that agree."""
        return FLOAT32_LAYERS if self.float32_only else FLOAT64_TOLERANCE

    @property
    def evaluation_only(self) -> bool:
        """Whether one of both is a file, so that only evaluation mode can be compared."""
        return any(model.remote.evaluation_only for model in (self.truth.model, self.model))

    @property
    def carried_weights(self) -> dict[str, Array]:
        """The reference's weights, by the model's names and in its layout."""
        return self.carry(self.weights)

    def carry(self, weights: Mapping[str, Array]) -> dict[str, Array]:
        """Weights of the reference by the model's names and in its layout."""
        carried: dict[str, Array] = {}
        for pair in self.pairs:
            array = pair.of_source(weights)
            if array is not None:
                carried |= pair.to_target(array)
        return carried

    @cached_property
    def evaluation_pass(self) -> ForwardPass:
        """The model's forward pass in evaluation mode."""
        return self._forward(training=False)

    @cached_property
    def training_pass(self) -> ForwardPass:
        """The model's forward pass in training mode."""
        return self._forward(training=True)

    def _forward(self, training: bool) -> ForwardPass:
        owners = list(self.owners.values())
        return self.model.forward(self.truth.inputs, training=training, layers=owners)

    @cached_property
    def gradients(self) -> Gradients:
        """The model's gradients: in training mode, unless it draws random numbers there."""
        return self.model.gradients(
            self.truth.inputs, self.truth.cotangents, training=self.randomness is None
        )

    @cached_property
    def randomness(self) -> Finding | None:
        """The layer that draws random numbers in training mode, in either model; None if none does."""
        return self.truth.randomness or self.model.find_randomness(self.truth.inputs)

    def by_reference_names(self, gradients: Gradients, model: Model) -> dict[str, Array]:
        """Gradients of the reference or of the model, by the reference's names and in its layout."""
        parameters: dict[str, Array] = {}
        for pair in self.pairs:
            of_side = pair.of_target if model.name == self.model.name else pair.of_source
            array = of_side(gradients.parameters)
            if array is not None:
                parameters[pair.source.name] = array
        return {**parameters, **input_names(gradients.several)}

    @cached_property
    def scaled_passes(self) -> list[tuple[str, Inputs, ForwardPass]]:
        """The model's forward passes on inputs of other scales, as the reference's."""
        return [
            (name, inputs, self.model.forward(inputs))
            for name, inputs, _ in self.truth.scaled_passes
        ]

    def layers(self, training: bool) -> ComparedLayers:
        """Compare the layers that own matched parameters; if they differ, all layers between them.

        In evaluation mode these are the values of the first inputs, of whatever scale, whose outputs differ.
        """
        if training not in self._layers:
            try:
                self._layers[training] = self._compare_layers(training)
            except DlbError:
                raise
            except Exception as error:
                # Layers only locate a difference. What other checks found stays, whatever goes wrong here.
                self._layers[training] = self._not_located(error)
        return self._layers[training]

    def _not_located(self, error: Exception) -> ComparedLayers:
        log = self.logs / "layers.log"
        with suppress(OSError):
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("a", encoding="utf-8") as file:
                file.write("".join(traceback.format_exception(error)))
        failure = Failure(
            kind=DlbError.__name__,
            message=f"the place of the difference could not be determined: {type(error).__name__}",
            adapter=self.model.name,
            log=str(log) if log.exists() else "",
        )
        return ComparedLayers((), (), (Finding(cause=CannotRun(failure=failure)),))

    def _compare_layers(self, training: bool) -> ComparedLayers:
        inputs = self.truth.inputs
        reference_pass, model_pass = (
            (self.truth.training_pass, self.training_pass)
            if training
            else (self.truth.evaluation_pass, self.evaluation_pass)
        )
        if not training and outputs_agree(reference_pass, model_pass, self.tolerance):
            for (_, larger, own), (_, _, other) in zip(
                self.truth.scaled_passes, self.scaled_passes
            ):
                if not outputs_agree(own, other, self.tolerance):
                    inputs, reference_pass, model_pass = larger, own, other
                    break
        compared = compare_layers(
            *self._sides(reference_pass, model_pass), self.pairs, self.tolerance
        )
        if not compared.culprit:
            return compared
        # Run again with every layer's values, to search between layers that own parameters.
        passes = [
            model.forward(inputs, training=training, layers=list(model.remote.layers))
            for model in (self.truth.model, self.model)
        ]
        self._traced[training] = self._sides(*passes)
        return compare_layers(*self._traced[training], self.pairs, self.tolerance)

    def layers_beyond(self, tolerance: float, training: bool) -> tuple[Finding, ...]:
        """The first layer or span past a wider tolerance; empty if none is, or if layers agreed."""
        if training not in self._traced:
            return ()
        try:
            return compare_layers(*self._traced[training], self.pairs, tolerance).culprit
        except DlbError:
            raise
        except Exception as error:
            return self._not_located(error).apart

    def _sides(self, reference_pass: ForwardPass, model_pass: ForwardPass) -> tuple[Side, Side]:
        reference = self.truth.model
        return (
            Side(reference.name, reference.remote.layers, reference_pass),
            Side(self.model.name, self.model.remote.layers, model_pass),
        )


def input_names(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Gradients of inputs by tensor name: ``input``, or ``input NAME`` if there are several."""
    return {name if name == INPUT else f"{INPUT} {name}": array for name, array in arrays.items()}


def _normalisations(
    reference: Model, model: Model, owners: Mapping[str, str]
) -> list[tuple[UserLayer, UserLayer]]:
    """Batch normalisations that are counterparts, if at least one has a fixed momentum."""
    reference_layers, model_layers = reference.remote.layers, model.remote.layers
    pairs = [
        (reference_layers[layer], model_layers[counterpart])
        for layer, counterpart in owners.items()
        if layer in reference_layers
        and counterpart in model_layers
        and reference_layers[layer].kind == "batch_norm"
    ]
    return [pair for pair in pairs if any(member.momentum is not None for member in pair)]
