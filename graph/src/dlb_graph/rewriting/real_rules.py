"""What each operator of truths and integers is in real numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx
from onnx import TensorProto

from dlb_graph.errors import UnsupportedError
from dlb_graph.rewriting.real_parts import Parts, WholeGraph
from dlb_graph.truth.lookups import RANKING
from dlb_graph.truth.trace import attributes_of

__all__ = ["DYNAMIC", "LOGIC", "QUANTISED", "rule_of"]

#: Operators that compute a truth, and those that read truths as numbers.
LOGIC = frozenset((
    "And", "Equal", "Greater", "GreaterOrEqual", "IsNaN", "Less", "LessOrEqual", "Not", "Or", "Xor",
))  # fmt: skip
#: Quantises by the least and the largest number of all samples.
DYNAMIC = "DynamicQuantizeLinear"
#: Operators of quantised numbers.
QUANTISED = frozenset((
    "ConvInteger", "DequantizeLinear", DYNAMIC, "MatMulInteger", "QLinearConv", "QLinearMatMul",
    "QuantizeLinear",
))  # fmt: skip

Rule = Callable[[Parts], Any]


def rule_of(graph: WholeGraph, node: onnx.NodeProto, *, integers: bool) -> Rule | None:
    """The rule that writes a node in other ones; None if it computes the same with real numbers.

    Args:
        integers: all that the node reads is whole.
    """
    if node.op_type in RANKING:
        return _ranked
    if node.op_type in ("Cast", "CastLike"):
        names = (node.input[0], node.output[0])
        source, target = (graph.traced.values[name].dtype.kind for name in names)
        return _cast_rule("i" if node.output[0] in graph.numbers else source, target)
    of_integers = node.op_type in ("Div", "Mod") and integers
    return _RULES.get(node.op_type + ("/integers" if of_integers else ""))


def _dequantized(parts: Parts) -> None:
    x, scale, zero = _padded(parts.inputs, 3)
    parts.real(x, scale, zero, attributes_of(parts.node).get("axis", 1), last=True)


def _quantized(parts: Parts) -> None:
    x, scale, zero = _padded(parts.inputs, 3)
    parts.quantized(x, scale, zero, attributes_of(parts.node).get("axis", 1))


def _product_of_quantized(parts: Parts) -> None:
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


def _product_of_integers(parts: Parts) -> None:
    """MatMulInteger and ConvInteger: products of differences from the zero points."""
    a, b, a_zero, b_zero = _padded(parts.inputs, 4)
    conv = parts.node.op_type == "ConvInteger"
    # The first matrix may have a zero point for each row.
    first = parts.real(a, "", a_zero, 1 if conv else -2)
    second = parts.real(b, "", b_zero, 0 if conv else -1)
    attributes = attributes_of(parts.node) if conv else {}
    parts.add("Conv" if conv else "MatMul", first, second, last=True, **attributes)


def _dynamically_quantized(parts: Parts) -> None:
    """By the least and the largest number of a sample, as for a batch of one; 0 is between both."""
    (x,), (_, scale, zero) = parts.inputs, parts.node.output
    values = parts.graph.traced.values[x]
    samples = parts.graph.traced.batch
    own = (
        values.shape.index(samples) if samples in values.shape else None
    )  # of a file of one sample
    axes = [axis for axis in range(values.ndim) if axis != own]
    below = parts.add("Relu", parts.add("Neg", parts.reduced("ReduceMin", x, axes)))
    above = parts.add("Relu", parts.reduced("ReduceMax", x, axes))
    top = parts.graph.number(255)
    parts.add("Div", parts.add("Add", above, below), top, output=scale)
    parts.add("Round", parts.add("Div", below, scale), output=zero)
    moved = parts.add("Add", parts.add("Round", parts.add("Div", x, scale)), zero)
    parts.add("Clip", moved, parts.graph.number(0), top, last=True)


def _ranked(parts: Parts) -> None:
    """Indices as real numbers."""
    indices = parts.node.output[-1]
    integers = f"{indices}/whole"
    parts.node.output[-1] = integers
    parts.nodes.append(parts.node)
    parts.add("Cast", integers, output=indices, to=TensorProto.DOUBLE)


def _looked_up(parts: Parts) -> None:
    """By indices that are real numbers."""
    data, indices = parts.inputs
    if indices in parts.graph.traced.live:
        indices = parts.add("Cast", indices, to=TensorProto.INT64)
    parts.add(parts.node.op_type, data, indices, last=True, **attributes_of(parts.node))


def _one_hot(parts: Parts) -> None:
    """1 where an index is that place's, 0 elsewhere, then between both values."""
    graph, (indices, depth, values) = parts.graph, parts.inputs
    if not graph.traced.live.isdisjoint((depth, values)):
        raise UnsupportedError("how many places it has, or their values, depend on the input")
    output = graph.traced.values[parts.node.output[0]]
    axis = attributes_of(parts.node).get("axis", -1) % output.ndim
    off, on = (float(number) for number in graph.traced.values[values].ravel())
    places = parts.places(
        indices, output.shape[axis], axis, output.ndim - 1, last=(off, on) == (0, 1)
    )
    if (off, on) != (0, 1):
        scaled = parts.add("Mul", places, graph.number(on - off))
        parts.add("Add", scaled, graph.number(off), last=True)


