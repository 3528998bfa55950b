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
        dtype: of everything that is computed and kept.

    Attributes:
        weights: as they are after the steps so far.
        state: by ``layer.parameter.slot``; empty before the first step and where the optimizer
            keeps none.
    """

    def __init__(
        self, optimizer: Optimizer, weights: Mapping[str, Array], dtype: str = "float64"
    ) -> None:
        self.optimizer = optimizer
        self.number = np.dtype(dtype).type
        self.weights = {name: array.astype(dtype) for name, array in weights.items()}
        self.state: dict[str, Array] = {}
        self._steps = 0

    def step(self, gradients: Mapping[str, Array], rate: float) -> None:
        """Take one step.

        Args:
            gradients: of every trained parameter.
            rate: the learning rate of this step.
        """
        number, self._steps = self.number, self._steps + 1
        scale = 1.0
        if clip := self.optimizer.clip_norm:
            norm = np.sqrt(sum(float(np.sum(gradients[name] ** 2)) for name in self.weights))
            scale = clip / max(norm, clip)
        decay = number(self.optimizer.weight_decay)
        for name, weight in self.weights.items():
            gradient = number(scale) * gradients[name].astype(number) + decay * weight
            self.weights[name] = weight - number(rate) * self._direction(name, gradient)

    def _direction(self, name: str, gradient: Array) -> Array:
        optimizer, number = self.optimizer, self.number
        velocity: Array
        if isinstance(optimizer, SGD):
            if not optimizer.momentum:
                return gradient
            momentum = number(optimizer.momentum)
            velocity = momentum * self._slot(name, "velocity", gradient) + gradient
            self.state[f"{name}.velocity"] = velocity
            return gradient + momentum * velocity if optimizer.nesterov else velocity
        one, first, second = number(1), number(optimizer.beta1), number(optimizer.beta2)
        m = first * self._slot(name, "m", gradient) + (one - first) * gradient
        v = second * self._slot(name, "v", gradient) + (one - second) * gradient**2
        self.state[f"{name}.m"], self.state[f"{name}.v"] = m, v
        steps = number(self._steps)
        mean, square = m / (one - first**steps), v / (one - second**steps)
        return np.asarray(mean / (np.sqrt(square) + number(optimizer.epsilon)))

    def _slot(self, name: str, slot: str, like: Array) -> Array:
        return self.state.get(f"{name}.{slot}", np.zeros_like(like))
