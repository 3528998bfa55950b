"""ONNX GridSample as a composition: numbers of its neighbours in each place of a grid, weighed.

Spatial transformers (Jaderberg et al., arXiv:1506.02025) sample so. Modes and their formulas:
https://onnx.ai/onnx/operators/onnx__GridSample.html.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import onnx

from dlb_graph.rewriting.node_writer import NodeWriter

__all__ = ["grid_sample"]

#: A mode's neighbours along an axis, by their distance from the place that is rounded down.
_NEIGHBOURS = {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}
#: The names that operator set 16 has for modes.
_NAMES = {"bilinear": "linear", "bicubic": "cubic"}
#: The coefficient of the cubic kernel (Keys, doi:10.1109/TASSP.1981.1163711).
_CUBIC = -0.75


@dataclass(frozen=True)
class _Axis:
    """An axis of the value that is sampled.

    Attributes:
        size: of it, a real number.
        last: its last place.
        padding: how places beyond its ends are brought within.
        aligned: whether -1 and 1 are the middles of the outermost numbers, not their ends.
    """

    size: str
    last: str
    padding: str
    aligned: bool

    def places(self, write: NodeWriter, grid: str) -> str:
        """Places in numbers of this axis, of those from -1 to 1."""
        half = write.tensor(0.5)
        span = self.last if self.aligned else self.size
        place = write.add(
            "Mul", write.add("Add", grid, write.tensor(1.0)), write.add("Mul", span, half)
        )
        return place if self.aligned else write.add("Sub", place, half)

    def within(self, write: NodeWriter, place: str) -> str:
        """Places within this axis; one beyond its ends where zeros lie there."""
        first, last = write.tensor(0.0), self.last
        if self.padding == "reflection":
            place = self._reflected(write, place)
        elif self.padding == "zeros":
            first, last = write.tensor(-1.0), self.size
        return write.add("Clip", place, first, last)

    def _ended(self, write: NodeWriter, place: str) -> str:
        """The first or last place for one beyond the ends; those half a number before one stay."""
        away = 0.0 if self.aligned else 0.5
        start, end = write.tensor(-away), write.add("Add", self.last, write.tensor(away))
        later = write.add("Where", write.add("Greater", place, end), self.last, place)
        return write.add("Where", write.add("Less", place, start), write.tensor(0.0), later)

    def _reflected(self, write: NodeWriter, place: str) -> str:
        """Places as often turned back at the ends as they lie beyond them."""
        start, span = (0.0, self.last) if self.aligned else (-0.5, self.size)
        first, twice = write.tensor(start), write.add("Mul", span, write.tensor(2.0))
        away = write.add("Abs", write.add("Sub", place, first))
        turns = write.add("Floor", write.add("Div", away, twice))
        rest = write.add("Sub", away, write.add("Mul", turns, twice))
        back = write.add("Abs", write.add("Sub", rest, span))
        return write.add("Add", write.add("Sub", span, back), first)

    def neighbours(self, write: NodeWriter, grid: str, mode: str) -> list[tuple[str, str]]:
        """The places around each of a grid's, counted from 0 with what is padded, and their weights.

        A weight is empty where it is 1.
        """
        place = self.places(write, grid)
        if mode != "cubic":
            place = self.within(write, place)
        elif self.padding == "border":
            place = self._ended(write, place)
        below = write.add("Round" if mode == "nearest" else "Floor", place)
        share = write.add("Sub", place, below)
        neighbours = list[tuple[str, str]]()
        for number, weight in zip(_NEIGHBOURS[mode], _weights(write, share, mode)):
            near = write.add("Add", below, write.tensor(float(number))) if number else below
            near = self.within(write, near)
            if self.padding == "zeros":
                near = write.add("Add", near, write.tensor(1.0))
            neighbours.append((near, weight))
        return neighbours


def _weights(write: NodeWriter, share: str, mode: str) -> list[str]:
    """Those of the neighbours, of the distance from the place that is rounded down."""
    if mode == "nearest":
        return [""]
    one = write.tensor(1.0)
    rest = write.add("Sub", one, share)
    if mode == "linear":
        return [rest, share]
    outer = (_CUBIC, -5 * _CUBIC, 8 * _CUBIC, -4 * _CUBIC)
    inner = (_CUBIC + 2, -_CUBIC - 3, 0.0, 1.0)
    distances = (write.add("Add", share, one), share, rest, write.add("Add", rest, one))
    return [
        _polynomial(write, distance, factors)
        for distance, factors in zip(distances, (outer, inner, inner, outer))
    ]


def _polynomial(write: NodeWriter, value: str, factors: Sequence[float]) -> str:
    """By Horner's rule, the factor of the highest power first."""
    polynomial = write.tensor(factors[0])
    for factor in factors[1:]:
        polynomial = write.add("Add", write.add("Mul", polynomial, value), write.tensor(factor))
    return polynomial


