"""Nodes that compute with real numbers what one computes with truths or integers, and their constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from dlb_graph.layers.numbers import Array
from dlb_graph.rewriting.numbers_of_indices import NumbersOfIndices
from dlb_graph.truth.layout import LAYOUT
from dlb_graph.truth.lookups import RANKING
from dlb_graph.truth.trace import Trace

__all__ = ["Parts", "WholeGraph"]


#: The first operator sets in which reductions read their axes, and in which sums and Unsqueeze do.
_AXES_ARE_INPUTS, _AXES_OF_INPUTS = 18, 13
_DOUBLE = np.dtype(np.float64)


class WholeGraph:
    """A graph with values that are no real numbers, and constants for one that has real ones alone.

    Attributes:
        constants: by name.
        indices, lookups, numbers: as in :class:`NumbersOfIndices`.
    """

    def __init__(self, traced: Trace, opset: int, numbered: NumbersOfIndices | None) -> None:
        self.traced, self.opset = traced, opset
        self.indices = numbered.indices if numbered else frozenset[str]()
        self.lookups = numbered.lookups if numbered else frozenset[str]()
        self.numbers = numbered.numbers if numbered else frozenset[str]()
        self.constants: dict[str, Array] = {}

    def is_whole(self, name: str) -> bool:
        """Whether a value has truths or integers."""
        return self.traced.values[name].dtype.kind in "biu" and name not in self.indices

    def may_be_negative(self, name: str) -> bool:
        """Whether integers are no places that a node found, perhaps moved or cast."""
        while (node := self.traced.producers.get(name)) and node.op_type in ("Cast", *LAYOUT):
            name = node.input[0]
        return node is None or node.op_type not in RANKING

    def is_of_indices(self, node: onnx.NodeProto) -> bool:
        """Whether a node moves the integers that look up rows of a table, or looks them up."""
        return not (self.indices | self.lookups).isdisjoint(node.output)

    def constant(self, name: str, shape: Sequence[int] | None = None) -> str:
        """The name of a constant's numbers as real ones, in another shape if there is one."""
        array = self.traced.values[name].astype(_DOUBLE)
        shape = array.shape if shape is None else shape
        real = f"{name}/real/{'x'.join(map(str, shape))}"
        self.constants[real] = array.reshape(shape)
        return real

    def whole_numbers(self, numbers: Sequence[int]) -> str:
        """The name of a constant of integers."""
        name = f"dlb/whole/{','.join(map(str, numbers))}"
        self.constants[name] = np.array(numbers, np.int64)
        return name

    def one_number(self, zero: str) -> int | None:
        """The zero point, 0 if there is none; None if it depends on the input, or channels differ in it."""
        if not zero:
            return 0
        numbers = np.unique(self.traced.values[zero])
        return int(numbers[0]) if zero not in self.traced.live and numbers.size == 1 else None

    def number(self, value: float) -> str:
        """The name of a constant number."""
        name = f"dlb/{value!r}"
        self.constants[name] = np.array(value, _DOUBLE)
        return name


