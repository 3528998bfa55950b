"""Truths and integers that a graph computes, as real numbers: layers compute no others.

A truth is 0 or 1. On these, Not is 1 - x, And a product, Or a sum less a product, and a comparison a sign of a
difference: the graph after it has the same values as real numbers. What is compared must be finite.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Set

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from dlb_graph.errors import UnsupportedError
from dlb_graph.rewriting.node_writer import opset_of, with_nodes
from dlb_graph.rewriting.numbers_of_indices import with_numbers_of_indices
from dlb_graph.rewriting.real_parts import Parts, WholeGraph
from dlb_graph.rewriting.real_rules import DYNAMIC, LOGIC, QUANTISED, rule_of
from dlb_graph.truth.layout import LAYOUT
from dlb_graph.truth.lookups import RANKING, lookup_of
from dlb_graph.truth.precision import REAL_TYPES, in_precision
from dlb_graph.truth.trace import Trace, attributes_of, trace

__all__ = ["real_numbers"]

#: Operators all of whose inputs are numbers of one type.
_ALL_INPUTS = LOGIC | {
    "Add", "Concat", "Div", "Einsum", "Gemm", "MatMul", "Max", "Mean", "Min", "Mod", "Mul", "Clip", "PRelu",
    "Pow", "Sub", "Sum", "Where",
}  # fmt: skip
#: Operators that read their first input as numbers of any type.
_FIRST_INPUT = {*LAYOUT, *RANKING} | {
    "Abs", "Cast", "CastLike", "Expand", "Gather", "GatherElements", "GatherND", "MaxPool", "Neg", "OneHot",
    "ScatterElements", "ReduceL1", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "ReduceSumSquare",
    "Relu", "Resize", "Sign", "Slice", "Split", "Tile", "Trilu",
}  # fmt: skip
#: Operators whose other live inputs are indices of a table.
_LOOKING_UP = ("Gather", "OneHot")
#: Operators without which no value is anything but real.
_WHOLE = {*LOGIC, *QUANTISED, *RANKING, "Cast", "CastLike"}
#: The first operator sets that have Sign, and Round.
_SIGN, _ROUND = 9, 11


def real_numbers(
    model: onnx.ModelProto, *, of_indices: bool = True, by_sample: bool = True
) -> onnx.ModelProto | None:
    """A model in float64 whose values that depend on the input are real, whatever they are in ``model``.

    Args:
        of_indices: integers of the input that look up rows of a table may be computed with.
        by_sample: dynamic quantisation is written as that of each sample; else a model with it stays.

    Returns:
        None if they are real already, if integers look up a table in another way, if an operator is none
        of those whose numbers may be of another type, or if the model cannot be run.
    """
    try:
        return _real_numbers(model, of_indices, by_sample)
    except UnsupportedError:
        return None


def _real_numbers(
    model: onnx.ModelProto, of_indices: bool, by_sample: bool
) -> onnx.ModelProto | None:
    operators = {node.op_type for node in model.graph.node}
    if DYNAMIC in operators and not by_sample:  # an older onnx has not written it out
        return None
    whole_inputs = any(
        value.type.tensor_type.elem_type not in REAL_TYPES for value in model.graph.input
    )
    if operators & {"If", "Loop", "Scan"} or not (operators & _WHOLE or whole_inputs):
        return None
    opset = opset_of(model)
    compares = operators & _WHOLE - {"And", "Not", "Or", "Xor"}
    if opset < (_ROUND if operators & QUANTISED else _SIGN if compares else 0):
        return None
    model = in_precision(model, TensorProto.DOUBLE)
    traced = trace(model)
    numbered = with_numbers_of_indices(model, traced, opset) if of_indices else None
    if numbered is not None:
        model = numbered.model
        traced = trace(model)
    graph = WholeGraph(traced, opset, numbered)
    not_real = {name for name in traced.live if name in traced.values and graph.is_whole(name)}
    if not not_real and numbered is None:
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
        if not_real.isdisjoint((*node.input, *node.output)):
            continue
        if node.op_type not in _ALL_INPUTS | _FIRST_INPUT | QUANTISED:
            return None
    return _written(graph, model)


def _computes_index(graph: WholeGraph, node: onnx.NodeProto, computed: Set[str]) -> bool:
    """Whether a node makes integers of real numbers, or computes with such."""
    values = graph.traced.values
    cast = node.op_type == "Cast" and values[node.input[0]].dtype.kind == "f"
    cast = cast and values[node.output[0]].dtype.kind in "iu"
    computes = node.op_type in RANKING or cast or not graph.numbers.isdisjoint(node.output)
    return computes or not computed.isdisjoint(node.input)


def _is_row_of_a_table(traced: Trace, node: onnx.NodeProto, computed: Collection[str]) -> bool:
    """Whether a Gather selects rows of a constant table, by indices that the graph computes."""
    rows = node.op_type == "Gather" and not attributes_of(node).get("axis", 0)
    table = traced.values[node.input[0]]
    return (
        rows and node.input[0] not in traced.live and table.ndim == 2 and node.input[1] in computed
    )


def _written(graph: WholeGraph, model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with every live value real."""
    live, nodes = graph.traced.live, list[onnx.NodeProto]()
    for node in graph.traced.nodes:
        if live.isdisjoint(node.output) or graph.is_of_indices(node):
            nodes.append(node)
        else:
            nodes += _real(graph, node)
    constants = (numpy_helper.from_array(array, name) for name, array in graph.constants.items())
    written = with_nodes(model, nodes, constants)
    del written.graph.value_info[:]
    for value in (*written.graph.input, *written.graph.output):
        if value.name in live - graph.indices:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    return written


def _real(graph: WholeGraph, node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    """The node, or those that compute the same of real numbers."""
    new = onnx.NodeProto()
    new.CopyFrom(node)
    traced, numbers_read = graph.traced, list(node.input)
    integers = False
    if node.op_type in (*QUANTISED, *RANKING):
        numbers_read = []
    else:
        count = len(node.input) if node.op_type in _ALL_INPUTS else 1
        for place, name in enumerate(node.input[:count]):
            if name and name not in traced.live and graph.is_whole(name):
                new.input[place] = graph.constant(name)
        integers = all(graph.is_whole(name) for name in node.input[:count] if name)
        if node.op_type == "Mod" and not integers:
            raise UnsupportedError("a remainder of real numbers is no layer's")
        if node.op_type in LOGIC and any(
            not np.isfinite(traced.values[name]).all()
            for name in node.input
            if name not in traced.live
        ):
            raise UnsupportedError("the difference from an infinite number is none")
    rule = rule_of(graph, node, integers=integers)
    if rule is None:
        yield new
        return
    parts = Parts(graph, new, numbers_read)
    rule(parts)
    yield from parts.nodes
