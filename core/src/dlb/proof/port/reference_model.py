"""What the reference of a port computes, each once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.contract import Gradients, Trace
from dlb.proof.findings import Finding
from dlb.proof.port.model import Model

__all__ = ["ReferenceModel"]

Array = npt.NDArray[Any]


class ReferenceModel:
    """What the reference computes, each once."""

    def __init__(
        self,
        model: Model,
        inputs: Array,
        seed: int,
        owners: Sequence[str],
        report: Callable[[str], None],
    ) -> None:
        self.model, self.inputs, self.seed, self.owners = model, inputs, seed, owners
        report(f"{model.name}: computing the reference")

    @cached_property
    def evaluated(self) -> Trace:
        return self.model.forward(self.inputs, layers=self.owners)

    @cached_property
    def trained(self) -> Trace:
        return self.model.forward(self.inputs, training=True, layers=self.owners)

    @cached_property
    def drawing(self) -> Finding | None:
        return self.model.drawing(self.inputs)

    @cached_property
    def cotangents(self) -> list[Array]:
        generator = np.random.default_rng(self.seed)
        return [generator.standard_normal(one.shape) for one in self.evaluated.outputs]

    def gradients(self, training: bool) -> Gradients:
        if training not in self._gradients:
            self._gradients[training] = self.model.gradients(self.inputs, self.cotangents, training)
        return self._gradients[training]

    @cached_property
    def _gradients(self) -> dict[bool, Gradients]:
        return {}
