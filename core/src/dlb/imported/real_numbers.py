"""Truths and integers that a graph computes, as real numbers: layers compute no others.

A truth is 0 or 1. On these, Not is 1 - x, And a product, Or a sum less a product, and a comparison a sign of a
difference: the graph after it has the same values as real numbers. What is compared must be finite.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from dlb.errors import UnsupportedError
from dlb.graph.layout import LAYOUT
from dlb.graph.lookups import lookup_of
from dlb.graph.precision import REAL_TYPES, in_precision
from dlb.graph.ranking import RANKING
from dlb.graph.trace import Trace, attributes_of, trace
from dlb.imported.numbers_of_indices import NumbersOfIndices, with_numbers_of_indices

__all__ = ["DYNAMIC", "QUANTISED", "WHOLE_OPERATORS", "as_real_numbers"]

Array = npt.NDArray[Any]

#: Operators that compute a truth, and those that read truths as numbers.
_LOGIC = frozenset(
    ("And", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Not", "Or", "Xor")
)
#: Operators all of whose inputs are numbers of one type.
_ALL_INPUTS = _LOGIC | {
    *("Add", "Concat", "Div", "Einsum", "Gemm", "MatMul", "Max", "Mean", "Min", "Mod", "Mul"),
    *("Clip", "PRelu", "Pow", "Sub", "Sum", "Where"),
}
#: Operators that read their first input as numbers of any type.
_FIRST_INPUT = {*LAYOUT, *RANKING} | {
    *(
        "Abs",
        "Cast",
        "CastLike",
        "Expand",
        "Gather",
        "GatherElements",
        "GatherND",
        "MaxPool",
        "Neg",
        "OneHot",
        "ScatterElements",
    ),
    *("ReduceL1", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "ReduceSumSquare", "Relu"),
    *("Resize", "Sign", "Slice", "Split", "Tile", "Trilu"),
}
#: Quantises by the least and the largest number of all samples.
DYNAMIC = "DynamicQuantizeLinear"
#: Operators of quantised numbers.
QUANTISED = frozenset(
    (
        "ConvInteger",
        "DequantizeLinear",
        DYNAMIC,
        "MatMulInteger",
        "QLinearConv",
        "QLinearMatMul",
        "QuantizeLinear",
    )
)
#: Operators whose other live inputs are indices of a table.
_LOOKING_UP = ("Gather", "OneHot")
#: Operators without which no value is anything but real.
_WHOLE = {*_LOGIC, *QUANTISED, *RANKING, "Cast", "CastLike"}
_OWN = ("", "ai.onnx")
#: The first operator sets that have Sign, and Round.
_SIGN, _ROUND = 9, 11
#: The first operator sets in which reductions read their axes, and in which sums and Unsqueeze do.
_AXES_ARE_INPUTS, _AXES_OF_INPUTS = 18, 13
#: Operators that are read, as sums, products and functions of real numbers.
WHOLE_OPERATORS = _LOGIC | QUANTISED
_DOUBLE = np.dtype(np.float64)


def as_real_numbers(model: onnx.ModelProto, *, of_indices: bool = True) -> onnx.ModelProto | None:
    """A model in float64 whose values that depend on the input are real, whatever they are in ``model``.

    Args:
        of_indices: integers of the input that look up rows of a table may be computed with.

    Returns:
        None if they are real already, if integers look up a table in another way, or if an operator is none
        of those whose numbers may be of another type.

    Raises:
        UnsupportedError: the model cannot be run.
    """
    operators = {node.op_type for node in model.graph.node}
    whole_inputs = any(
        value.type.tensor_type.elem_type not in REAL_TYPES for value in model.graph.input
    )
    if operators & {"If", "Loop", "Scan"} or not (operators & _WHOLE or whole_inputs):
        return None
    opset = next((entry.version for entry in model.opset_import if entry.domain in _OWN), 0)
    compares = operators & _WHOLE - {"And", "Not", "Or", "Xor"}
    if opset < (_ROUND if operators & QUANTISED else _SIGN if compares else 0):
        return None
    model = in_precision(model, TensorProto.DOUBLE)
    traced = trace(model)
    numbered = with_numbers_of_indices(model, traced, opset) if of_indices else None
    if numbered is not None:
        model = numbered.model
        traced = trace(model)
    graph = _Graph(model, traced, opset, numbered)
    whole = {name for name in traced.live if name in traced.values and graph.is_whole(name)}
    if not whole and numbered is None:
        return None
    computed = set[str]()
    live_nodes = [node for node in traced.nodes if not traced.live.isdisjoint(node.output)]
    for node in live_nodes:
        computed.update(node.output if _computes_index(graph, node, computed) else ())
        if graph.is_of_indices(node):
            continue
        if (
            node.op_type in _LOOKING_UP
            and not traced.live.isdisjoint(node.input[1:])
            and not _is_row_of_a_table(traced, node, computed)
            and (node.input[0] not in traced.live or lookup_of(traced, node) is None)
        ):
            return None
        if whole.isdisjoint((*node.input, *node.output)):
            continue
        if node.op_type not in _ALL_INPUTS | _FIRST_INPUT | QUANTISED:
            return None
    return graph.written()


def _computes_index(graph: _Graph, node: onnx.NodeProto, computed: Set[str]) -> bool:
    """Whether a node makes integers of real numbers, or computes with such."""
    own = node.op_type in RANKING or not graph.numbers.isdisjoint(node.output)
    return own or not computed.isdisjoint(node.input)


def _is_row_of_a_table(traced: Trace, node: onnx.NodeProto, computed: Collection[str]) -> bool:
    """Whether a Gather selects rows of a constant table, by indices that the graph computes."""
    rows = node.op_type == "Gather" and not attributes_of(node).get("axis", 0)
    table = traced.values[node.input[0]]
    return (
        rows and node.input[0] not in traced.live and table.ndim == 2 and node.input[1] in computed
    )


class _Graph:
    def __init__(
        self,
        model: onnx.ModelProto,
        traced: Trace,
        opset: int,
        numbered: NumbersOfIndices | None,
    ) -> None:
        self.model, self.traced, self.opset = model, traced, opset
        self.indices = numbered.indices if numbered else frozenset[str]()
        self.lookups = numbered.lookups if numbered else frozenset[str]()
        self.numbers = numbered.numbers if numbered else frozenset[str]()
        self.constants: dict[str, Array] = {}
        self.nodes: list[onnx.NodeProto] = []

    def is_whole(self, name: str) -> bool:
        """Whether a value has truths or integers."""
        return self.traced.values[name].dtype.kind in "biu" and name not in self.indices

    def is_of_indices(self, node: onnx.NodeProto) -> bool:
        """Whether a node moves the integers that look up rows of a table, or looks them up."""
        return not (self.indices | self.lookups).isdisjoint(node.output)

    def written(self) -> onnx.ModelProto:
        """The model with every live value real."""
        for node in self.traced.nodes:
            if self.traced.live.isdisjoint(node.output) or self.is_of_indices(node):
                self.nodes.append(node)
            else:
                self.nodes += self._real(node)
        written = onnx.ModelProto()
        written.CopyFrom(self.model)
        graph = written.graph
        del graph.node[:]
        del graph.value_info[:]
        graph.node.extend(self.nodes)
        graph.initializer.extend(
            numpy_helper.from_array(array, name) for name, array in self.constants.items()
        )
        for value in (*graph.input, *graph.output):
            if value.name in self.traced.live - self.indices:
                value.type.tensor_type.elem_type = TensorProto.DOUBLE
        return written

    def _real(self, node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
        """The node, or those that compute the same of real numbers."""
        new = onnx.NodeProto()
        new.CopyFrom(node)
        if node.op_type in (*QUANTISED, *RANKING):
            parts = _Parts(self, new)
            _RULES.get(node.op_type, _ranked)(parts)
            yield from parts.nodes
            return
        count = len(node.input) if node.op_type in _ALL_INPUTS else 1
        for place, name in enumerate(node.input[:count]):
            if name and name not in self.traced.live and self.is_whole(name):
                new.input[place] = self.constant(name)
        of_whole = [self.is_whole(name) for name in node.input[:count] if name]
        integers = node.op_type in ("Div", "Mod") and all(of_whole)
        if node.op_type == "Mod" and not integers:
            raise UnsupportedError("a remainder of real numbers is no layer's")
        if node.op_type in _LOGIC and any(
            not np.isfinite(self.traced.values[name]).all()
            for name in node.input
            if name not in self.traced.live
        ):
            raise UnsupportedError("the difference from an infinite number is none")
        rule = _RULES.get(node.op_type + ("/integers" if integers else ""))
        casts = node.op_type in ("Cast", "CastLike")
        if casts:
            kinds = [
                self.traced.values[name].dtype.kind for name in (node.input[0], node.output[0])
            ]
            kinds[0] = "i" if node.output[0] in self.numbers else kinds[0]
            rule = _cast_rule(*kinds)
        if rule is None:
            yield new
            return
        parts = _Parts(self, new, node.input)
        rule(parts)
        yield from parts.nodes

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
        name = f"dlb/{value:g}"
        self.constants[name] = np.array(value, _DOUBLE)
        return name


class _Parts:
    """Nodes that stand for one, the last of which has its output."""

    def __init__(self, graph: _Graph, node: onnx.NodeProto, own: Sequence[str] = ()) -> None:
        self.graph, self.node = graph, node
        self.inputs, self.own = list(node.input), list(own)
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
        if all(map(self.graph.is_whole, self.own)):
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
        rank = max(traced.values[each].ndim for each in (self.node.input[0], self.node.output[0]))
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

    def places(self, indices: str, size: int, axis: int, last: bool = False) -> str:
        """1 at each index along a new axis of a size, 0 elsewhere."""
        rank = self.graph.traced.values[indices].ndim
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


def _dequantized(parts: _Parts) -> None:
    x, scale, zero = _padded(parts.inputs, 3)
    parts.real(x, scale, zero, attributes_of(parts.node).get("axis", 1), last=True)


def _quantized(parts: _Parts) -> None:
    x, scale, zero = _padded(parts.inputs, 3)
    parts.quantized(x, scale, zero, attributes_of(parts.node).get("axis", 1))


def _product_of_quantized(parts: _Parts) -> None:
    """QLinearMatMul and QLinearConv; the weights of a convolution have a scale for each output."""
    a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = parts.inputs[:8]
    conv = parts.node.op_type == "QLinearConv"
    first = parts.real(a, a_scale, a_zero, 1)
    second = parts.real(b, b_scale, b_zero, 0 if conv else -1)
    if conv:
        product = parts.add("Conv", first, second, **attributes_of(parts.node))
        if len(parts.inputs) > 8:
            product = parts.add("Add", product, parts.bias(parts.inputs[8], a_scale, b_scale))
    else:
        product = parts.add("MatMul", first, second)
    parts.quantized(product, scale, zero, 1)


def _product_of_integers(parts: _Parts) -> None:
    """MatMulInteger and ConvInteger: products of differences from the zero points."""
    a, b, a_zero, b_zero = _padded(parts.inputs, 4)
    conv = parts.node.op_type == "ConvInteger"
    # The first matrix may have a zero point for each row.
    first = parts.real(a, "", a_zero, 1 if conv else -2)
    second = parts.real(b, "", b_zero, 0 if conv else -1)
    attributes = attributes_of(parts.node) if conv else {}
    parts.add("Conv" if conv else "MatMul", first, second, last=True, **attributes)


def _dynamically_quantized(parts: _Parts) -> None:
    """By the least and the largest number of a sample, as for a batch of one; 0 is between both."""
    (x,), (_, scale, zero) = parts.inputs, parts.node.output
    values = parts.graph.traced.values[x]
    axes = list(range(1, values.ndim))
    below = parts.add("Relu", parts.add("Neg", parts.reduced("ReduceMin", x, axes)))
    above = parts.add("Relu", parts.reduced("ReduceMax", x, axes))
    top = parts.graph.number(255)
    parts.add("Div", parts.add("Add", above, below), top, output=scale)
    parts.add("Round", parts.add("Div", below, scale), output=zero)
    moved = parts.add("Add", parts.add("Round", parts.add("Div", x, scale)), zero)
    parts.add("Clip", moved, parts.graph.number(0), top, last=True)


def _ranked(parts: _Parts) -> None:
    """Indices as real numbers."""
    indices = parts.node.output[-1]
    whole = f"{indices}/whole"
    parts.node.output[-1] = whole
    parts.nodes.append(parts.node)
    parts.add("Cast", whole, output=indices, to=TensorProto.DOUBLE)


def _looked_up(parts: _Parts) -> None:
    """By indices that are real numbers."""
    data, indices = parts.inputs
    if indices in parts.graph.traced.live:
        indices = parts.add("Cast", indices, to=TensorProto.INT64)
    parts.add(parts.node.op_type, data, indices, last=True, **attributes_of(parts.node))


def _one_hot(parts: _Parts) -> None:
    """1 where an index is that place's, 0 elsewhere, then between both values."""
    graph, (indices, depth, values) = parts.graph, parts.inputs
    if not graph.traced.live.isdisjoint((depth, values)):
        raise UnsupportedError("how many places it has, or their values, depend on the input")
    output = graph.traced.values[parts.node.output[0]]
    axis = attributes_of(parts.node).get("axis", -1) % output.ndim
    off, on = (float(number) for number in graph.traced.values[values].ravel())
    found = parts.places(indices, output.shape[axis], axis, last=(off, on) == (0, 1))
    if (off, on) != (0, 1):
        scaled = parts.add("Mul", found, graph.number(on - off))
        parts.add("Add", scaled, graph.number(off), last=True)