def _scattered(parts: Parts) -> None:
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
    places = parts.places(indices, size, axis + 1, traced.values[indices].ndim)
    raised = parts.unsqueezed(updates, axis + 1)
    placed = parts.add("Mul", raised, places)
    total = parts.summed(placed, axis, last=zeros)
    if not zeros:
        parts.add("Add", data, total, last=True)


def _row(parts: Parts) -> None:
    """A row of a table: the table's product with a 1 in that row's place."""
    graph, (table, indices) = parts.graph, parts.inputs
    if indices not in graph.traced.live or table in graph.traced.live:
        _looked_up(parts)
        return
    places, rows = indices, len(graph.traced.values[parts.numbers_read[0]])
    if parts.graph.may_be_negative(indices):  # which count from the end
        below = parts.add("Relu", parts.add("Sign", parts.add("Neg", indices)))
        places = parts.add("Add", indices, parts.add("Mul", below, graph.number(rows)))
    rank = graph.traced.values[indices].ndim
    places = parts.places(places, rows, rank, rank)
    parts.add("MatMul", places, table, last=True)


def _equal(parts: Parts) -> None:
    if all(map(parts.graph.is_whole, parts.numbers_read)):
        first, second = parts.inputs
        parts.same(first, second, last=True)
    else:
        parts.opposite(parts.differs())


def _padded(names: Sequence[str], count: int) -> list[str]:
    return [*names, *[""] * count][:count]


def _remainder(parts: Parts) -> None:
    """Of a division that is rounded down; with ``fmod``, towards 0."""
    first, second = parts.inputs
    quotient, margin = parts.add("Div", first, second), parts.margin(second)
    if attributes_of(parts.node).get("fmod", 0):
        size = parts.add("Floor", parts.add("Add", parts.add("Abs", quotient), margin))
        rounded = parts.add("Mul", parts.add("Sign", quotient), size)
    else:
        rounded = parts.add("Floor", parts.add("Add", quotient, margin))
    parts.add("Sub", first, parts.add("Mul", rounded, second), last=True)


def _cast_rule(source: str, target: str) -> Rule:
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


def _either(parts: Parts) -> None:
    twice = parts.add("Mul", parts.graph.number(2), parts.add("Mul", *parts.inputs))
    parts.add("Sub", parts.add("Add", *parts.inputs), twice, last=True)


def _where(parts: Parts) -> None:
    """Of constants that are more than one number, the truth times them, and its opposite times the others."""
    condition, *values = parts.inputs
    traced, zero = parts.graph.traced, parts.graph.number(0)
    constant = [name not in traced.live for name in values]
    spread = [
        is_constant and traced.values[name].size > 1
        for is_constant, name in zip(constant, parts.numbers_read[1:])
    ]
    shares = [condition, parts.add("Sub", parts.graph.number(1), condition)]
    products = [
        parts.add("Mul", share, name)
        for share, name, apart in zip(shares, values, spread)
        if apart or all(constant)
    ]
    if all(constant):
        parts.add("Add", *products, last=True)
        return
    truth = parts.add("Cast", condition, to=TensorProto.BOOL)
    chosen = [zero if apart else name for apart, name in zip(spread, values)]
    if products:
        parts.add("Add", parts.add("Where", truth, *chosen), *products, last=True)
    else:
        parts.add("Where", truth, *chosen, last=True)


_RULES: Mapping[str, Rule] = {
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
    # Of finite numbers 0, as what is compared must be.
    "IsNaN": lambda parts: parts.add("Sub", parts.inputs[0], parts.inputs[0], last=True),
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
