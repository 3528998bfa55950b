"""A value that is repeated by Expand is read as one that the operator repeats itself."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dlb_graph.structure.normal_form import operations


def model(operator: str, *, expanded: bool) -> onnx.ModelProto:
    """An operator of a sequence and of what is largest of each feature."""
    nodes = [helper.make_node("ReduceMax", ["x"], ["most"], axes=[1], keepdims=1)]
    nodes.append(helper.make_node("Sin", ["most"], ["wave"]))
    if expanded:
        nodes.append(helper.make_node("Expand", ["wave", "sizes"], ["large"]))
    nodes.append(helper.make_node(operator, ["x", "large" if expanded else "wave"], ["y"], "last"))
    value = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, (2, 4, 3)) for name in ("x", "y")
    ]
    sizes = numpy_helper.from_array(np.array([2, 4, 3]), "sizes")
    graph = helper.make_graph(nodes, "graph", value[:1], value[1:], [sizes])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("operator", ["Add", "Sub", "Mul", "Div", "Max", "Min"])
def test_repetition_is_no_operation(operator: str) -> None:
    plain, repeated = (operations(model(operator, expanded=each))[-1] for each in (False, True))
    assert (plain.kind, plain.attributes) == (repeated.kind, repeated.attributes)
    assert plain.inputs == repeated.inputs
    assert plain.kind == operator