def _scattered(parts: _Parts) -> None:
    """Numbers put in computed places among zeros: each times a 1 in its place, added up."""
    graph, (data, indices, updates) = parts.graph, parts.inputs
    traced, added = graph.traced, attributes_of(parts.node).get("reduction", "none")
    if indices not in traced.live:
        parts.nodes.append(parts.node)
        return
    zeros = data not in traced.live and not traced.values[data].any()
    shapes = [list(traced.values[name].shape) for name in (data, indices)]
    axis = attributes_of(parts.node).get("axis", 0) % len(shapes[0])
    size = shapes[0].pop(axis)
    shapes[1].pop(axis)
    if shapes[0] != shapes[1] or not (added == "add" or (zeros and added == "none")):
        raise UnsupportedError("it replaces numbers in places that depend on the input")
    # [..., count, ...] and a new axis behind it, of the places.
    found = parts.places(indices, size, axis + 1)
    raised = parts.unsqueezed(updates, axis + 1)
    each = parts.add("Mul", raised, found)
    total = parts.summed(each, axis, last=zeros)
    if not zeros:
        parts.add("Add", data, total, last=True)


def _row(parts: _Parts) -> None:
    """A row of a table: the table's product with a 1 in that row's place."""
    graph, (table, indices) = parts.graph, parts.inputs
    if indices not in graph.traced.live or table in graph.traced.live:
        _looked_up(parts)
        return
    rank = graph.traced.values[indices].ndim
    found = parts.places(indices, len(graph.traced.values[table]), rank)
    parts.add("MatMul", found, table, last=True)


