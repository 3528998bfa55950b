"""Operators that ONNX defines by simpler ones, replaced by those.

The body of an operator is its definition: https://onnx.ai/onnx/repo-docs/IR.html#functions.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Collection, Set
from typing import Any

import onnx
from onnx import defs, helper, shape_inference

from dlb.graph.liveness import live_names

__all__ = ["pair", "part_constants", "with_bodies"]

_OWN = ("", "ai.onnx")
_OF_SEVERAL = ("Max", "Min")
_ARITHMETIC = ("Add", "Div", "Mul", "Sub")
#: Their bodies are loops.
_LOOPS = frozenset(("Range", "SequenceMap"))


def with_bodies(model: onnx.ModelProto, kept: Collection[str] = ()) -> onnx.ModelProto:
    """A model in which operators are replaced by their bodies, and those of their bodies; itself if none is.

    Args:
        model: with the types and shapes of its inputs, on which some bodies depend.
        kept: operators that stay.
    """
    opset = next((entry.version for entry in model.opset_import if entry.domain in _OWN), 0)
    names = {schema.name for schema in defs.get_all_schemas() if schema.domain in _OWN}
    names = {name for name in names - _LOOPS - set(kept) if _has_body(name, opset)}
    if names.isdisjoint(node.op_type for node in model.graph.node if node.domain in _OWN):
        return model
    try:
        from onnx import inliner
    except ImportError:  # onnx before 1.15
        return model
    inline: Any = inliner.inline_selected_functions
    if "inline_schema_functions" not in inspect.signature(inline).parameters:
        return model  # an older onnx inlines the functions of the model alone
    typed = _with_types(model)
    for node in typed.graph.node:
        if node.op_type in names and node.domain in _OWN:
            _write_defaults(node, opset)
    try:
        inlined: onnx.ModelProto = inline(
            typed, [("", name) for name in sorted(names)], inline_schema_functions=True
        )
    except RuntimeError:  # the type of what one reads is unknown
        return model
    return inlined


def part_constants(model: onnx.ModelProto) -> onnx.ModelProto:
    """Give each sum and product constants of its own, in place; returns the model.

    A number that the file keeps rounded may be exact in one layer, and a weight of another as it is.
    """
    graph = model.graph
    live = live_names(graph.node, _inputs(graph))
    used = Counter(
        name for node in graph.node if node.op_type in _ARITHMETIC for name in node.input
    )
    shared = {name for name, count in used.items() if count > 1} - live
    nodes = []
    for node in graph.node:
        for place, name in enumerate(node.input):
            if node.op_type in _ARITHMETIC and name in shared:
                node.input[place] = f"{name}/of/{node.output[0]}"
                nodes.append(helper.make_node("Identity", [name], [node.input[place]]))
        nodes.append(node)
    if len(nodes) > len(graph.node):
        _replace_nodes(graph, nodes)
    return model


def _replace_nodes(graph: onnx.GraphProto, nodes: list[onnx.NodeProto]) -> None:
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def _inputs(graph: onnx.GraphProto) -> list[str]:
    held = {tensor.name for tensor in graph.initializer}
    return [value.name for value in graph.input if value.name not in held]


def pair(model: onnx.ModelProto) -> onnx.ModelProto:
    """Write each Max and Min, and each Clip whose bounds are computed, as Max and Min of two values, in place.

    Returns the model.
    """
    live = live_names(model.graph.node, _inputs(model.graph))
    written = [_of_two(node, live) for node in model.graph.node]
    if any(written):
        own = zip(model.graph.node, written)
        _replace_nodes(model.graph, [each for node, others in own for each in others or [node]])
    return model


def _of_two(node: onnx.NodeProto, live: Set[str]) -> list[onnx.NodeProto]:
    """Nodes of two values that compute the same as a node; none if it may stay."""
    first, *others = node.input or [""]
    if node.op_type == "Clip" and not live.isdisjoint(others):
        steps = [(operator, name) for operator, name in zip(("Max", "Min"), others) if name]
    elif node.op_type in _OF_SEVERAL and len(others) != 1:
        steps = [(node.op_type, name) for name in others]
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
