"""What agreement on a few random inputs says about all inputs.

Two analytic functions that agree on an open set agree everywhere. So random inputs decide, with probability
one (as in Schwartz 1980 and Zippel 1979 for polynomials). But a kink, a jump or a bound may lie where no
input was tried. So an operator with one needs a counterpart in the other model: the same operator that
reads the same values. What lies between such operators is analytic.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import numpy as np
import onnx
from onnx import helper

from dlb_graph.comparing.counterparts import same_values
from dlb_graph.layers.functions import FUNCTIONS
from dlb_graph.truth.bounds import bounds_of
from dlb_graph.truth.copies import copied_value
from dlb_graph.truth.evaluate import names_read
from dlb_graph.truth.layout import LAYOUT, RESIZING, SCATTERING, SELECTING
from dlb_graph.truth.lookups import RANKING, between_lookups, lookup_of, one_hot_table, ranking_of
from dlb_graph.truth.recognised import Block, Recognised
from dlb_graph.truth.recognition import recognise
from dlb_graph.truth.trace import Trace, attributes_of, node_name

__all__ = [
    "complete_attributes",
    "default_attributes",
    "is_analytic",
    "show_functions",
    "undecided_nodes",
]

# fmt: off
_ANALYTIC = LAYOUT | {
    "Acos", "Acosh", "Add", "Asin", "Asinh", "Atan", "Atanh", "AveragePool", "BatchNormalization",
    "Concat", "Conv", "ConvTranspose", "Cos", "Cosh", "CumSum", "Div", "Dropout", "Einsum", "Erf",
    "Exp", "Expand", "GRU", "Gelu", "Gemm", "GlobalAveragePool", "GroupNormalization",
    "InstanceNormalization", "LRN", "LSTM", "LayerNormalization", "Log", "LogSoftmax",
    "LpNormalization", "MatMul", "Mean", "Mish", "Mul", "Neg", "Pad", "Pow", "RMSNormalization",
    "Reciprocal", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean", "ReduceSum",
    "ReduceSumSquare", "Sigmoid", "Sin", "Sinh", "Slice", "Softmax", "Softplus", "Split", "Sqrt",
    "Sub", "Sum", "Swish", "Tan", "Tanh", "Tile", "Trilu",
}
# fmt: on
#: Noise reaches every piece of these operators, so equal values show that their attributes agree.
_REACHED = frozenset(
    ("Abs", "GlobalMaxPool", "MaxPool", "ReduceL1", "ReduceMax", "ReduceMin", "Relu")
)

#: Operators that are another one with windows as large as the map.
_ALSO = {"GlobalMaxPool": "MaxPool"}


def undecided_nodes(first: Trace, second: Trace, tolerance: float) -> tuple[str, ...]:
    """Nodes that are not analytic and have no counterpart, as ``Relu 'name'``.

    Args:
        first, second: traces on the same random inputs.
        tolerance: the largest relative L2 distance of equal values.

    Returns:
        empty if agreement on these inputs shows agreement on all inputs.
    """
    first, second = (show_functions(recognise(traced)) for traced in (first, second))
    # On noise, the same numbers in another order are the same values: windows, or steps first.
    equal_values = same_values(first, second, tolerance, any_order=True)
    pair = _Pair(first, second, equal_values)
    first_nodes, second_nodes = list(_non_analytic_nodes(first)), list(_non_analytic_nodes(second))
    for node in list(first_nodes):
        for counterpart in second_nodes:
            ranks = node.op_type in RANKING and counterpart.op_type in RANKING
            equal = ranks or counterpart.output[0] in equal_values.get(node.output[0], [])
            if equal and pair.compute_same(node, counterpart):
                first_nodes.remove(node)
                second_nodes.remove(counterpart)
                break
    return tuple(f"{node.op_type} '{node_name(node)}'" for node in (*first_nodes, *second_nodes))


@dataclass(frozen=True)
class _Pair:
    """Two graphs, and for each value of the first the equal ones of the second."""

    first: Trace
    second: Trace
    equal_values: Mapping[str, list[str]]

    def read_same(self, name: str, other: str) -> bool:
        """Whether an input of a node of each is the same: an equal value, an equal constant, or left out."""
        if not name or not other:
            return name == other
        if name in self.first.live or other in self.second.live:
            return other in self.equal_values.get(name, [])
        return np.array_equal(self.first.values[name], self.second.values[other])

    def compute_same(self, node: onnx.NodeProto, counterpart: onnx.NodeProto) -> bool:
        """Whether two nodes with equal values are the same function of equal values."""
        sides = (self.first, node), (self.second, counterpart)
        limits = [_limits(*side) for side in sides]
        if None not in limits:
            # Bounds are written by several operators.
            (name,), (other,) = (traced.live_inputs(one) for traced, one in sides)
            return limits[0] == limits[1] and self.read_same(name, other)
        table, other_table = (_table(*side) for side in sides)
        if table is not None and other_table is not None:
            return np.array_equal(table[1], other_table[1]) and self.read_same(
                table[0], other_table[0]
            )
        if node.op_type in RANKING and counterpart.op_type in RANKING:
            same = self.read_same(node.input[0], counterpart.input[0])
            return same and _ranks(self.first, node) == _ranks(self.second, counterpart)
        lookup, other_lookup = (lookup_of(*side) for side in sides)
        if lookup is not None and other_lookup is not None:
            indices = [
                (lookup.indices, other_lookup.indices),
                (lookup.given, other_lookup.given),
                (node.input[1], counterpart.input[1]),
            ]
            return self.read_same(lookup.data, other_lookup.data) and any(
                self.read_same(*names) for names in indices
            )
        kinds = [_ALSO.get(one.op_type, one.op_type) for one in (node, counterpart)]
        if kinds[0] != kinds[1]:
            return False
        reads = list(zip_longest(node.input, counterpart.input, fillvalue=""))
        if node.op_type in _REACHED:
            reads = reads[:1]
        elif _attributes(self.first, node) != _attributes(self.second, counterpart):
            return False
        return all(self.read_same(*names) for names in reads)


def _ranks(traced: Trace, node: onnx.NodeProto) -> tuple[int, bool, int] | None:
    """What a node looks for, among how many numbers."""
    if (found := ranking_of(traced, node)) is None:
        return None
    size = traced.values[node.input[0]].shape[found.axis]
    return found.k, found.largest, size


def _table(traced: Trace, node: onnx.NodeProto) -> tuple[str, np.ndarray[Any, Any]] | None:
    """The indices and the constant table that a node looks up, a table of ones too; None for any other."""
    if node.op_type == "Gather" and node.input[0] not in traced.live:
        rows = traced.values[node.input[0]]
        axis = attributes_of(node).get("axis", 0)
        return (node.input[1], rows) if rows.ndim == 2 and axis == 0 else None
    return one_hot_table(traced, node) if node.op_type in ("Equal", "OneHot") else None


def _limits(traced: Trace, node: onnx.NodeProto) -> tuple[float, float] | None:
    """The bounds of a node that limits a value by constant numbers; None for any other."""
    if node.op_type == "Relu":
        return 0.0, math.inf
    if node.op_type not in ("Clip", "Max", "Min"):
        return None
    return bounds_of(traced, node, attributes_of(node))


def is_analytic(traced: Trace, node: onnx.NodeProto) -> bool:
    """Whether the function of a node has no kink, no jump, no bound and no choice."""
    if _limits(traced, node) == (-math.inf, math.inf):
        return True
    if node.op_type == "Cast":
        kinds = [traced.values[name].dtype for name in (node.input[0], node.output[0])]
        return kinds[0] == kinds[1] or (kinds[0].kind, kinds[1].kind) == ("b", "f")
    # Of indices and sizes that do not depend on the input.
    if node.op_type in ("Gather", *SELECTING, *RESIZING):
        return traced.live.isdisjoint(node.input[1:])
    if node.op_type in SCATTERING:
        added = attributes_of(node).get("reduction", "none") in ("none", "add")
        return added and node.input[1] not in traced.live
    if node.op_type == "Where" and node.input[0] not in traced.live:
        return True
    if node.op_type in ("IsNaN", "Where"):
        return _replaces_empty_rows(traced, node)
    if node.op_type == "RNN":
        named = attributes_of(node).get("activations", [])
        return all(name.decode().lower() == "tanh" for name in named)
    return node.op_type in _ANALYTIC


def _replaces_empty_rows(traced: Trace, node: onnx.NodeProto) -> bool:
    """Whether a node replaces softmax rows that a mask leaves empty by a constant, or finds such rows.

    Which rows these are does not depend on the values that attention reads.
    """
    test_node = traced.producers.get(node.input[0]) if node.op_type == "Where" else node
    if test_node is None or test_node.op_type != "IsNaN":
        return False
    softmax = traced.producers.get(test_node.input[0])
    if softmax is None or softmax.op_type != "Softmax":
        return False
    return node is test_node or (
        node.input[2] in softmax.output and node.input[1] not in traced.live
    )


def show_functions(known: Recognised) -> Trace:
    """Write every function of single numbers as its operator, which models write in several ways.

    A hard sigmoid or hard swish is written with one Clip of x + 3 between 0 and 6. Everything except the
    Clip is analytic.
    """
    traced = known.trace
    blocks = {
        end: block
        for end, block in known.blocks.items()
        if block.kind in ("HardSigmoid", "HardSwish") or _has_operator(traced, block)
    }
    if not blocks:
        return traced
    inside = {name for block in blocks.values() for name in block.intermediates}
    values, live = traced.values.copy(), set(traced.live)
    nodes: list[onnx.NodeProto] = []
    read = set(traced.outputs)
    for node in reversed(traced.nodes):
        if inside.issuperset(node.output) and read.isdisjoint(node.output):
            continue
        block = blocks.get(node.output[0])
        if block is None:
            nodes.append(node)
            read |= names_read(node)
            continue
        ((x,), y) = block.inputs, node.output[0]
        read.add(x)
        if "function" in block.attributes:
            nodes.append(_as_operator(block, node))
            continue
        shifted, clipped, low, high = (
            f"{y}/{part}" for part in ("raised", "clipped", "low", "high")
        )
        values[shifted] = values[x] + 3
        values[clipped] = np.clip(values[shifted], 0, 6)
        values[low], values[high] = (np.array(bound, values[x].dtype) for bound in (0, 6))
        live |= {shifted, clipped}
        nodes += [
            helper.make_node("Mul", [clipped, x], [y], name=node.name),
            helper.make_node("Clip", [shifted, low, high], [clipped], name=node_name(node)),
            helper.make_node("Add", [x], [shifted]),
        ]
    nodes.reverse()
    producers = {name: node for node in nodes for name in node.output if name}
    return replace(
        traced, nodes=tuple(nodes), values=values, live=frozenset(live), producers=producers
    )


def _has_operator(traced: Trace, block: Block) -> bool:
    """Whether a block is a function that the model's operator set has as an operator."""
    function = FUNCTIONS.get(block.attributes.get("function", ""))
    version = max(entry.version for entry in traced.opsets if entry.domain in ("", "ai.onnx"))
    return function is not None and onnx.defs.has(function.operator, version)