def _equal(parts: _Parts) -> None:
    if all(map(parts.graph.is_whole, parts.own)):
        first, second = parts.inputs
        parts.same(first, second, last=True)
    else:
        parts.opposite(parts.differs())


def _padded(names: Sequence[str], count: int) -> list[str]:
    return [*names, *[""] * count][:count]


def _remainder(parts: _Parts) -> None:
    """Of a division that is rounded down; with ``fmod``, towards 0."""
    first, second = parts.inputs
    quotient, margin = parts.add("Div", first, second), parts.margin(second)
    if attributes_of(parts.node).get("fmod", 0):
        size = parts.add("Floor", parts.add("Add", parts.add("Abs", quotient), margin))
        rounded = parts.add("Mul", parts.add("Sign", quotient), size)
    else:
        rounded = parts.add("Floor", parts.add("Add", quotient, margin))
    parts.add("Sub", first, parts.add("Mul", rounded, second), last=True)


def _cast_rule(source: str, target: str) -> Callable[[_Parts], Any]:
    """A cast from one kind of NumPy's to another."""
    if target == "b" and source in "iu":
        return lambda parts: parts.less(
            True, parts.graph.number(0), parts.add("Abs", parts.inputs[0])
        )
    if target == "b" and source != "b":
        return lambda parts: parts.add("Abs", parts.add("Sign", parts.inputs[0]), last=True)
    if target in "iu" and source == "f":
        return lambda parts: parts.whole_part(parts.inputs[0])
    return lambda parts: parts.add("Identity", parts.inputs[0], last=True)


