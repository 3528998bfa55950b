"""Distances between tensors. A NaN or an infinity is a difference, never an agreement."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.proof.findings import AnyCause, Figure, shape_of
from dlb.proof.findings.common import Missing, NotFinite, ShapeMismatch

__all__ = [
    "figure",
    "figures",
    "infinite_cause",
    "norm",
    "passes",
    "pieces",
    "relative_l2",
    "same_bits",
]

Array = npt.NDArray[Any]
#: Numbers of a tensor that are processed at a time.
PIECE = 1 << 20


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
    if actual.shape != expected.shape:
        return math.inf
    squared_distance = squared_norm = 0.0
    for actual_piece, expected_piece in _change_pieces(actual, expected, start):
        if not (np.isfinite(actual_piece).all() and np.isfinite(expected_piece).all()):
            return math.inf
        difference = actual_piece - expected_piece
        squared_distance += float(difference @ difference)
        squared_norm += float(expected_piece @ expected_piece)
    scale = max(math.sqrt(squared_norm), floor)
    if scale == 0.0:
        return 0.0 if squared_distance == 0.0 else math.inf
    return math.sqrt(squared_distance) / scale


def figure(
    tensor: str, actual: Array, expected: Array, floor: float = 0.0, start: Array | None = None
) -> Figure:
    """The distance of one tensor; arguments as for :func:`relative_l2`."""
    relative = relative_l2(actual, expected, floor, start)
    if not math.isfinite(relative):
        return Figure(tensor=tensor, relative_l2=None, largest=None)
    dtype = actual.dtype if actual.dtype.kind == "f" else np.dtype(np.float64)
    largest = ulp = 0.0
    for actual_piece, expected_piece in _change_pieces(actual, expected, start):
        differences = np.abs(actual_piece - expected_piece)
        # The last place of a subnormal number says nothing about a relative error.
        place = np.spacing(np.maximum(np.abs(expected_piece), np.finfo(dtype).tiny).astype(dtype))
        with np.errstate(over="ignore"):
            ulp = max(ulp, float((differences / place).max()))
        largest = max(largest, float(differences.max()))
    return Figure(
        tensor=tensor,
        relative_l2=relative,
        largest=largest,
        ulp=ulp if math.isfinite(ulp) else None,
    )


def infinite_cause(tensor: str, actual: Array | None, expected: Array | None) -> AnyCause | None:
    """Why a tensor's distance is infinite: missing, another shape, or not finite. None if no such cause."""
    if actual is None and expected is not None:
        return Missing(names=(tensor,))
    if actual is None or expected is None or actual.shape != expected.shape:
        return ShapeMismatch(found=shape_of(actual), expected=shape_of(expected))
    if not all(np.isfinite(piece).all() for pair in pieces(actual, expected) for piece in pair):
        return NotFinite()
    return None


def norm(arrays: Iterable[Array]) -> float:
    """The L2 norm of all numbers of several tensors together, in float64."""
    return math.sqrt(sum(float(piece @ piece) for array in arrays for (piece,) in pieces(array)))


def pieces(*arrays: Array) -> Iterator[tuple[Array, ...]]:
    """Tensors of one shape in float64, :data:`PIECE` numbers at a time.

    Operations on a whole tensor take several times its memory.
    """
    flat_arrays = [array.reshape(-1) for array in arrays]
    for start in range(0, flat_arrays[0].size, PIECE):
        yield tuple(array[start : start + PIECE].astype(np.float64) for array in flat_arrays)


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
            (actual_piece - start_piece).astype(actual.dtype).astype(np.float64),
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
    return tuple(sorted(unordered, key=lambda item: -_finite_or_infinity(item.relative_l2)))


def passes(compared: tuple[Figure, ...], tolerance: float) -> bool:
    """Whether there are figures, and every one is within the tolerance."""
    return bool(compared) and all(
        _finite_or_infinity(item.relative_l2) <= tolerance for item in compared
    )


def same_bits(actual: Array, expected: Array) -> bool:
    """Whether two arrays have the same dtype, the same shape and the same bits."""
    return (
        actual.dtype == expected.dtype
        and actual.shape == expected.shape
        and (actual.size == 0 or _bytes(actual) == _bytes(expected))
    )


def _bytes(array: Array) -> memoryview:
    return np.ascontiguousarray(array).data.cast("B")


def _finite_or_infinity(value: float | None) -> float:
    return math.inf if value is None else value
