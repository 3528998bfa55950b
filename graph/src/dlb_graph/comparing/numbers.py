"""Numbers of the same operator in the same place that two graphs have differently."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import onnx

from dlb_graph.comparing.analytic import complete_attributes
from dlb_graph.comparing.difference import Difference
from dlb_graph.comparing.distance import norm
from dlb_graph.layers.decimals import decimal
from dlb_graph.truth.layout import LAYOUT
from dlb_graph.truth.trace import Trace, node_name

__all__ = ["other_numbers"]

#: Attributes that say nothing about inference, or that an exporter multiplies weights by instead.
_NO_NUMBERS = {("BatchNormalization", "momentum"), ("Gemm", "alpha"), ("Gemm", "beta")}
#: Operators that are the identity in inference, or arrange numbers.
_TRANSPARENT = {*LAYOUT, "Cast", "Dropout"}
#: The largest relative difference of one number that exporters rounded to float32 at different steps, and of
#: the norms of values that are the same.
_ROUNDING = 1e-6
#: That of the norms of values that are the same but for the small effect of another number.
_EFFECT = 1e-3
#: What masks hide is any number as far from 0 as this.
_FAR = 1e4


@dataclass(frozen=True)
class _Numbered:
    """A node with single numbers: real attributes, and constants that it reads.

    Attributes:
        numbers: by name.
        sizes, norms: of its output, and of the values that it reads, which depend on the input.
    """

    node: onnx.NodeProto
    numbers: dict[str, float]
    sizes: tuple[int, ...]
    norms: tuple[float, ...]

    def is_in_place_of(self, other: _Numbered, effect: float) -> bool:
        """Whether both are the same operator and read equal values, in any layout.

        Args:
            effect: how far apart the norms of what they compute may be.
        """
        same = (self.node.op_type, self.sizes) == (other.node.op_type, other.sizes)
        return (
            same
            and _are_same(self.norms[0], other.norms[0], effect)
            and all(map(_are_same, self.norms[1:], other.norms[1:]))
        )

    def unequal(self, other: _Numbered) -> list[str]:
        """The names of numbers that are others, beyond rounding."""
        return [
            name
            for name in self.numbers.keys() & other.numbers.keys()
            if not _are_same(self.numbers[name], other.numbers[name])
            and not _are_far(self.numbers[name], other.numbers[name])
        ]


def _are_same(first: float, second: float, rounding: float = _ROUNDING) -> bool:
    return first == second or abs(first - second) <= rounding * max(abs(first), abs(second))


def _are_far(first: float, second: float) -> bool:
    return min(abs(first), abs(second)) >= _FAR and first * second > 0


def other_numbers(first: Trace, second: Trace) -> list[Difference]:
    """Single numbers of the same operator in the same place that are others in two graphs, beyond rounding.

    An operator is in the same place if it reads the same values. If the graphs have other operators, it also
    computes nearly the same: else both are written in other ways, which the values of outputs decide.

    Args:
        first, second: traces on the same random inputs.
    """
    sides = [list(_numbered_nodes(traced)) for traced in (first, second)]
    counts = [Counter(node.op_type for node in _live_nodes(traced)) for traced in (first, second)]
    effect = math.inf if counts[0] == counts[1] else _EFFECT
    for node in list(sides[0]):
        for other in sides[1]:
            if node.is_in_place_of(other, effect) and not node.unequal(other):
                sides[0].remove(node)
                sides[1].remove(other)
                break
    found = []
    for node in sides[0]:
        others = [each for each in sides[1] if node.is_in_place_of(each, effect)]
        if not others:
            continue
        other = others[0]
        sides[1].remove(other)
        names = node_name(node.node), node_name(other.node)
        found += [
            Difference(*names, name, f"{node.numbers[name]:g}", f"{other.numbers[name]:g}")
            for name in node.unequal(other)
        ]
    return found


def _live_nodes(traced: Trace) -> Iterator[onnx.NodeProto]:
    """Nodes that compute with the input, and do not only arrange its numbers."""
    for node in traced.nodes:
        if node.op_type not in _TRANSPARENT and not traced.live.isdisjoint(node.output):
            yield node


def _numbered_nodes(traced: Trace) -> Iterator[_Numbered]:
    """The nodes with single numbers whose values depend on the input."""
    for node in _live_nodes(traced):
        numbers = {
            name: decimal(value)
            for name, value in complete_attributes(traced, node).items()
            if isinstance(value, float) and (node.op_type, name) not in _NO_NUMBERS
        }
        commutes = node.op_type in ("Add", "Max", "Mean", "Min", "Mul", "Sum")
        for place in range(len(node.input)):
            array = traced.constant(node, place)
            if array is not None and array.size == 1 and array.dtype.kind == "f":
                numbers["constant" if commutes else f"input {place + 1}"] = float(array.item())
        if numbers:
            read = [traced.values[name] for name in node.input if name in traced.live]
            values = [traced.values[next(filter(None, node.output))], *read]
            norms = tuple(norm([value]) for value in values)
            yield _Numbered(node, numbers, tuple(value.size for value in values), norms)
