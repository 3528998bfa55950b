"""The exporter: one ONNX node a layer, but for linear layers over sequences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
from onnx import helper, numpy_helper

OPSET = 17
OPERATORS = {
    "linear": ("Gemm", {"transB": 1}),
    "relu": ("Relu", {}),
    "tanh": ("Tanh", {}),
    "dropout": ("Identity", {}),
    "flatten": ("Flatten", {"axis": 1}),
}


def linear_of_sequence(node: Any, parameters: list[str]) -> list[onnx.NodeProto]:
    """Gemm takes matrices only."""
    weight, *bias = parameters
    across, product = f"{weight}/across", f"{node.name}/product" if bias else node.name
    made = [
        helper.make_node("Transpose", [weight], [across], perm=[1, 0]),
        helper.make_node("MatMul", [*node.inputs, across], [product]),
    ]
    return made + [helper.make_node("Add", [product, *bias], [node.name])] * len(bias)


def export(model: Any, path: Path) -> str:
    """Write an :class:`dlb_example.model.ExampleModel` as ONNX; its exporter and version."""
    nodes = []
    for node in model.nodes:
        operator, attributes = OPERATORS[node.kind]
        parameters = [f"{node.name}.{name}" for name in model.held_by(node.name)]
        if operator == "Gemm" and len(node.input_shape) > 1:
            nodes += linear_of_sequence(node, parameters)
            continue
        nodes.append(
            helper.make_node(operator, [*node.inputs, *parameters], [node.name], **attributes)
        )
    element = helper.np_dtype_to_tensor_dtype(model.type)
    first, last = model.workload.model.input, model.nodes[-1]
    graph = helper.make_graph(
        nodes,
        "example",
        [helper.make_tensor_value_info(first.name, element, ["batch", *first.shape])],
        [helper.make_tensor_value_info(last.name, element, ["batch", *last.shape])],
        [numpy_helper.from_array(array, name) for name, array in model.values.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    onnx.checker.check_model(made)
    onnx.save(made, str(path))
    return f"onnx.helper {onnx.__version__}"
