"""The values of the reference of a port, each computed once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.proof.divergence import perturbed
from dlb.proof.findings import Finding
from dlb.proof.port.model import Model
from dlb.proof.tolerances import NORMALISED_UNITS, PERTURBED_RUNS, PERTURBED_UNITS
from dlb_worker.contract import ForwardPass, Gradients

__all__ = ["ReferenceModel"]

Array = npt.NDArray[Any]


class ReferenceModel:
    """The values of the reference, each computed once.

    Args:
        inputs: [batch, ...] in canonical layout.
        seed: seed of cotangents and of perturbations.
        owners: layers that own matched parameters; their values are returned with each pass.
    """

    def __init__(
        self,
        model: Model,
        inputs: Array,
        seed: int,
        owners: Sequence[str],
    ) -> None:
        self.model, self.inputs, self.seed, self.owners = model, inputs, seed, owners

    @cached_property
    def evaluation_pass(self) -> ForwardPass:
        return self.model.forward(self.inputs, layers=self.owners)

    @cached_property
    def training_pass(self) -> ForwardPass:
        return self.model.forward(self.inputs, training=True, layers=self.owners)

    @cached_property
    def randomness(self) -> Finding | None:
        return self.model.find_randomness(self.inputs)

    @cached_property
    def cotangents(self) -> list[Array]:
        generator = np.random.default_rng(self.seed)
        return [generator.standard_normal(output.shape) for output in self.evaluation_pass.outputs]

    def step_cotangents(self, step: int) -> list[Array]:
        """Cotangents of a training step, seeded by its number."""
        generator = np.random.default_rng((self.seed, step))
        return [generator.standard_normal(output.shape) for output in self.evaluation_pass.outputs]

    def perturbed_gradients(self, training: bool, weights: Mapping[str, Array]) -> list[Gradients]:
        """Gradients at weights that are perturbed by a few units in the last place of float32.

        Args:
            weights: weights of the model; they are loaded again afterwards.
        """
        normalised = any(layer.kind == "batch_norm" for layer in self.model.remote.layers.values())
        units = NORMALISED_UNITS if normalised else PERTURBED_UNITS
        float32_weights = {name: array.astype(np.float32) for name, array in weights.items()}
        gradients = []
        for number in range(PERTURBED_RUNS):
            perturbed_weights = perturbed(float32_weights, self.seed + number, units)
            self.model.remote.load_weights(perturbed_weights)
            gradients.append(self.model.gradients(self.inputs, self.cotangents, training))
        self.model.remote.load_weights(dict(weights))
        return gradients

    def gradients(self, training: bool) -> Gradients:
        if training not in self._gradients:
            self._gradients[training] = self.model.gradients(self.inputs, self.cotangents, training)
        return self._gradients[training]

    @cached_property
    def _gradients(self) -> dict[bool, Gradients]:
        return {}
