"""The two passes of each layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Arrays = dict[str, Array]


@dataclass(frozen=True)
class Passes:
    """The two passes of a layer type.

    Attributes:
        forward: (parameters, input) to output.
        backward: (parameters, input, output, gradient of the output) to the input's gradient and
            those of the parameters, by parameter.
    """

    forward: Callable[[Arrays, Array], Array]
    backward: Callable[[Arrays, Array, Array, Array], tuple[Array, Arrays]]


def linear(own: Arrays, x: Array) -> Array:
    return x @ own["weight"].T + own["bias"] if "bias" in own else x @ own["weight"].T


def linear_back(own: Arrays, x: Array, y: Array, dy: Array) -> tuple[Array, Arrays]:
    # Over sequences every time step is a row.
    rows, above = x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1])
    found = {"weight": above.T @ rows, "bias": above.sum(axis=0)}
    return dy @ own["weight"], {name: found[name] for name in own}


LINEAR = Passes(linear, linear_back)
RELU = Passes(
    lambda own, x: np.maximum(x, 0),
    lambda own, x, y, dy: (dy * (x > 0), {}),
)
TANH = Passes(
    lambda own, x: np.tanh(x),
    lambda own, x, y, dy: (dy * (1 - y * y), {}),
)
# Its factors are drawn, or taken from its mask, before each pass.
DROPOUT = Passes(
    lambda own, x: x * own["factors"],
    lambda own, x, y, dy: (dy * own["factors"], {}),
)
FLATTEN = Passes(
    lambda own, x: x.reshape(len(x), -1),
    lambda own, x, y, dy: (dy.reshape(x.shape), {}),
)