def _padded(write: NodeWriter, data: str, count: int) -> str:
    """Zeros around a value; around maps of three axes before those that are last, and then along the first."""
    if count < 3:
        return write.add("Pad", data, write.shape(*(0, 0, *(1,) * count) * 2))
    sizes = write.add("Shape", data)
    first, last = (
        write.add("Slice", sizes, write.shape(start), write.shape(start + 2)) for start in (1, 3)
    )
    maps = write.add("Reshape", data, write.joined((write.shape(0, -1), last), 0))
    maps = write.add("Pad", maps, write.shape(0, 0, 1, 1, 0, 0, 1, 1))
    rows = write.add("Reshape", maps, write.joined((write.shape(0), first, write.shape(-1)), 0))
    return write.add("Pad", rows, write.shape(0, 0, 1, 0, 0, 0, 1, 0))


def grid_sample(write: NodeWriter) -> bool:
    """Each place's neighbours times their weights, along every axis, added."""
    data, grid = write.node.input
    rank = write.rank(data)
    named = write.attributes.get("mode", "linear")
    mode, padding = _NAMES.get(named, named), write.attributes.get("padding_mode", "zeros")
    if (
        rank not in (3, 4, 5)
        or mode not in _NEIGHBOURS
        or padding not in ("zeros", "border", "reflection")
    ):
        return False
    count = rank - 2
    samples_and_channels, spatial = (
        write.add("Slice", write.add("Shape", data), write.shape(start), write.shape(stop))
        for start, stop in ((0, 2), (2, rank))
    )
    sizes = [
        write.add("Cast", write.place(spatial, axis), to=write.element) for axis in range(count)
    ]
    aligned = bool(write.attributes.get("align_corners", 0))
    axes = [
        _Axis(size, write.add("Sub", size, write.tensor(1.0)), padding, aligned) for size in sizes
    ]
    if padding == "zeros":
        data = _padded(write, data, count)
        sizes = [write.add("Add", size, write.tensor(2.0)) for size in sizes]
    numbers = write.add("Reshape", data, write.shape(0, 0, -1))
    channels = write.add("Slice", samples_and_channels, write.shape(1), write.shape(2))
    repeated = write.joined((write.shape(1), channels, write.shape(1)), 0)
    steps = [""]
    for size in reversed(sizes[1:]):
        steps.append(write.add("Mul", steps[-1], size) if steps[-1] else size)
    # A grid's last axis counts the value's axes from the last one.
    along = [
        [
            (write.add("Mul", place, step) if step else place, weight)
            for place, weight in axis.neighbours(
                write, write.add("Reshape", part, write.shape(0, 1, -1)), mode
            )
        ]
        for axis, part, step in zip(axes, reversed(write.parts(grid, count)), reversed(steps))
    ]
    products = list[str]()
    for corner in itertools.product(*along):
        place = write.sum(*(place for place, _ in corner))
        indices = write.add("Cast", place, to=onnx.TensorProto.INT64)
        indices = write.add("Expand", indices, repeated)
        product = write.add("GatherElements", numbers, indices, axis=2)
        for weight in filter(None, (weight for _, weight in corner)):
            product = write.add("Mul", product, weight)
        products.append(product)
    places = write.add("Slice", write.add("Shape", grid), write.shape(1), write.shape(-1))
    shape = write.joined((samples_and_channels, places), 0)
    return write.end(write.add("Reshape", write.sum(*products), shape))