class Parts:
    """Nodes that stand for one, the last of which has its output."""

    def __init__(
        self, graph: WholeGraph, node: onnx.NodeProto, numbers_read: Sequence[str] = ()
    ) -> None:
        self.graph, self.node = graph, node
        self.inputs, self.numbers_read = list(node.input), list(numbers_read)
        self.nodes: list[onnx.NodeProto] = []

    def add(
        self, operator: str, *inputs: str, last: bool = False, output: str = "", **attributes: Any
    ) -> str:
        """Add a node, and return its output: that of the node that is replaced if it is the last."""
        first = self.node.output[0]
        name = first if last else output or f"{first}/{operator.lower()}{len(self.nodes) or ''}"
        label = (self.node.name or first) if last else name
        self.nodes.append(helper.make_node(operator, inputs, [name], label, **attributes))
        return name

    def reduced(self, operator: str, name: str, axes: Sequence[int]) -> str:
        """What an operator of the kind of ReduceMax makes of axes, which are kept."""
        if self.graph.opset < _AXES_ARE_INPUTS:
            return self.add(operator, name, axes=axes, keepdims=1)
        return self.add(operator, name, self.graph.whole_numbers(axes), keepdims=1)

    def less(self, last: bool, first: str, second: str) -> str:
        """1 where the first is smaller.

        Of integers, where it is by more than 0.5: flat around every integer, for differences move constants.
        """
        more = self.add("Sub", second, first)
        if all(map(self.graph.is_whole, self.numbers_read)):
            more = self.add("Sub", more, self.graph.number(0.5))
        return self.add("Relu", self.add("Sign", more), last=last)

    def real(self, x: str, scale: str, zero: str, axis: int, last: bool = False) -> str:
        """(x - zero) * scale, of numbers that lie along an axis if there are several."""
        if x not in self.graph.traced.live and self.graph.is_whole(x):
            x = self.graph.constant(x)
        if zero and not self.is_zero(zero):
            x = self.add("Sub", x, self.along(zero, axis), last=last and not scale)
        elif last and not scale:
            return self.add("Identity", x, last=True)
        return self.add("Mul", x, self.along(scale, axis), last=last) if scale else x

    def quantized(self, x: str, scale: str, zero: str, axis: int) -> str:
        """x / scale, rounded, plus zero, within the bounds of the type.

        Bounds come before the rounding where one zero point is known: after it, many numbers are at a bound,
        where a gradient has two sides.
        """
        x = self.add("Div", x, self.along(scale, axis))
        bounds = np.iinfo(self.graph.traced.values[self.node.output[0]].dtype)
        offset = self.graph.one_number(zero)
        if offset is None:
            low, high = self.graph.number(bounds.min), self.graph.number(bounds.max)
            moved = self.add("Add", self.add("Round", x), self.along(zero, axis))
            return self.add("Clip", moved, low, high, last=True)
        low, high = (self.graph.number(bound - offset) for bound in (bounds.min, bounds.max))
        x = self.add("Clip", x, low, high)
        if not offset:
            return self.add("Round", x, last=True)
        return self.add("Add", self.add("Round", x), self.graph.number(offset), last=True)

    def is_zero(self, name: str) -> bool:
        """Whether a value is a constant of zeros."""
        return name not in self.graph.traced.live and not self.graph.traced.values[name].any()

    def along(self, name: str, axis: int) -> str:
        """A constant whose numbers lie along an axis of the node's first value; a live value as it is."""
        traced = self.graph.traced
        if name in traced.live or traced.values[name].size == 1:
            return name if name in traced.live else self.graph.constant(name, ())
        rank = max(traced.values[read].ndim for read in (self.node.input[0], self.node.output[0]))
        shape = [1] * rank
        shape[axis] = traced.values[name].size
        return self.graph.constant(name, shape)

    def bias(self, name: str, first_scale: str, second_scale: str) -> str:
        """The integers that a convolution of quantised numbers adds, times both scales."""
        values = self.graph.traced.values
        rank = values[self.node.output[0]].ndim
        numbers = values[name] * (values[first_scale] * values[second_scale]).reshape(-1)
        self.graph.constants[f"{name}/real"] = numbers.reshape(-1, *[1] * (rank - 2))
        return f"{name}/real"

    def opposite(self, truth: str) -> str:
        """1 - x."""
        return self.add("Sub", self.graph.number(1), truth, last=True)

    def differs(self) -> str:
        """1 where the two differ."""
        return self.add("Abs", self.add("Sign", self.add("Sub", *self.inputs)))

    def unsqueezed(self, name: str, axis: int) -> str:
        """A value with a new axis of size 1."""
        if self.graph.opset < _AXES_OF_INPUTS:
            return self.add("Unsqueeze", name, axes=[axis])
        return self.add("Unsqueeze", name, self.graph.whole_numbers([axis]))

    def summed(self, name: str, axis: int, last: bool) -> str:
        """The sum along an axis, which disappears."""
        if self.graph.opset < _AXES_OF_INPUTS:
            return self.add("ReduceSum", name, last=last, axes=[axis], keepdims=0)
        return self.add("ReduceSum", name, self.graph.whole_numbers([axis]), last=last, keepdims=0)

    def places(self, indices: str, size: int, axis: int, rank: int, last: bool = False) -> str:
        """1 at each index, of as many axes as its rank, along a new axis of a size, 0 elsewhere."""
        shape = [size if place == axis else 1 for place in range(rank + 1)]
        numbers = f"dlb/places/{'x'.join(map(str, shape))}"
        self.graph.constants[numbers] = np.arange(size, dtype=_DOUBLE).reshape(shape)
        raised = self.unsqueezed(indices, axis)
        return self.same(raised, numbers, last)

    def same(self, first: str, second: str, last: bool) -> str:
        """1 where two integers are equal, 0 elsewhere.

        Twice what the distance leaves of 0.5: flat where they differ, for differences move constants.
        """
        away = self.add("Abs", self.add("Sub", first, second))
        near = self.add("Relu", self.add("Sub", self.graph.number(0.5), away))
        return self.add("Mul", self.graph.number(2), near, last=last)

    def whole_part(self, name: str, margin: str = "") -> str:
        """A number without its digits after the point; a margin is added to its size before."""
        size = self.add("Abs", name)
        size = self.add("Floor", self.add("Add", size, margin) if margin else size)
        return self.add("Mul", self.add("Sign", name), size, last=True)

    def margin(self, divisor: str) -> str:
        """What a quotient of integers, which is rounded down, may be raised by: half of the least step.

        So the result is flat around every integer, for differences move constants.
        """
        return self.add("Div", self.graph.number(0.5), self.add("Abs", divisor))
