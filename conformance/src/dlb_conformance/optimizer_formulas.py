"""The optimizers as :mod:`dlb.workload.training` defines them, in NumPy and float64."""

from __future__ import annotations

import numpy as np

from dlb import workload as W

from .subject import Arrays


class Formula:
    """An optimizer's weights and state, moved by gradients.

    Attributes:
        weights: of the trained parameters, by name.
        state: by ``layer.parameter.slot``; empty before the first step.
    """

    def __init__(self, optimizer: W.Optimizer, weights: Arrays) -> None:
        self.optimizer = optimizer
        self.weights = {name: np.asarray(value, np.float64) for name, value in weights.items()}
        self.state: dict[str, np.ndarray] = {}
        self._steps = 0

    def step(self, gradients: Arrays, rate: float) -> None:
        """One step at a learning rate."""
        self._steps += 1
        held = [np.asarray(gradients[name], np.float64).ravel() for name in self.weights]
        norm = float(np.linalg.norm(np.concatenate(held)))
        limit = self.optimizer.clip_norm or np.inf
        scale = 1.0 if norm <= limit else limit / norm
        for name, weight in self.weights.items():
            g = scale * gradients[name] + self.optimizer.weight_decay * weight
            move = self._adam if isinstance(self.optimizer, W.Adam) else self._sgd
            self.weights[name] = weight - rate * move(name, g)

    def _held(self, name: str, like: np.ndarray) -> np.ndarray:
        return self.state.get(name, np.zeros_like(like))

    def _sgd(self, name: str, g: np.ndarray) -> np.ndarray:
        by = self.optimizer
        assert isinstance(by, W.SGD)
        if not by.momentum:
            return g
        v: np.ndarray = by.momentum * self._held(f"{name}.velocity", g) + g
        self.state[f"{name}.velocity"] = v
        return np.asarray(g + by.momentum * v) if by.nesterov else v

    def _adam(self, name: str, g: np.ndarray) -> np.ndarray:
        by = self.optimizer
        assert isinstance(by, W.Adam)
        m = by.beta1 * self._held(f"{name}.m", g) + (1 - by.beta1) * g
        v = by.beta2 * self._held(f"{name}.v", g) + (1 - by.beta2) * g * g
        self.state[f"{name}.m"], self.state[f"{name}.v"] = m, v
        corrected = m / (1 - by.beta1**self._steps), v / (1 - by.beta2**self._steps)
        return np.asarray(corrected[0] / (np.sqrt(corrected[1]) + by.epsilon))
