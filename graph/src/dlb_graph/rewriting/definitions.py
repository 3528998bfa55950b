"""Operators as ONNX defines them by simpler ones, and what it defines of several values as of two.

The body of an operator is its definition: https://onnx.ai/onnx/repo-docs/IR.html#functions. A batch
normalisation by numbers that the graph computes is arithmetic: Keras's layer normalisation is exported so,
where each row is a channel, with a mean and a variance of its own.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Collection, Set
from typing import Any

import onnx
from onnx import defs, helper, shape_inference

from dlb_graph.errors import UnsupportedError
from dlb_graph.rewriting.node_writer import OWN, NodeWriter, opset_of, with_nodes, write_out
from dlb_graph.truth.liveness import live_names
from dlb_graph.truth.trace import trace

__all__ = ["definitions", "live_statistics", "pairs", "separate_constants"]

_OF_SEVERAL = ("Max", "Min")
_ARITHMETIC = ("Add", "Div", "Mul", "Sub")
#: Their bodies are loops.
_LOOPS = frozenset(("Range", "SequenceMap"))


def definitions(model: onnx.ModelProto, staying: Collection[str] = ()) -> onnx.ModelProto | None:
    """Replace operators by their bodies, and those of their bodies.

    Args:
        model: with the types and shapes of its inputs, on which some bodies depend.
        staying: operators that are not replaced.
    """
    opset = opset_of(model)
    present = {node.op_type for node in model.graph.node if node.domain in OWN}
    names = {schema.name for schema in defs.get_all_schemas() if schema.domain in OWN}
    names = {name for name in names - _LOOPS - {*staying} if _has_body(name, opset)}
    if names.isdisjoint(present):
        return None
    try:
        from onnx import inliner
    except ImportError:  # onnx before 1.15
        return None
    inline: Any = inliner.inline_selected_functions
    if "inline_schema_functions" not in inspect.signature(inline).parameters:
        return None  # an older onnx inlines the functions of the model alone
    typed = _with_types(model)
    for node in typed.graph.node:
        if node.op_type in names and node.domain in OWN:
            _write_defaults(node, opset)
    try:
        inlined: onnx.ModelProto = inline(
            typed, [("", name) for name in sorted(names)], inline_schema_functions=True
        )
    except RuntimeError:  # the type of what one reads is unknown
        return None
    return inlined


def separate_constants(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """Give each sum and product constants of its own.

    A number that the file keeps rounded may be exact in one layer, and a weight of another as it is.
    """
    graph = model.graph
    live = live_names(graph.node, _inputs(graph))
    used = Counter(
        name for node in graph.node if node.op_type in _ARITHMETIC for name in node.input
    )
    shared = {name for name, count in used.items() if count > 1} - live
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        if node.op_type in _ARITHMETIC and not shared.isdisjoint(node.input):
            inputs = [
                f"{name}/of/{node.output[0]}" if name in shared else name for name in node.input
            ]
            nodes += [
                helper.make_node("Identity", [name], [copy])
                for name, copy in zip(node.input, inputs)
                if name in shared
            ]
            node = onnx.NodeProto.FromString(node.SerializeToString())
            node.input[:] = inputs
        nodes.append(node)
    return with_nodes(model, nodes) if len(nodes) > len(graph.node) else None


def _inputs(graph: onnx.GraphProto) -> list[str]:
    held = {tensor.name for tensor in graph.initializer}
    return [value.name for value in graph.input if value.name not in held]


def pairs(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """Write each Max and Min, and each Clip whose bounds are computed, as Max and Min of two values."""
    live = live_names(model.graph.node, _inputs(model.graph))
    written = [_of_two(node, live) for node in model.graph.node]
    if not any(written):
        return None
    both = zip(model.graph.node, written)
    return with_nodes(model, [one for node, parts in both for one in parts or [node]])


def _of_two(node: onnx.NodeProto, live: Set[str]) -> list[onnx.NodeProto]:
    """Nodes of two values that compute the same as a node; none if it may stay."""
    first, *rest = node.input or [""]
    if node.op_type == "Clip" and not live.isdisjoint(rest):
        steps = [(operator, name) for operator, name in zip(("Max", "Min"), rest) if name]
    elif node.op_type in _OF_SEVERAL and len(rest) != 1:
        steps = [(node.op_type, name) for name in rest]
    else:
        return []
    if not steps:
        return [helper.make_node("Identity", [first], node.output, node.name)]
    nodes = []
    (last,) = node.output
    for place, (operator, other) in enumerate(steps, start=1):
        output = last if place == len(steps) else f"{last}/{place}"
        name = f"{node.name or last}" if output == last else output
        nodes.append(helper.make_node(operator, [first, other], [output], name))
        first = output
    return nodes


def _with_types(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy that declares the type of every value, constants too."""
    typed = shape_inference.infer_shapes(model)
    declared = {value.name for value in (*typed.graph.input, *typed.graph.value_info)}
    typed.graph.value_info.extend(
        helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        for tensor in typed.graph.initializer
        if tensor.name not in declared
    )
    return typed


def _write_defaults(node: onnx.NodeProto, opset: int) -> None:
    """Write the attributes that a node leaves out: a body refers to them."""
    written = {attribute.name for attribute in node.attribute}
    for name, attribute in defs.get_schema(node.op_type, opset, "").attributes.items():
        if name not in written and attribute.default_value.type:
            node.attribute.append(attribute.default_value)


def _has_body(name: str, opset: int) -> bool:
    if not defs.has(name, opset, ""):
        return False
    schema: Any = defs.get_schema(name, opset, "")
    kinds = ("has_function", "has_context_dependent_function")
    return any(getattr(schema, kind, False) for kind in kinds)


def live_statistics(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """Write out each BatchNormalization whose statistics depend on the inputs' numbers."""
    if not any(node.op_type == "BatchNormalization" for node in model.graph.node):
        return None
    try:
        traced = trace(model)
    except UnsupportedError:
        return None

    def rule(write: NodeWriter) -> bool:
        return _write_norm(write, traced.values[write.input(0)].ndim)

    return write_out(
        model,
        lambda node: (
            rule
            if node.op_type == "BatchNormalization" and not traced.live.isdisjoint(node.input[1:])
            else None
        ),
    )


def _write_norm(write: NodeWriter, rank: int) -> bool:
    by_channel = write.shape(-1, *[1] * (rank - 2))
    scale, shift, mean, variance = (
        write.add("Reshape", write.input(place), by_channel) for place in range(1, 5)
    )
    epsilon = write.tensor(write.attributes.get("epsilon", 1e-5))
    root = write.add("Sqrt", write.add("Add", variance, epsilon))
    normal = write.add("Div", write.add("Sub", write.input(0), mean), root)
    return write.end(write.add("Add", write.add("Mul", normal, scale), shift))
