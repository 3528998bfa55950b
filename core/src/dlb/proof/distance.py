"""Distances between tensors. A NaN or an infinity is a difference, never an agreement."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.proof.certificate import Figure

__all__ = ["figure", "figures", "passes", "relative_l2", "same_bits"]

Array = npt.NDArray[Any]


def relative_l2(found: Array, expected: Array, floor: float = 0.0) -> float:
    """``||found - expected|| / max(||expected||, floor)`` in float64.

    Infinite where shapes differ, where either holds a NaN or an infinity, and where something was
    found although nothing but zeros was expected.

    Args:
        floor: a norm below which ``expected`` is only rounding (a bias before a batch
            normalisation has a gradient of zero, and what is computed is noise).
    """
    if found.shape != expected.shape:
        return math.inf
    ours, theirs = found.astype(np.float64).ravel(), expected.astype(np.float64).ravel()
    if not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        return math.inf
    distance = float(np.linalg.norm(ours - theirs))
    scale = max(float(np.linalg.norm(theirs)), floor)
    if scale == 0.0:
        return 0.0 if distance == 0.0 else math.inf
    return distance / scale


def figure(tensor: str, found: Array, expected: Array, floor: float = 0.0) -> Figure:
    """The distance of one tensor."""
    relative = relative_l2(found, expected, floor)
    if not math.isfinite(relative):
        return Figure(tensor=tensor, relative_l2=None, largest=None)
    apart = np.abs(found.astype(np.float64) - expected.astype(np.float64))
    kind = found.dtype if found.dtype.kind == "f" else np.dtype(np.float64)
    # Of a subnormal number the last place says nothing about a relative error.
    place = np.spacing(np.maximum(np.abs(expected), np.finfo(kind).tiny).astype(kind))
    with np.errstate(over="ignore"):
        ulp = float((apart / place).max(initial=0.0))
    return Figure(
        tensor=tensor,
        relative_l2=relative,
        largest=float(apart.max(initial=0.0)),
        ulp=ulp if math.isfinite(ulp) else None,
    )


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


def passes(found: tuple[Figure, ...], gate: float) -> bool:
    """Whether there are figures, and every one is within the gate."""
    return bool(found) and all(_number(one.relative_l2) <= gate for one in found)


def same_bits(found: Array, expected: Array) -> bool:
    """Whether two arrays are equal bit for bit, in type and shape too."""
    return (
        found.dtype == expected.dtype
        and found.shape == expected.shape
        and np.ascontiguousarray(found).tobytes() == np.ascontiguousarray(expected).tobytes()
    )


def _number(value: float | None) -> float:
    return math.inf if value is None else value
