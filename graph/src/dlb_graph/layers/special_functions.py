"""Functions that several layers, losses and operators are made of."""

from __future__ import annotations

import math
from typing import Any

from dlb_graph.layers.numbers import Array, np

__all__ = ["erf", "gelu", "normalised", "sigmoid", "softplus"]


def erf(x: Array) -> Array:
    """The error function in float64."""
    # It takes a fifth of a second to import, and most networks have none.
    from scipy import special

    return np.asarray(special.erf(np.asarray(x, np.float64)))


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)) without overflow at either end."""
    small = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1.0, small) / (1.0 + small), x.dtype)


def softplus(x: Array) -> Any:
    """log(1 + exp(x)) without overflow."""
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def gelu(x: Array, approximate: str) -> Any:
    """x times the normal distribution function of x, exact or by ``tanh`` (see GELU)."""
    if approximate == "tanh":
        curve: Any = np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))
    else:
        curve = erf(x / math.sqrt(2))
    return 0.5 * x * (1 + curve)


def normalised(x: Array, groups: int, epsilon: float) -> Array:
    """x [N, C, ...], each group of channels less its mean over the root of its biased variance plus epsilon."""
    parts = x.reshape(len(x), groups, -1)
    centred = parts - parts.mean(axis=2, keepdims=True)
    deviation = np.sqrt((centred * centred).mean(axis=2, keepdims=True) + epsilon)
    return np.asarray(centred / deviation).reshape(x.shape)
