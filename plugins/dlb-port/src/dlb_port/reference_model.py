"""The values of the reference of a port, each computed once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.proof.divergence import perturbed
from dlb.proof.findings import Finding
from dlb_graph.comparing.distance import relative_l2
from dlb_graph.comparing.tolerances import (
    FLOAT32_MULTIPLE,
    FLOAT64_TOLERANCE,
    NORMALISED_UNITS,
    PERTURBED_RUNS,
    PERTURBED_UNITS,
)
from dlb_port.inputs import Inputs
from dlb_port.model import Model
from dlb_worker.contract import ForwardPass, Gradients

__all__ = ["ReferenceModel"]

Array = npt.NDArray[Any]


class ReferenceModel:
    """The values of the reference, each computed once.

    Args:
        inputs: every input [batch, ...] by name, in canonical layout.
        further_inputs: other inputs to compare outputs on, each with what to call it.
        seed: seed of cotangents and of perturbations.
        owners: layers that own matched parameters; their values are returned with each pass.
    """

    def __init__(
        self,
        model: Model,
        inputs: Inputs,
        further_inputs: Sequence[tuple[str, Inputs]],
        seed: int,
        owners: Sequence[str],
    ) -> None:
        self.model, self.inputs, self.seed, self.owners = model, inputs, seed, owners
        self.further_inputs = further_inputs
        #: Forward passes in evaluation mode at the weights of :meth:`perturbed_gradients`.
        self.perturbed_passes: list[ForwardPass] = []

    @cached_property
    def evaluation_pass(self) -> ForwardPass:
        return self.model.forward(self.inputs, layers=self.owners)

    @cached_property
    def further_passes(self) -> list[tuple[str, Inputs, ForwardPass]]:
        """Forward passes in evaluation mode on the further inputs, with their names.

        One is left out if outputs overflow there, or if rounding alone moves them too far.
        """
        found = []
        for name, inputs in self.further_inputs:
            trace = self.model.forward(inputs)
            real = {key: array for key, array in inputs.items() if array.dtype.kind == "f"}
            moved = {**inputs, **perturbed(real, self.seed, PERTURBED_UNITS)}
            if all(
                FLOAT32_MULTIPLE * relative_l2(other, own) <= FLOAT64_TOLERANCE
                for own, other in zip(trace.outputs, self.model.forward(moved).outputs)
            ):
                found.append((name, inputs, trace))
        return found

    @cached_property
    def training_pass(self) -> ForwardPass:
        return self.model.forward(self.inputs, training=True, layers=self.owners)

    @cached_property
    def randomness(self) -> Finding | None:
        return self.model.find_randomness(self.inputs)

    @cached_property
    def cotangents(self) -> list[Array]:
        return self._drawn(self.seed)

    def step_cotangents(self, step: int) -> list[Array]:
        """Cotangents of a training step, seeded by its number."""
        return self._drawn((self.seed, step))

    def _drawn(self, seed: int | tuple[int, int]) -> list[Array]:
        """Noise of the outputs' shapes. In float32's numbers it is the same wherever it is drawn."""
        generator = np.random.default_rng(seed)
        return [
            generator.standard_normal(output.shape).astype(np.float32).astype(np.float64)
            for output in self.evaluation_pass.outputs
        ]

    def perturbed_gradients(
        self, training: bool, weights: Mapping[str, Array], *, passes_only: bool = False
    ) -> list[Gradients]:
        """Gradients at weights that are perturbed by a few units in the last place of float32.

        Args:
            passes_only: compute the forward passes alone, since there are no gradients to compare.
            weights: weights of the model; they are loaded again afterwards.
        """
        normalised = any(layer.kind == "batch_norm" for layer in self.model.remote.layers.values())
        units = NORMALISED_UNITS if normalised else PERTURBED_UNITS
        float32_weights = {name: array.astype(np.float32) for name, array in weights.items()}
        cotangents = self.cotangents  # of the pass at the weights themselves
        gradients, self.perturbed_passes = [], []
        for number in range(PERTURBED_RUNS):
            perturbed_weights = perturbed(float32_weights, self.seed + number, units)
            self.model.remote.load_weights(perturbed_weights)
            self.perturbed_passes.append(self.model.forward(self.inputs))
            if not passes_only:
                gradients.append(self.model.gradients(self.inputs, cotangents, training))
        self.model.remote.load_weights(dict(weights))
        return gradients

    def ask_further(self) -> None:
        """Ask for what a port that deviates, or that draws random numbers, would need."""
        layers = list(self.model.remote.layers)
        for _, inputs, _ in self.further_passes:
            self.model.forward(inputs, layers=layers)
        self.gradients(training=False)

    def gradients(self, training: bool) -> Gradients:
        if training not in self._gradients:
            self._gradients[training] = self.model.gradients(self.inputs, self.cotangents, training)
        return self._gradients[training]

    @cached_property
    def _gradients(self) -> dict[bool, Gradients]:
        return {}
