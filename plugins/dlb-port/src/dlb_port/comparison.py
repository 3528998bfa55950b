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
from dlb_graph.comparing.tolerances import FLOAT32_LAYERS, FLOAT64_TOLERANCE
from dlb_port.culprit import ComparedLayers, compare_layers, output_figures, owner_pairs
from dlb_port.inputs import INPUT, Inputs
from dlb_port.layer_events import Side
from dlb_port.model import Model
from dlb_port.reference_model import ReferenceModel
from dlb_port.states import ComparedStates
from dlb_port.weight_map import carry
from dlb_worker.contract import ForwardPass, Gradients, UserLayer

__all__ = ["PortComparison", "input_names"]

Array = npt.NDArray[Any]
#: Outputs that are this many times closer than others show another, smaller difference, if any.
_NEAR = 1000.0


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
        #: Whether what differs first computes in float32 by itself, whatever it reads.
        self.narrow = False
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
        return carry(self.pairs, self.weights)

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

    @property
    def exact_gradients(self) -> dict[str, Array]:
        """The reference's gradients, by its names."""
        gradients = self.truth.gradients(self.randomness is None)
        return self.by_reference_names(gradients, self.truth.model)

    @property
    def perturbed_gradients(self) -> list[dict[str, Array]]:
        """The reference's gradients at perturbed weights, by its names; empty until they are needed."""
        return [self.by_reference_names(each, self.truth.model) for each in self.perturbed]

    @cached_property
    def draws(self) -> tuple[Finding, ...]:
        """The first layer of each model that draws random numbers in training mode, where one does."""
        own = self.model.find_randomness(self.truth.inputs)
        return tuple(each for each in (self.truth.randomness, own) if each is not None)

    @property
    def randomness(self) -> Finding | None:
        """The first layer of either model that draws; None if none does."""
        return next(iter(self.draws), None)

    def named(self, arrays: Mapping[str, Array], model: Model) -> dict[str, Array]:
        """Arrays of the reference or of the model, by the reference's names and in its layout."""
        named: dict[str, Array] = {}
        for pair in self.pairs:
            of_side = pair.of_target if model.name == self.model.name else pair.of_source
            array = of_side(arrays)
            if array is not None:
                named[pair.source.name] = array
        return named

    def by_reference_names(self, gradients: Gradients, model: Model) -> dict[str, Array]:
        """Gradients of parameters and inputs, as :meth:`named`."""
        return {**self.named(gradients.parameters, model), **input_names(gradients.several)}

    @cached_property
    def further_passes(self) -> list[tuple[str, Inputs, ForwardPass]]:
        """The model's forward passes on the further inputs, as the reference's."""
        forward = self.model.forward
        return [(name, inputs, forward(inputs)) for name, inputs, _ in self.truth.further_passes]

    def layers(self, training: bool) -> ComparedLayers:
        """Compare the layers that own matched parameters; if they differ, all layers between them.

        In evaluation mode these are the values of the first inputs whose outputs differ, unless those of others
        are further apart by far.
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
        if not training:
            passes = [
                (inputs, reference_pass, model_pass),
                *(
                    (further, own, other)
                    for (_, further, own), (_, _, other) in zip(
                        self.truth.further_passes, self.further_passes
                    )
                ),
            ]
            apart = [output_figures(own, other)[0].distance for _, own, other in passes]
            least = max(self.tolerance, max(apart) / _NEAR)
            inputs, reference_pass, model_pass = next(
                (each for each, distance in zip(passes, apart) if distance > least), passes[0]
            )
        compared = compare_layers(
            *self._sides(reference_pass, model_pass), self.pairs, self.tolerance
        )
        if not compared.culprit:
            return compared
        # Run again with every layer's values, to search between layers that own parameters.
        traces = [
            model.forward(inputs, training=training, layers=list(model.remote.layers))
            for model in (self.truth.model, self.model)
        ]
        self._traced[training] = self._sides(*traces)
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
