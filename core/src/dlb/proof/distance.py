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
#: Numbers that are looked at together.
PIECE = 1 << 20


def relative_l2(
    found: Array, expected: Array, floor: float = 0.0, start: Array | None = None
) -> float:
    """``||found - expected|| / max(||expected||, floor)`` in float64.

    Infinite where shapes differ, where either holds a NaN or an infinity, and where something was
    found although nothing but zeros was expected.

    Args:
        floor: a norm below which ``expected`` is only rounding (a bias before a batch
            normalisation has a gradient of zero, and what is computed is noise).
        start: what both were before; the distance is of what changed then.
    """
    if found.shape != expected.shape:
        return math.inf
    apart = whole = 0.0
    for ours, theirs in _changed(found, expected, start):
        if not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
            return math.inf
        difference = ours - theirs
        apart += float(difference @ difference)
        whole += float(theirs @ theirs)
    scale = max(math.sqrt(whole), floor)
    if scale == 0.0:
        return 0.0 if apart == 0.0 else math.inf
    return math.sqrt(apart) / scale


def figure(
    tensor: str, found: Array, expected: Array, floor: float = 0.0, start: Array | None = None
) -> Figure:
    """The distance of one tensor, as :func:`relative_l2`."""
    relative = relative_l2(found, expected, floor, start)
    if not math.isfinite(relative):
        return Figure(tensor=tensor, relative_l2=None, largest=None)
    kind = found.dtype if found.dtype.kind == "f" else np.dtype(np.float64)
    largest = ulp = 0.0
    for ours, theirs in _changed(found, expected, start):
        apart = np.abs(ours - theirs)
        # Of a subnormal number the last place says nothing about a relative error.
        place = np.spacing(np.maximum(np.abs(theirs), np.finfo(kind).tiny).astype(kind))
        with np.errstate(over="ignore"):
            ulp = max(ulp, float((apart / place).max()))
        largest = max(largest, float(apart.max()))
    return Figure(
        tensor=tensor,
        relative_l2=relative,
        largest=largest,
        ulp=ulp if math.isfinite(ulp) else None,
    )


def infinite_cause(tensor: str, found: Array | None, expected: Array | None) -> AnyCause | None:
    """Why a tensor's distance is infinite whatever its numbers are; None where it need not be."""
    if found is None and expected is not None:
        return Missing(names=(tensor,))
    if found is None or expected is None or found.shape != expected.shape:
        return ShapeMismatch(found=shape_of(found), expected=shape_of(expected))
    if not all(np.isfinite(piece).all() for pair in pieces(found, expected) for piece in pair):
        return NotFinite()
    return None


def norm(arrays: Iterable[Array]) -> float:
    """Of all numbers of some tensors together, in float64."""
    return math.sqrt(sum(float(one @ one) for array in arrays for (one,) in pieces(array)))


def pieces(*arrays: Array) -> Iterator[tuple[Array, ...]]:
    """Tensors of one shape in float64, some of their numbers at a time: what is made of a whole
    one takes several times its memory."""
    flat = [array.reshape(-1) for array in arrays]
    for start in range(0, flat[0].size, PIECE):
        yield tuple(one[start : start + PIECE].astype(np.float64) for one in flat)


def _changed(found: Array, expected: Array, start: Array | None) -> Iterator[tuple[Array, Array]]:
    """Pieces of two tensors, or of what changed."""
    if start is None:
        for ours, theirs in pieces(found, expected):
            yield ours, theirs
        return
    for ours, theirs, before in pieces(found, expected, start):
        # In the type of what was found, which its last place is counted in.
        yield (ours - before).astype(found.dtype).astype(np.float64), theirs - before


def figures(
    found: Mapping[str, Array], expected: Mapping[str, Array], floor: float = 0.0
) -> tuple[Figure, ...]:
    """The distance of every expected tensor, worst first; one that was not found is infinite."""
    nothing = np.full(1, np.nan)
    return worst_first(
        figure(name, found.get(name, nothing), array, floor) for name, array in expected.items()
    )


def worst_first(found: Any) -> tuple[Figure, ...]:
    """Figures by falling distance."""
    return tuple(sorted(found, key=lambda one: -_number(one.relative_l2)))


def passes(found: tuple[Figure, ...], tolerance: float) -> bool:
    """Whether there are figures, and every one is within the tolerance."""
    return bool(found) and all(_number(one.relative_l2) <= tolerance for one in found)


def same_bits(found: Array, expected: Array) -> bool:
    """Whether two arrays are equal bit for bit, in type and shape too."""
    return (
        found.dtype == expected.dtype
        and found.shape == expected.shape
        and (found.size == 0 or _bytes(found) == _bytes(expected))
    )


def _bytes(array: Array) -> memoryview:
    return np.ascontiguousarray(array).data.cast("B")


def _number(value: float | None) -> float:
    return math.inf if value is None else value
