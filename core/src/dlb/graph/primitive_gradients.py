"""Gradients of functions of two values, and along axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.graph.interpolation import along
from dlb.workload.primitives import Binary, GatherElements, Reduce, Softmax, Where
from dlb.workload.resizing import Taps

__all__ = [
    "binary_gradients",
    "gather_elements_gradients",
    "reduce_gradient",
    "resize_gradient",
    "shared_gradient",
    "softmax_gradient",
    "where_gradients",
]

Array = npt.NDArray[Any]


def binary_gradients(layer: Binary, first: Array, second: Array, cotangent: Array) -> Any:
    """The gradients of both inputs."""
    if layer.function in ("add", "sub"):
        slopes = cotangent, cotangent if layer.function == "add" else -cotangent
    elif layer.function == "mul":
        slopes = cotangent * second, cotangent * first
    elif layer.function in ("max", "min"):
        order = np.sign(first - second) * (1 if layer.function == "max" else -1)
        slopes = cotangent * (0.5 + 0.5 * order), cotangent * (0.5 - 0.5 * order)
    else:
        with np.errstate(all="ignore"):
            quotient = cotangent / second
            slopes = quotient, -quotient * (first / second)
    return tuple(_summed(slope, value.shape) for slope, value in zip(slopes, (first, second)))


def where_gradients(layer: Where, inputs: Sequence[Array], cotangent: Array) -> Any:
    """The gradients of the inputs; that of the condition is 0."""
    condition, *values = inputs
    zero = cotangent.dtype.type(0)
    slopes = []
    if layer.first is None:
        slopes.append(np.where(condition, cotangent, zero))
    if layer.second is None:
        slopes.append(np.where(condition, zero, cotangent))
    both = (_summed(slope, value.shape) for slope, value in zip(slopes, values))
    return np.zeros_like(condition), *both


def gather_elements_gradients(
    layer: GatherElements, inputs: Sequence[Array], cotangent: Array
) -> Any:
    """The gradients of the value, whose numbers may be gathered several times, and of the indices: 0."""
    value, indices = inputs
    axis = layer.axis
    sizes = list(map(max, value.shape, cotangent.shape))
    sizes[axis] = value.shape[axis]
    gradient = np.zeros(sizes, cotangent.dtype)
    within = np.clip(indices, 0, sizes[axis] - 1).astype(np.int64)
    places: list[Array] = list(np.indices(cotangent.shape, sparse=True))
    places[axis] = np.broadcast_to(within, cotangent.shape)
    np.add.at(gradient, tuple(places), cotangent)
    return _summed(gradient, value.shape), np.zeros_like(indices)


def _summed(gradient: Array, shape: tuple[int, ...]) -> Array:
    """The gradient of a value that was repeated along axes."""
    axes = tuple(k for k, n in enumerate(shape) if n == 1 and gradient.shape[k] != 1)
    summed: Array = gradient.sum(axis=axes, keepdims=True) if axes else gradient
    return summed


def shared_gradient(gradient: Array, sizes: tuple[int, ...]) -> Array:
    """The gradient of numbers of these sizes that every sample shares."""
    summed: Array = _summed(gradient.sum(axis=0), sizes)
    return summed


def softmax_gradient(layer: Softmax, x: Array, cotangent: Array) -> Array:
    """The gradient of the input."""
    shares = np.exp(x - x.max(axis=layer.axis, keepdims=True))
    shares = shares / shares.sum(axis=layer.axis, keepdims=True)
    if layer.log:
        logs: Array = cotangent - shares * cotangent.sum(axis=layer.axis, keepdims=True)
        return logs
    mean = (cotangent * shares).sum(axis=layer.axis, keepdims=True)
    result: Array = shares * (cotangent - mean)
    return result


def reduce_gradient(layer: Reduce, x: Array, cotangent: Array) -> Array:
    """The gradient of the input; equal shares for all of the largest or smallest numbers."""
    if not layer.keepdims:
        cotangent = np.expand_dims(cotangent, layer.axes)
    if layer.function in ("max", "min"):
        reached = getattr(x, layer.function)(axis=layer.axes, keepdims=True)
        chosen = (x == reached).astype(x.dtype)
        shares: Array = cotangent * chosen / chosen.sum(axis=layer.axes, keepdims=True)
        return shares
    count = np.prod([x.shape[axis] for axis in layer.axes]) if layer.function == "mean" else 1
    return np.broadcast_to(cotangent / x.dtype.type(count), x.shape)


def resize_gradient(taps: Sequence[tuple[int, Taps]], cotangent: Array) -> Array:
    """The gradient of the input: what was spread over an axis is collected, the last axis first.

    Args:
        taps: of each axis that was resized, in order.
    """
    for axis, of in reversed(taps):
        cotangent = along(cotangent, axis, of.matrix.T)
    return cotangent