def _as_operator(block: Block, end: onnx.NodeProto) -> onnx.NodeProto:
    numbers = {name: n for name, n in block.attributes.items() if name != "function"}
    operator = FUNCTIONS[block.attributes["function"]].operator
    return helper.make_node(operator, block.inputs, end.output, name=end.name, **numbers)


def _non_analytic_nodes(traced: Trace) -> Iterator[onnx.NodeProto]:
    """Nodes between the inputs and the outputs that are not analytic."""
    needed = set(traced.outputs) & traced.live
    between = []
    for node in reversed(traced.nodes):
        if not needed.isdisjoint(node.output):  # a value whose shape alone is read is not needed
            needed |= names_read(node) & traced.live
            between.append(node)
    bounds = between_lookups(traced)
    for node in reversed(between):
        if not bounds.isdisjoint(node.output) or _is_ranked(traced, node):
            continue
        if not is_analytic(traced, node) and copied_value(traced, node, node.output[0]) is None:
            yield node


def _is_ranked(traced: Trace, node: onnx.NodeProto) -> bool:
    """Whether a node selects what a TopK found to be the largest or smallest: no other choice than that."""
    found = lookup_of(traced, node)
    producer = None if found is None else traced.producers.get(found.indices)
    return (
        producer is not None
        and producer.op_type in RANKING
        and found is not None
        and (found.data == producer.input[0])
    )


def _attributes(traced: Trace, node: onnx.NodeProto) -> str:
    attributes = complete_attributes(traced, node)
    if node.op_type == "Cast":  # others are of types that no graph of real numbers has
        attributes = {"to": attributes["to"]}
    return repr(sorted(attributes.items()))


def complete_attributes(traced: Trace, node: onnx.NodeProto) -> dict[str, Any]:
    """The attributes of a node, with ONNX's own values of those that are not written."""
    return {**default_attributes(traced, node), **attributes_of(node)}


def default_attributes(traced: Trace, node: onnx.NodeProto) -> dict[str, Any]:
    """ONNX's own values of a node's attributes."""
    onnx_domains = ("", "ai.onnx")
    domains = onnx_domains if node.domain in onnx_domains else (node.domain,)
    version = max(entry.version for entry in traced.opsets if entry.domain in domains)
    schema = onnx.defs.get_schema(node.op_type, version, node.domain)
    defaults = [entry.default_value for entry in schema.attributes.values()]
    default_node = helper.make_node(node.op_type, [], [])
    default_node.attribute.extend(entry for entry in defaults if entry.type)
    return attributes_of(default_node)
