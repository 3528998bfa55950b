"""A hard sigmoid is told by its slope, as an operator and in parts."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dlb_graph.structure.normal_form import operations


def model(nodes: list[onnx.NodeProto], **held: float) -> onnx.ModelProto:
    kind = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "g",
        [kind("x", TensorProto.FLOAT, ["N", 40])],
        [kind("y", TensorProto.FLOAT, ["N", 40])],
        [numpy_helper.from_array(np.float32(number), name) for name, number in held.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("slope", [1 / 6, 0.1666667, 0.2])
def test_the_parts_are_the_operator_of_their_slope(slope: float) -> None:
    whole = model([helper.make_node("HardSigmoid", ["x"], ["y"], alpha=slope, beta=0.5)])
    parts = model(
        [
            helper.make_node("Mul", ["x", "slope"], ["m"]),
            helper.make_node("Add", ["m", "half"], ["a"]),
            helper.make_node("Clip", ["a", "low", "high"], ["y"]),
        ],
        slope=slope,
        half=0.5,
        low=0.0,
        high=1.0,
    )
    first, second = ([(one.kind, one.attributes) for one in operations(m)] for m in (whole, parts))
    assert first == second
