"""Steps of an optimizer in NumPy, as the workload defines it: the reference for the checks of updates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb_graph.comparing.distance import PIECE, norm
from dlb_graph.optimizers import Optimizer

__all__ = ["Updates"]

Array = npt.NDArray[Any]


class Updates:
    """Weights and optimizer state after steps with given gradients; see :mod:`dlb_graph.optimizers`.

    Args:
        optimizer: the workload's optimizer.
        weights: trained parameters before the first step, by ``layer.parameter``.
        dtype: dtype of all computations and of the results.
        state: the optimizer's state before the first step, by ``layer.parameter.slot``; what it starts
            from if left out.
        steps: steps that were taken before.

    Attributes:
        weights: trained parameters after the steps so far.
        state: by ``layer.parameter.slot``; empty before the first step, or if the optimizer has none.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        weights: Mapping[str, Array],
        dtype: str = "float64",
        state: Mapping[str, Array] | None = None,
        steps: int = 0,
    ) -> None:
        self.optimizer = optimizer
        self.scalar = np.dtype(dtype).type
        self.weights = {name: np.array(array, dtype, order="C") for name, array in weights.items()}
        self.state = {
            name: np.array(array, dtype, order="C") for name, array in (state or {}).items()
        }
        self._steps = steps

    def step(
        self, gradients: Mapping[str, Array], rate: float, norms: Mapping[str, float] | None = None
    ) -> None:
        """Take one step.

        Args:
            gradients: gradients of every trained parameter, by ``layer.parameter``.
            rate: the learning rate of this step.
            norms: of the gradients, by name, which clipping goes by; computed if left out.
        """
        scalar, self._steps = self.scalar, self._steps + 1
        scales = self.scales(gradients, norms)
        limit = scalar(self.optimizer.clip_value)
        decoupled = self.optimizer.decouples_decay
        for name, weight in self.weights.items():
            flat, flat_gradient = weight.reshape(-1), gradients[name].reshape(-1)
            slots = [slot.reshape(-1) for slot in self._slots(name, weight)]
            scale = scales.get(name, 1.0)
            decay = scalar(self.optimizer.weight_decay if self.optimizer.decays(name) else 0.0)
            # In pieces: operations on a whole tensor take several times its memory.
            for start in range(0, flat.size, PIECE):
                part = slice(start, start + PIECE)
                gradient = flat_gradient[part].astype(scalar, copy=False)
                if scale != 1.0:
                    gradient = scalar(scale) * gradient
                if limit:
                    gradient = np.clip(gradient, -limit, limit)
                if decay and not decoupled:
                    gradient = gradient + decay * flat[part]
                direction = self.optimizer.direction(
                    gradient, [slot[part] for slot in slots], self._steps
                )
                if decay and decoupled:
                    direction = direction + decay * flat[part]
                flat[part] -= scalar(rate) * direction

    def scales(
        self, gradients: Mapping[str, Array], norms: Mapping[str, float] | None = None
    ) -> dict[str, float]:
        """What clipping to a norm multiplies each gradient by; empty where nothing is."""
        whole, own = self.optimizer.clip_norm, self.optimizer.clip_variable_norm
        if not whole and not own:
            return {}
        sizes = norms or {name: norm([gradients[name]]) for name in self.weights}
        if own:
            return {name: own / max(sizes[name], own) for name in self.weights}
        together = math.hypot(*(sizes[name] for name in self.weights))
        return dict.fromkeys(self.weights, whole / max(together, whole))

    def _slots(self, name: str, like: Array) -> list[Array]:
        """The state of a parameter; before the first step, what it starts from."""
        keys = [f"{name}.{slot}" for slot in self.optimizer.slots]
        for key in keys:
            if key not in self.state:
                self.state[key] = np.full(like.shape, self.optimizer.slot_start, like.dtype)
        return [self.state[key] for key in keys]
