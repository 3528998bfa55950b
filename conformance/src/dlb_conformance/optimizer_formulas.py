"""The optimizers as :mod:`dlb_graph.optimizers` defines them, in NumPy and float64."""

from __future__ import annotations

import numpy as np

from dlb_graph import workload as W

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
            g, decay = scale * gradients[name], self.optimizer.weight_decay * weight
            if self.optimizer.weight_decay_on == "weights" and name[-6:] != "weight":
                decay = np.zeros_like(weight)
            if own := self.optimizer.clip_variable_norm:
                g = g * min(1.0, own / max(float(np.linalg.norm(g.ravel())), 1e-300))
            if by_value := self.optimizer.clip_value:
                g = np.minimum(np.maximum(g, -by_value), by_value)
            if isinstance(self.optimizer, W.AdamW):
                self.weights[name] = weight - rate * (self._adam(name, g) + decay)
            else:
                self.weights[name] = weight - rate * self._move(name, g + decay)

    def _move(self, name: str, g: np.ndarray) -> np.ndarray:
        by = self.optimizer
        if isinstance(by, W.SGD):
            return self._sgd(name, g)
        if isinstance(by, W.Adam):
            return self._adam(name, g)
        if isinstance(by, W.Adamax):
            m = by.beta1 * self._held(f"{name}.m", g) + (1 - by.beta1) * g
            size = abs(g) + (by.epsilon if by.epsilon_place == "inside" else 0.0)
            u = np.maximum(by.beta2 * self._held(f"{name}.u", g), size)
            self.state[f"{name}.m"], self.state[f"{name}.u"] = m, u
            over = u + (by.epsilon if by.epsilon_place == "outside" else 0.0)
            return np.asarray(m / (1 - by.beta1**self._steps) / over)
        if isinstance(by, W.Adadelta):
            v = by.rho * self._held(f"{name}.v", g) + (1 - by.rho) * g * g
            before = self._held(f"{name}.u", g)
            change = np.sqrt(before + by.epsilon) / np.sqrt(v + by.epsilon) * g
            self.state[f"{name}.v"] = v
            self.state[f"{name}.u"] = by.rho * before + (1 - by.rho) * change * change
            return np.asarray(change)
        assert isinstance(by, (W.Adagrad, W.RMSprop))
        if isinstance(by, W.Adagrad):
            start = np.full_like(g, by.initial_accumulator)
            squares = self.state[f"{name}.sum"] = self.state.get(f"{name}.sum", start) + g * g
        else:
            squares = by.rho * self._held(f"{name}.v", g) + (1 - by.rho) * g * g
            self.state[f"{name}.v"] = squares
        root = np.sqrt(squares + by.epsilon)
        if by.epsilon_place == "outside":
            root = np.sqrt(squares) + by.epsilon
        if isinstance(by, W.Adagrad) or not by.momentum:
            return np.asarray(g / root)
        velocity = by.momentum * self._held(f"{name}.velocity", g) + g / root
        self.state[f"{name}.velocity"] = velocity
        return np.asarray(velocity)

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
        assert isinstance(by, (W.Adam, W.AdamW))
        m = by.beta1 * self._held(f"{name}.m", g) + (1 - by.beta1) * g
        v = by.beta2 * self._held(f"{name}.v", g) + (1 - by.beta2) * g * g
        self.state[f"{name}.m"], self.state[f"{name}.v"] = m, v
        if by.amsgrad:
            v = self.state[f"{name}.v_max"] = np.maximum(self._held(f"{name}.v_max", g), v)
        corrected = m / (1 - by.beta1**self._steps), v / (1 - by.beta2**self._steps)
        return np.asarray(corrected[0] / (np.sqrt(corrected[1]) + by.epsilon))
