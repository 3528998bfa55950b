"""Models with operators that are compositions, of other domains and of ONNX, written out in ONNX's own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import onnx
from onnx import helper

from dlb.graph import classical, compositions, contributed, quantised_operators
from dlb.graph.node_writer import OWN, NodeWriter, opset_of, shapes_of

__all__ = ["with_onnx_operators"]

_Rule = Callable[[NodeWriter], bool]
_BY_DOMAIN: Mapping[str, Mapping[str, _Rule]] = {
    classical.CLASSICAL: classical.RULES,
    contributed.CONTRIBUTED: {**contributed.RULES, **quantised_operators.RULES},
}


def with_onnx_operators(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with other operators written out in ONNX's own; itself if it has none that can be.

    An operator that is no composition of ONNX's, and one with inputs that are not supported, stays.
    """
    if not any(_rule(node, model) for node in model.graph.node):
        return model
    result = onnx.ModelProto()
    result.CopyFrom(model)
    maps = {node.output[0] for node in result.graph.node if node.op_type == "ZipMap"}
    before = -1
    while before != len(result.graph.node):
        before = len(result.graph.node)
        shapes = shapes_of(result)
        nodes: list[onnx.NodeProto] = []
        for node in result.graph.node:
            rule = _rule(node, result)
            writer = NodeWriter(result, node, shapes)
            if rule is None or not _written(rule, writer):
                nodes.append(node)
                continue
            nodes += writer.nodes
            result.graph.initializer.extend(writer.constants)
        copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
        del result.graph.node[:]
        result.graph.node.extend(copies)
    _declare_numbers(result.graph, maps)
    return result


def _declare_numbers(graph: onnx.GraphProto, maps: Collection[str]) -> None:
    """Say that outputs are tensors, which were sequences of maps."""
    for value in graph.output:
        if value.name in maps and value.type.HasField("sequence_type"):
            element = value.type.sequence_type.elem_type.map_type.value_type.tensor_type.elem_type
            value.CopyFrom(helper.make_tensor_value_info(value.name, element, None))


def _written(rule: Callable[[NodeWriter], bool], writer: NodeWriter) -> bool:
    """Whether a rule has written out a node: not if an input or an attribute is missing or of another type."""
    try:
        return rule(writer)
    except (ArithmeticError, IndexError, KeyError, TypeError, ValueError):
        return False


def _rule(node: onnx.NodeProto, model: onnx.ModelProto) -> Callable[[NodeWriter], bool] | None:
    if node.domain in _BY_DOMAIN:
        return _BY_DOMAIN[node.domain].get(node.op_type)
    if node.domain not in OWN:
        return None
    since, rule = contributed.LATER.get(node.op_type, (0, None))
    if rule and opset_of(model) < since:
        return rule
    return compositions.rule_of(node)
