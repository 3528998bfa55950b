"""Steps of an optimizer in NumPy, as the workload defines it: the reference for the checks of updates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.proof.distance import PIECE, norm
from dlb.workload import SGD, Optimizer

__all__ = ["Updates"]

Array = npt.NDArray[Any]


class Updates:
    """Weights and optimizer state after steps with given gradients; see :mod:`dlb.workload.training`.

    Args:
        optimizer: the workload's optimizer.
        weights: trained parameters before the first step, by ``layer.parameter``.
        dtype: dtype of all computations and of the results.
        state: the optimizer's state before the first step, by ``layer.parameter.slot``; zeros if left
            out.
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

    def step(self, gradients: Mapping[str, Array], rate: float, whole: float | None = None) -> None:
        """Take one step.

        Args:
            gradients: gradients of every trained parameter, by ``layer.parameter``.
            rate: the learning rate of this step.
            whole: the norm of all gradients, which clipping goes by; computed if left out.
        """
        scalar, self._steps = self.scalar, self._steps + 1
        scale = 1.0
        if clip := self.optimizer.clip_norm:
            size = norm(gradients[name] for name in self.weights) if whole is None else whole
            scale = clip / max(size, clip)
        decay = self.optimizer.weight_decay
        for name, weight in self.weights.items():
            flat, flat_gradient = weight.reshape(-1), gradients[name].reshape(-1)
            slots = [slot.reshape(-1) for slot in self._slots(name, weight)]
            # In pieces: operations on a whole tensor take several times its memory.
            for start in range(0, flat.size, PIECE):
                part = slice(start, start + PIECE)
                gradient = flat_gradient[part].astype(scalar, copy=False)
                if scale != 1.0:
                    gradient = scalar(scale) * gradient
                if decay:
                    gradient = gradient + scalar(decay) * flat[part]
                direction = self._direction(gradient, [slot[part] for slot in slots])
                flat[part] -= scalar(rate) * direction

    def _slots(self, name: str, like: Array) -> list[Array]:
        """The state of a parameter; zeros before the first step."""
        names: tuple[str, ...] = ("m", "v")
        if isinstance(self.optimizer, SGD):
            names = ("velocity",) if self.optimizer.momentum else ()
        keys = [f"{name}.{slot}" for slot in names]
        for key in keys:
            if key not in self.state:
                self.state[key] = np.zeros(like.shape, like.dtype)
        return [self.state[key] for key in keys]

    def _direction(self, gradient: Array, slots: list[Array]) -> Array:
        """The direction of a step; also updates the optimizer's state."""
        optimizer, scalar = self.optimizer, self.scalar
        if isinstance(optimizer, SGD):
            if not slots:
                return gradient
            (velocity,), momentum = slots, scalar(optimizer.momentum)
            velocity *= momentum
            velocity += gradient
            return gradient + momentum * velocity if optimizer.nesterov else velocity
        unit, beta1, beta2 = scalar(1), scalar(optimizer.beta1), scalar(optimizer.beta2)
        m, v = slots
        m *= beta1
        m += (unit - beta1) * gradient
        v *= beta2
        v += (unit - beta2) * gradient**2
        steps = scalar(self._steps)
        mean, square = m / (unit - beta1**steps), v / (unit - beta2**steps)
        return np.asarray(mean / (np.sqrt(square) + scalar(optimizer.epsilon)))
