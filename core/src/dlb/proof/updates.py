"""One step of an optimizer as the workload defines it, in NumPy: what an update must have been."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.workload import SGD, Optimizer

__all__ = ["Updates"]

Array = npt.NDArray[Any]


class Updates:
    """Weights and optimizer state that follow from gradients; see :mod:`dlb.workload.training`.

    Args:
        optimizer: as described.
        weights: of the trained parameters before the first step, by ``layer.parameter``.

    Attributes:
        weights: float64, as they are after the steps so far.
        state: float64, by ``layer.parameter.slot``; empty before the first step and where the
            optimizer keeps none.
    """

    def __init__(self, optimizer: Optimizer, weights: Mapping[str, Array]) -> None:
        self.optimizer = optimizer
        self.weights = {name: array.astype(np.float64) for name, array in weights.items()}
        self.state: dict[str, Array] = {}
        self._steps = 0

    def step(self, gradients: Mapping[str, Array], rate: float) -> None:
        """Take one step.

        Args:
            gradients: float64, of every trained parameter.
            rate: the learning rate of this step.
        """
        self._steps += 1
        scale = 1.0
        if clip := self.optimizer.clip_norm:
            norm = np.sqrt(sum(float(np.sum(gradients[name] ** 2)) for name in self.weights))
            scale = clip / max(norm, clip)
        for name, weight in self.weights.items():
            gradient = scale * gradients[name] + self.optimizer.weight_decay * weight
            self.weights[name] = weight - rate * self._direction(name, gradient)

    def _direction(self, name: str, gradient: Array) -> Array:
        optimizer = self.optimizer
        if isinstance(optimizer, SGD):
            if not optimizer.momentum:
                return gradient
            velocity = optimizer.momentum * self._slot(name, "velocity", gradient) + gradient
            self.state[f"{name}.velocity"] = velocity
            return gradient + optimizer.momentum * velocity if optimizer.nesterov else velocity
        first, second = optimizer.beta1, optimizer.beta2
        m = first * self._slot(name, "m", gradient) + (1 - first) * gradient
        v = second * self._slot(name, "v", gradient) + (1 - second) * gradient**2
        self.state[f"{name}.m"], self.state[f"{name}.v"] = m, v
        mean, square = m / (1 - first**self._steps), v / (1 - second**self._steps)
        return np.asarray(mean / (np.sqrt(square) + optimizer.epsilon))

    def _slot(self, name: str, slot: str, like: Array) -> Array:
        return self.state.get(f"{name}.{slot}", np.zeros_like(like))