def _either(parts: _Parts) -> None:
    twice = parts.add("Mul", parts.graph.number(2), parts.add("Mul", *parts.inputs))
    parts.add("Sub", parts.add("Add", *parts.inputs), twice, last=True)


def _where(parts: _Parts) -> None:
    """Of constants that are more than one number, the truth times them, and its opposite times the others."""
    condition, *values = parts.inputs
    traced, zero = parts.graph.traced, parts.graph.number(0)
    constant = [name not in traced.live for name in values]
    several = [held and traced.values[name].size > 1 for held, name in zip(constant, parts.own[1:])]
    shares = [condition, parts.add("Sub", parts.graph.number(1), condition)]
    products = [
        parts.add("Mul", share, name)
        for share, name, apart in zip(shares, values, several)
        if apart or all(constant)
    ]
    if all(constant):
        parts.add("Add", *products, last=True)
        return
    truth = parts.add("Cast", condition, to=TensorProto.BOOL)
    chosen = [zero if apart else name for apart, name in zip(several, values)]
    if products:
        parts.add("Add", parts.add("Where", truth, *chosen), *products, last=True)
    else:
        parts.add("Where", truth, *chosen, last=True)


_RULES: Mapping[str, Callable[[_Parts], Any]] = {
    "And": lambda parts: parts.add("Mul", *parts.inputs, last=True),
    "ConvInteger": _product_of_integers,
    "DequantizeLinear": _dequantized,
    "Div/integers": lambda parts: parts.whole_part(
        parts.add("Div", *parts.inputs), parts.margin(parts.inputs[1])
    ),
    "Equal": _equal,
    "Gather": _row,
    **dict.fromkeys(("GatherElements", "GatherND"), _looked_up),
    "Greater": lambda parts: parts.less(True, parts.inputs[1], parts.inputs[0]),
    "GreaterOrEqual": lambda parts: parts.opposite(parts.less(False, *parts.inputs)),
    "Less": lambda parts: parts.less(True, *parts.inputs),
    "LessOrEqual": lambda parts: parts.opposite(
        parts.less(False, parts.inputs[1], parts.inputs[0])
    ),
    DYNAMIC: _dynamically_quantized,
    "MatMulInteger": _product_of_integers,
    "Mod/integers": _remainder,
    "Not": lambda parts: parts.opposite(parts.inputs[0]),
    "OneHot": _one_hot,
    "Or": lambda parts: parts.add(
        "Sub", parts.add("Add", *parts.inputs), parts.add("Mul", *parts.inputs), last=True
    ),
    "QLinearConv": _product_of_quantized,
    "QLinearMatMul": _product_of_quantized,
    "QuantizeLinear": _quantized,
    "ScatterElements": _scattered,
    "Where": _where,
    "Xor": _either,
}
