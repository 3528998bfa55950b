"""A small framework of NumPy: what a user of the example adapter writes models in."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
_settings = {"dtype": "float32"}
_generator = np.random.default_rng()


def set_dtype(dtype: str) -> None:
    """The type of parameters that are made from here on."""
    _settings["dtype"] = dtype


class Layer:
    """A layer without parameters, which gives what it is given."""

    trained: tuple[str, ...] = ()
    states: tuple[str, ...] = ()

    def forward(self, x: Array, training: bool) -> Array:
        self.x = x
        return x

    def backward(self, dy: Array) -> tuple[Array, dict[str, Array]]:
        """The gradient of the input, and of each trained parameter."""
        return dy, {}


class Linear(Layer):
    """``x @ weight.T + bias``; the number of inputs may be left to the first input."""

    trained = ("weight", "bias")

    def __init__(self, inputs: int | None, outputs: int, dtype: str = "", seed: int = 0) -> None:
        self.inputs, self.outputs, self.seed = inputs, outputs, seed
        self.dtype = dtype or _settings["dtype"]
        self.weight: Array | None = None
        self.bias = np.linspace(-1, 1, outputs).astype(self.dtype)
        if inputs is not None:
            self.build(inputs)

    def build(self, inputs: int) -> None:
        generator = np.random.default_rng(self.seed)
        self.weight = generator.standard_normal((self.outputs, inputs)).astype(self.dtype)

    def forward(self, x: Array, training: bool) -> Array:
        if self.weight is None:
            self.build(x.shape[-1])
        self.x = x
        return x @ self.matrix().T + self.bias

    def matrix(self) -> Array:
        assert self.weight is not None
        return self.weight

    def backward(self, dy: Array) -> tuple[Array, dict[str, Array]]:
        return dy @ self.matrix(), {"weight": dy.T @ self.x, "bias": dy.sum(axis=0)}


class Dense(Linear):
    """The same with a weight that lies [inputs, outputs]."""

    def build(self, inputs: int) -> None:
        super().build(inputs)
        assert self.weight is not None
        self.weight = np.ascontiguousarray(self.weight.T)

    def matrix(self) -> Array:
        assert self.weight is not None
        return self.weight.T

    def backward(self, dy: Array) -> tuple[Array, dict[str, Array]]:
        dx, found = super().backward(dy)
        return dx, {**found, "weight": found["weight"].T}


class Mix(Layer):
    """``x @ table``, by a class that no adapter knows."""

    trained = ("table",)

    def __init__(self, inputs: int, outputs: int, seed: int = 0) -> None:
        generator = np.random.default_rng(seed)
        self.table = generator.standard_normal((inputs, outputs)).astype(_settings["dtype"])

    def forward(self, x: Array, training: bool) -> Array:
        self.x = x
        return x @ self.table

    def backward(self, dy: Array) -> tuple[Array, dict[str, Array]]:
        return dy @ self.table.T, {"table": self.x.T @ dy}


class Table(Layer):
    """``x + table`` with a table that no step moves."""

    states = ("table",)

    def __init__(self, table: Any) -> None:
        self.table = np.asarray(table, _settings["dtype"])

    def forward(self, x: Array, training: bool) -> Array:
        return x + self.table


class ReLU(Layer):
    def __init__(self, slope: float = 0.0) -> None:
        self.slope = slope

    def forward(self, x: Array, training: bool) -> Array:
        self.x = x
        return np.where(x > 0, x, self.slope * x)

    def backward(self, dy: Array) -> tuple[Array, dict[str, Array]]:
        return np.where(self.x > 0, dy, self.slope * dy), {}


class Tanh(Layer):
    def forward(self, x: Array, training: bool) -> Array:
        self.y = np.tanh(x)
        return self.y

    def backward(self, dy: Array) -> tuple[Array, dict[str, Array]]:
        return dy * (1 - self.y**2), {}


class Dropout(Layer):
    def __init__(self, rate: float) -> None:
        self.rate = rate

    def forward(self, x: Array, training: bool) -> Array:
        self.mask = np.ones(x.shape)
        if training:
            self.mask = (_generator.random(x.shape) >= self.rate) / (1 - self.rate)
        return x * self.mask

    def backward(self, dy: Array) -> tuple[Array, dict[str, Array]]:
        return dy * self.mask, {}


class Detached(Layer):
    """Gives what it is given, and lets no gradient through."""

    def backward(self, dy: Array) -> tuple[Array, dict[str, Array]]:
        return np.zeros_like(dy), {}


class Net:
    """Layers by name, one after another, on samples of a shape that may be told."""

    def __init__(self, shape: tuple[int, ...] | None = None, **layers: Layer) -> None:
        self.shape, self.layers = shape, layers
