"""Which values of one graph another graph has as well, in any layout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import permutations

import numpy as np
import numpy.typing as npt

from dlb_graph.comparing.distance import relative_l2
from dlb_graph.layers.numbers import Array
from dlb_graph.truth.layout import LAYOUT
from dlb_graph.truth.trace import Trace

__all__ = ["same_values", "transpositions"]


def transpositions(array: Array, other: Array) -> Iterator[Array]:
    """An array without axes of size 1, in every order of its axes that has the shape of the other."""
    squeezed, shape = array.squeeze(), other.squeeze().shape
    for order in (
        permutations(range(squeezed.ndim)) if squeezed.ndim <= 4 else [tuple(range(squeezed.ndim))]
    ):
        if tuple(squeezed.shape[axis] for axis in order) == shape:
            yield squeezed.transpose(order)


def same_values(
    first: Trace, second: Trace, tolerance: float, *, any_order: bool = False
) -> dict[str, list[str]]:
    """For each value of the first model that depends on its inputs, equal values of the second.

    Args:
        any_order: the same real numbers in any order count as equal, not only in another layout.
    """
    by_size: dict[int, list[tuple[str, float]]] = {}
    for name in _live_values(second):
        array = second.values[name]
        by_size.setdefault(array.size, []).append((name, _norm(array)))
    equal_values: dict[str, list[str]] = {}
    for name in _live_values(first):
        array = first.values[name]
        norm = _norm(array)
        counterparts = [
            candidate
            for candidate, candidate_norm in by_size.get(array.size, [])
            if abs(candidate_norm - norm) <= max(tolerance, 1e-9) * max(candidate_norm, norm)
            and (
                _is_equal(first, name, second, candidate, tolerance, equal_values)
                or (any_order and _same_numbers(array, second.values[candidate], tolerance))
            )
        ]
        if counterparts:
            equal_values[name] = counterparts
    return equal_values


def _same_numbers(first: Array, second: Array, tolerance: float) -> bool:
    """Whether two values hold the same real numbers in any order. Integers are the same by chance."""
    if first.dtype.kind != "f" or second.dtype.kind != "f":
        return False
    one, other = (np.sort(value, axis=None) for value in map(_comparable, (first, second)))
    return bool(relative_l2(one, other) <= tolerance)


def _live_values(traced: Trace) -> list[str]:
    made = [name for node in traced.nodes for name in node.output if name in traced.live]
    return [*traced.inputs, *made]


def _norm(value: Array) -> float:
    return float(np.linalg.norm(_comparable(value).ravel()))


#: What NaN and the infinities count as: numbers of the size of noise that are hardly among it.
_NAN, _INFINITY, _BELOW = 1.237168, 2.713954, -3.162471


def _comparable(value: Array) -> Array:
    """A value in float64; NaN and infinities are equal to themselves where a function is not defined."""
    numbers: npt.NDArray[np.float64] = value.astype(np.float64)
    return np.nan_to_num(numbers, nan=_NAN, posinf=_INFINITY, neginf=_BELOW)


def _is_equal(
    first: Trace,
    first_name: str,
    second: Trace,
    second_name: str,
    tolerance: float,
    equal_values: Mapping[str, list[str]],
) -> bool:
    """Whether two values hold the same numbers, in the same layout or in another."""
    first_value, second_value = (
        _comparable(each) for each in (first.values[first_name], second.values[second_name])
    )
    if any(
        relative_l2(second_value.squeeze(), arranged) <= tolerance
        for arranged in transpositions(first_value, second_value)
    ):
        return True
    roots = _root(first, first_name), _root(second, second_name)
    return roots != (first_name, second_name) and roots[1] in equal_values.get(roots[0], [])


def _root(traced: Trace, name: str) -> str:
    """The value that layout operators only rearrange."""
    while name in traced.producers and traced.producers[name].op_type in LAYOUT:
        before = traced.producers[name].input[0]
        if before not in traced.live:
            break
        name = before
    return name
