"""Steps of an optimizer in NumPy, as the workload defines it: the reference for the checks of updates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.proof.distance import PIECE, norm
from dlb.workload import SGD, Adadelta, Adagrad, Adam, Adamax, AdamW, Optimizer, RMSprop
from dlb.workload.optimizers import decays

__all__ = ["Updates"]

Array = npt.NDArray[Any]


class Updates:
    """Weights and optimizer state after steps with given gradients; see :mod:`dlb.workload.optimizers`.

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
        self,
        gradients: Mapping[str, Array],
        rate: float,
        norms: Mapping[str, float] | None = None,
    ) -> None:
        """Take one step.

        Args:
            gradients: gradients of every trained parameter, by ``layer.parameter``.
            rate: the learning rate of this step.
            norms: of the gradients, by name, which clipping goes by; computed if left out.
        """
        scalar, self._steps = self.scalar, self._steps + 1
        scales = self._scales(gradients, norms)
        limit = scalar(self.optimizer.clip_value)
        decoupled = isinstance(self.optimizer, AdamW)
        for name, weight in self.weights.items():
            flat, flat_gradient = weight.reshape(-1), gradients[name].reshape(-1)
            slots = [slot.reshape(-1) for slot in self._slots(name, weight)]
            scale = scales.get(name, 1.0)
            decay = scalar(self.optimizer.weight_decay if decays(self.optimizer, name) else 0.0)
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
                direction = self._direction(gradient, [slot[part] for slot in slots])
                if decay and decoupled:
                    direction = direction + decay * flat[part]
                flat[part] -= scalar(rate) * direction

    def _scales(
        self, gradients: Mapping[str, Array], norms: Mapping[str, float] | None
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
        keys = [f"{name}.{slot}" for slot in _slot_names(self.optimizer)]
        start = getattr(self.optimizer, "initial_accumulator", 0.0)
        for key in keys:
            if key not in self.state:
                self.state[key] = np.full(like.shape, start, like.dtype)
        return [self.state[key] for key in keys]

    def _direction(self, gradient: Array, slots: list[Array]) -> Array:
        """The direction of a step; also updates the optimizer's state."""
        optimizer = self.optimizer
        if isinstance(optimizer, SGD):
            return self._sgd(optimizer, gradient, slots)
        if isinstance(optimizer, RMSprop):
            return self._rmsprop(optimizer, gradient, slots)
        if isinstance(optimizer, Adagrad):
            (total,) = slots
            total += gradient**2
            return self._over_root(optimizer, gradient, total)
        if isinstance(optimizer, Adadelta):
            return self._adadelta(optimizer, gradient, slots)
        if isinstance(optimizer, Adamax):
            return self._adamax(optimizer, gradient, slots)
        return self._adam(optimizer, gradient, slots)

    def _sgd(self, optimizer: SGD, gradient: Array, slots: list[Array]) -> Array:
        if not slots:
            return gradient
        (velocity,), momentum = slots, self.scalar(optimizer.momentum)
        velocity *= momentum
        velocity += gradient
        return gradient + momentum * velocity if optimizer.nesterov else velocity

    def _adam(self, optimizer: Adam | AdamW, gradient: Array, slots: list[Array]) -> Array:
        unit, beta1, beta2 = map(self.scalar, (1, optimizer.beta1, optimizer.beta2))
        m, v, *largest = slots
        m *= beta1
        m += (unit - beta1) * gradient
        v *= beta2
        v += (unit - beta2) * gradient**2
        for most in largest:
            v = np.maximum(most, v, out=most)
        steps = self.scalar(self._steps)
        mean, square = m / (unit - beta1**steps), v / (unit - beta2**steps)
        return np.asarray(mean / (np.sqrt(square) + self.scalar(optimizer.epsilon)))

    def _adamax(self, optimizer: Adamax, gradient: Array, slots: list[Array]) -> Array:
        unit, beta1, beta2 = map(self.scalar, (1, optimizer.beta1, optimizer.beta2))
        (m, u), epsilon = slots, self.scalar(optimizer.epsilon)
        inside = epsilon if optimizer.epsilon_place == "inside" else self.scalar(0)
        m[...] = beta1 * m + (unit - beta1) * gradient
        u[...] = np.maximum(beta2 * u, np.abs(gradient) + inside)
        mean = m / (unit - beta1 ** self.scalar(self._steps))
        return np.asarray(mean / (u + (epsilon - inside)))

    def _rmsprop(self, optimizer: RMSprop, gradient: Array, slots: list[Array]) -> Array:
        rho, momentum = self.scalar(optimizer.rho), self.scalar(optimizer.momentum)
        v, *rest = slots
        v[...] = rho * v + (self.scalar(1) - rho) * gradient**2
        change = self._over_root(optimizer, gradient, v)
        for velocity in rest:
            velocity[...] = momentum * velocity + change
            return velocity
        return change

    def _adadelta(self, optimizer: Adadelta, gradient: Array, slots: list[Array]) -> Array:
        (v, u), rho = slots, self.scalar(optimizer.rho)
        unit, epsilon = self.scalar(1), self.scalar(optimizer.epsilon)
        v[...] = rho * v + (unit - rho) * gradient**2
        change = np.sqrt(u + epsilon) / np.sqrt(v + epsilon) * gradient
        u[...] = rho * u + (unit - rho) * change**2
        return np.asarray(change)

    def _over_root(self, optimizer: RMSprop | Adagrad, gradient: Array, squares: Array) -> Array:
        """A gradient over the root of what its squares came to."""
        epsilon = self.scalar(optimizer.epsilon)
        if optimizer.epsilon_place == "inside":
            return np.asarray(gradient / np.sqrt(squares + epsilon))
        return np.asarray(gradient / (np.sqrt(squares) + epsilon))


def _slot_names(optimizer: Optimizer) -> tuple[str, ...]:
    """What an optimizer keeps for each parameter, as its definition calls it."""
    if isinstance(optimizer, SGD):
        return ("velocity",) if optimizer.momentum else ()
    if isinstance(optimizer, RMSprop):
        return ("v", "velocity") if optimizer.momentum else ("v",)
    if isinstance(optimizer, Adagrad):
        return ("sum",)
    if isinstance(optimizer, Adadelta):
        return ("v", "u")
    if isinstance(optimizer, Adamax):
        return ("m", "u")
    return ("m", "v", "v_max") if optimizer.amsgrad else ("m", "v")
