"""What a quantised file is trained as: roundings have the straight-through gradient.

A rounding is flat, so nothing before it would be trained. Within the bounds of the type its gradient is taken
for that of the identity (Bengio et al. 2013, arXiv:1308.3432; Jacob et al. 2018, arXiv:1712.05877), as in
quantisation-aware training. Weights are what they are dequantised to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import onnx
from onnx import TensorProto

from dlb_graph.files.model_file import nodes_within, tensors_of
from dlb_graph.rewriting.real_rules import DYNAMIC
from dlb_graph.workload import Elementwise, Node

__all__ = ["by_sample", "has_whole_weights", "quantises", "with_straight_through"]

#: Operators that round what depends on the input.
_ROUNDING = frozenset((DYNAMIC, "QLinearConv", "QLinearMatMul", "QuantizeLinear"))
_WHOLE = (TensorProto.INT8, TensorProto.UINT8, TensorProto.INT16, TensorProto.UINT16)


def quantises(model: onnx.ModelProto) -> bool:
    """Whether a model rounds numbers to those of a smaller type."""
    return any(node.op_type in _ROUNDING for node in nodes_within(model.graph.node))


def by_sample(model: onnx.ModelProto) -> bool:
    """Whether a model has dynamic quantisation, whose scales are those of a batch."""
    return any(node.op_type == DYNAMIC for node in nodes_within(model.graph.node))


def has_whole_weights(model: onnx.ModelProto) -> bool:
    """Whether a model has small integers, as weights that are dequantised are."""
    return any(
        tensor.data_type in _WHOLE and math.prod(tensor.dims) > 1 for tensor in tensors_of(model)
    )


def with_straight_through(nodes: Sequence[Node]) -> tuple[tuple[Node, ...], int]:
    """The nodes with every rounding a straight-through one, and how many there are."""
    through = Elementwise(function="straight_through_round")
    found = tuple(
        msgspec.structs.replace(node, layer=through)
        if isinstance(node.layer, Elementwise) and node.layer.function == "round"
        else node
        for node in nodes
    )
    return found, sum(node.layer is through for node in found)
