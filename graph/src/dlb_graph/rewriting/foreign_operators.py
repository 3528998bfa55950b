"""Operators that are compositions, of other domains and of ONNX, written out in ONNX's own."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
from onnx import helper

from dlb_graph.rewriting import classical, compositions, contributed, quantised_operators
from dlb_graph.rewriting.node_writer import OWN, Rule, opset_of, write_out

__all__ = ["foreign_operators"]

_BY_DOMAIN: Mapping[str, Mapping[str, Rule]] = {
    classical.CLASSICAL: classical.RULES,
    contributed.CONTRIBUTED: {**contributed.RULES, **quantised_operators.RULES},
}


def foreign_operators(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """Write out operators of other domains, and of ONNX's those that are compositions.

    An operator that is no composition of ONNX's, and one with inputs that are not supported, stays.
    """
    opset = opset_of(model)
    written = write_out(model, lambda node: _rule_of(node, opset))
    if written is not None:
        maps = {node.output[0] for node in model.graph.node if node.op_type == "ZipMap"}
        for value in written.graph.output:
            if value.name in maps and value.type.HasField("sequence_type"):
                # A tensor, which was a sequence of maps.
                of_maps = value.type.sequence_type.elem_type.map_type
                element = of_maps.value_type.tensor_type.elem_type
                value.CopyFrom(helper.make_tensor_value_info(value.name, element, None))
    return written


def _rule_of(node: onnx.NodeProto, opset: int) -> Rule | None:
    if node.domain in _BY_DOMAIN:
        return _BY_DOMAIN[node.domain].get(node.op_type)
    if node.domain not in OWN:
        return None
    since, rule = contributed.LATER.get(node.op_type, (0, None))
    return rule if rule and opset < since else compositions.rule_of(node)
