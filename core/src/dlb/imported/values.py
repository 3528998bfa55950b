"""Where each number of a file's value lies in the value of the layer that it is of.

Exporters arrange numbers as they like: channels last, time steps first, maps flattened in either
order. None of that has to be recognised: operators that only arrange are applied to positions
instead of numbers, and what comes of it says how a weight has to be turned.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.workload.layers import Reshape, Transpose

__all__ = ["Held", "arranged", "arranging", "axes_of", "features_of", "per_channel", "positions"]

Array = npt.NDArray[Any]
Shape = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Held:
    """A value of the file.

    Attributes:
        layer: whose numbers it has: a layer's, or the input's.
        places: int64 in the shape of the file's value: the position of each number in the layer's
            canonical value [N, ...]. None where both are arranged the same.
    """

    layer: str
    places: Array | None = None


def positions(shape: Shape) -> Array:
    """The position of every number of a value, in its shape."""
    return np.arange(math.prod(shape)).reshape(shape)


def arranged(layer: str, places: Array, shape: Shape) -> Held:
    """A value of ``places``; ``shape`` is of the layer's canonical value [N, ...]."""
    if places.shape == shape and np.array_equal(places, positions(shape)):
        return Held(layer)
    return Held(layer, places)


def axes_of(places: Array, shape: Shape) -> tuple[int, ...] | None:
    """For each axis of a value the axis of the canonical one that it is, or None if it is none."""
    if places.ndim != len(shape):
        return None
    every = positions(shape)
    for axes in permutations(range(len(shape))):
        if tuple(shape[axis] for axis in axes) == places.shape and np.array_equal(
            every.transpose(axes), places
        ):
            return axes
    return None


def arranging(places: Array, shape: Shape) -> list[Reshape | Transpose] | None:
    """The layers that arrange a value [N, ...] as a file does: a reshape, a transpose, a reshape.

    Args:
        places: of the file's value, [N, ...] too.
        shape: of the layer's value.

    Returns:
        those that are needed; None where none can, as where samples are mixed.
    """
    batch, size = shape[0], math.prod(shape[1:])
    if places.ndim < 2 or places.shape[0] != batch or places.size != batch * size:
        return None
    own = places.reshape(batch, size) - size * np.arange(batch)[:, None]
    if not (own == own[:1]).all() or not np.array_equal(np.sort(own[0]), np.arange(size)):
        return None
    loops = _loops(own[0])
    if loops is None:
        return None
    # The axes as they lie in the layer's value: the longest step is the first axis.
    outer = sorted(range(len(loops)), key=lambda each: -loops[each][1])
    before = tuple(loops[each][0] for each in outer)
    axes = tuple(outer.index(each) + 1 for each in range(len(loops)))
    after = tuple(count for count, _ in loops)
    final = places.shape[1:]
    layers: list[Reshape | Transpose] = [Reshape(shape=final)] if final != shape[1:] else []
    if axes != tuple(sorted(axes)):
        layers = [Reshape(shape=before)] if before != shape[1:] else []
        layers += [Transpose(axes=axes)]
        layers += [Reshape(shape=final)] if final != after else []
    reshapes = [layer.shape for layer in layers if isinstance(layer, Reshape)]
    return layers if all(len(each) <= 3 for each in reshapes) else None


def _loops(order: Array) -> list[tuple[int, int]] | None:
    """Positions as those of nested loops: the count and the step of each, the outermost first."""
    found: list[tuple[int, int]] = []
    while order.size > 1:
        step = int(order[1] - order[0])
        breaks = np.flatnonzero(np.diff(order) != step)
        count = int(breaks[0]) + 1 if breaks.size else order.size
        rows = order.reshape(-1, count) if order.size % count == 0 else None
        if step < 1 or rows is None or not (np.diff(rows, axis=1) == step).all():
            return None
        found.insert(0, (count, step))
        order = rows[:, 0]
    return found or [(1, 1)]


def features_of(places: Array, shape: Shape, flat: bool) -> tuple[Array, Array] | None:
    """A value's last axis as features of rows.

    Args:
        flat: whether a row is a whole sample, whatever axes that has.

    Returns:
        of the canonical value, the row that each row is, and the feature that each feature is, the
        same in all rows; None where numbers are not arranged so.
    """
    features = math.prod(shape[1:]) if flat else shape[-1]
    if not places.ndim or places.shape[-1] != features:
        return None
    rows = places.reshape(-1, features)
    which, order = rows[:, 0] // features, rows[0] % features
    if not np.array_equal(which[:, None] * features + order, rows):
        return None
    return which, order


def per_channel(constant: Array, places: Array, shape: Shape) -> Array | None:
    """A constant that is combined with a value, as one number for each channel of the layer.

    Args:
        constant: broadcast to the value's shape.
        places, shape: as of :class:`Held` and its layer.

    Returns:
        [C]: the second axis of a map or of features, the last of a sequence; None where the
        constant differs within a channel.
    """
    if len(shape) not in (2, 3, 4):
        return None
    whole = np.empty(math.prod(shape), np.float64)
    whole[places.ravel()] = constant.ravel()
    axis = 2 if len(shape) == 3 else 1
    channels: Array = np.moveaxis(whole.reshape(shape), axis, 0).reshape(shape[axis], -1)
    if not (channels == channels[:, :1]).all():
        return None
    first: Array = channels[:, 0]
    return first
