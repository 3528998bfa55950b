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

__all__ = ["Held", "arranged", "axes_of", "features_of", "per_channel", "positions"]

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
