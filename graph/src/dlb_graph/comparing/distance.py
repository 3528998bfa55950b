"""Distances between tensors. A NaN or an infinity is a difference, never an agreement."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from dlb_graph.comparing.causes import Figure
from dlb_graph.layers.numbers import Array

__all__ = [
    "factor",
    "figure",
    "figures",
    "inner_product",
    "norm",
    "passes",
    "pieces",
    "relative_l2",
    "same_bits",
]

#: Numbers of a tensor that are processed at a time: a few arrays of these fit a processor's cache.
PIECE = 1 << 16
#: By type: integers of its size, the bits of its exponent, and how many bits its fraction has.
_EXPONENT_BITS = {
    np.dtype(np.float32): (np.int32, np.int32(0x7F800000), 23),
    np.dtype(np.float64): (np.int64, np.int64(0x7FF0000000000000), 52),
}


def relative_l2(
    actual: Array, expected: Array, floor: float = 0.0, start: Array | None = None
) -> float:
    """``||actual - expected|| / max(||expected||, floor)`` in float64.

    Infinite if shapes differ, if either tensor holds a NaN or an infinity, or if ``expected`` is all zeros
    and ``actual`` is not.

    Args:
        actual, expected: tensors of any shape.
        floor: a norm below which ``expected`` is only rounding. Example: a bias before a batch
            normalisation, whose gradient is zero.
        start: value of both tensors before a step; the distance between the changes is then computed.
    """
    return _compare(actual, expected, floor, start)[0]


def figure(
    tensor: str, actual: Array, expected: Array, floor: float = 0.0, start: Array | None = None
) -> Figure:
    """The distance of one tensor; arguments as for :func:`relative_l2`."""
    # The last place is that of a real type; integers are compared in float64.
    dtype = actual.dtype if actual.dtype.kind == "f" else np.dtype(np.float64)
    relative, largest, ulp = _compare(actual, expected, floor, start, dtype)
    if not math.isfinite(relative):
        return Figure(tensor=tensor, relative_l2=None, largest=None)
    return Figure(
        tensor=tensor,
        relative_l2=relative,
        largest=largest,
        ulp=ulp if math.isfinite(ulp) else None,
    )


def factor(actual: Array, expected: Array, tolerance: float) -> float | None:
    """The number f for which ``actual`` is f times ``expected``, within a distance; None if there is none."""
    if actual.shape != expected.shape:
        return None
    squares = sum(inner_product(piece, piece) for (piece,) in pieces(expected))
    if not squares or not math.isfinite(squares):
        return None
    times = sum(inner_product(*pair) for pair in pieces(actual, expected)) / squares
    apart = relative_l2(actual, times * expected, floor=math.sqrt(squares))
    return times if apart <= tolerance else None


def _compare(
    actual: Array,
    expected: Array,
    floor: float,
    start: Array | None,
    dtype: np.dtype[Any] | None = None,
) -> tuple[float, float, float]:
    """The relative distance, the largest difference, and that in units in the last place of ``dtype``.

    Without ``dtype`` only the distance is computed.
    """
    if actual.shape != expected.shape:
        return math.inf, math.inf, math.inf
    squared_distance = squared_norm = largest = ulp = 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for actual_piece, expected_piece in _change_pieces(actual, expected, start):
            difference = actual_piece - expected_piece
            squares = inner_product(difference, difference)
            # A number that is not finite makes the difference so. Squares of large numbers overflow.
            if not math.isfinite(squares) and not np.isfinite(difference).all():
                return math.inf, math.inf, math.inf
            squared_distance += squares
            squared_norm += inner_product(expected_piece, expected_piece)
            if dtype is not None and (squares or difference.any()):
                np.abs(difference, out=difference)
                largest = max(largest, float(difference.max()))
                places, share = _last_places(expected_piece, dtype)
                difference /= places
                ulp = max(ulp, float(difference.max()) / share)
    scale = max(math.sqrt(squared_norm), floor)
    if scale == 0.0:
        return (0.0 if squared_distance == 0.0 else math.inf), largest, ulp
    return math.sqrt(squared_distance) / scale, largest, ulp


def _last_places(numbers: Array, dtype: np.dtype[Any]) -> tuple[Array, float]:
    """The last place of each number in a type, at least that of its smallest normal number.

    The last place of a subnormal number says nothing about a relative error.

    Returns:
        float64, as many as there are numbers, and what each is to be multiplied by.
    """
    least, rounded = np.finfo(dtype).tiny, numbers.astype(dtype, copy=False)
    if dtype not in _EXPONENT_BITS:
        return np.spacing(np.maximum(np.abs(rounded), least)), 1.0
    # numpy.spacing takes several times longer. The bits of the exponent leave the sign out.
    integers, exponent, places = _EXPONENT_BITS[dtype]
    powers = (rounded.view(integers) & exponent).view(dtype)
    return np.maximum(powers, least, out=powers).astype(np.float64, copy=False), 2.0**-places


def norm(arrays: Iterable[Array]) -> float:
    """The L2 norm of all numbers of several tensors together, in float64."""
    return math.sqrt(
        sum(inner_product(piece, piece) for array in arrays for (piece,) in pieces(array))
    )


def inner_product(first: Array, second: Array) -> float:
    """Of two pieces; not by BLAS, whose threads take many times longer to meet than to add so few numbers."""
    return float(np.einsum("i,i->", first, second))


def pieces(*arrays: Array) -> Iterator[tuple[Array, ...]]:
    """Tensors of one shape in float64, :data:`PIECE` numbers at a time.

    Operations on a whole tensor take several times its memory. A piece may be part of the tensor itself, so
    it is only read.
    """
    flat_arrays = [array.reshape(-1) for array in arrays]
    for start in range(0, flat_arrays[0].size, PIECE):
        yield tuple(_as_float64(array[start : start + PIECE]) for array in flat_arrays)


def _as_float64(array: Array) -> Array:
    """An array in float64: itself, if it is, and if it lies where the processor reads it fast."""
    fits = array.dtype == np.float64 and array.flags.aligned
    return array if fits else array.astype(np.float64)


def _change_pieces(
    actual: Array, expected: Array, start: Array | None
) -> Iterator[tuple[Array, Array]]:
    """Pieces of two tensors, or of their changes from ``start``."""
    if start is None:
        for actual_piece, expected_piece in pieces(actual, expected):
            yield actual_piece, expected_piece
        return
    for actual_piece, expected_piece, start_piece in pieces(actual, expected, start):
        # Rounded to the type of the actual tensor: units in the last place refer to that type.
        yield (
            _as_float64((actual_piece - start_piece).astype(actual.dtype, copy=False)),
            expected_piece - start_piece,
        )


def figures(
    actual: Mapping[str, Array], expected: Mapping[str, Array], floor: float = 0.0
) -> tuple[Figure, ...]:
    """The distance of every expected tensor, worst first; infinite for a missing tensor."""
    nothing = np.full(1, np.nan)
    return worst_first(
        figure(name, actual.get(name, nothing), array, floor) for name, array in expected.items()
    )


def worst_first(unordered: Any) -> tuple[Figure, ...]:
    """Figures by decreasing distance."""
    return tuple(sorted(unordered, key=lambda item: -item.distance))


def passes(compared: tuple[Figure, ...], tolerance: float) -> bool:
    """Whether there are figures, and every one is within the tolerance."""
    return bool(compared) and all(item.distance <= tolerance for item in compared)


def same_bits(actual: Array, expected: Array) -> bool:
    """Whether two arrays have the same dtype, the same shape and the same bits."""
    return (
        actual.dtype == expected.dtype
        and actual.shape == expected.shape
        and (actual.size == 0 or _bytes(actual) == _bytes(expected))
    )


def _bytes(array: Array) -> memoryview:
    return np.ascontiguousarray(array).data.cast("B")
