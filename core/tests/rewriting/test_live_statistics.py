"""Batch normalisations by numbers that the graph computes: written out, and read as what they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from dlb.proof.checks.file import check_file
from dlb_graph.files.read import import_file
from dlb_graph.rewriting.definitions import live_statistics
from dlb_graph.workload import LayerNorm

STEPS, FEATURES = 5, 6


def real(*shape: int) -> np.ndarray:
    draw = np.random.default_rng(len(shape) * 100 + sum(shape))
    return draw.normal(size=shape).astype(np.float32)


def layer_normalised() -> onnx.ModelProto:
    """As Keras writes a layer normalisation: each row of [N, steps, features] is a channel of one sample."""
    nodes = [
        helper.make_node("Reshape", ["x", "as_channels"], ["rows"]),
        helper.make_node("ReduceMean", ["rows"], ["m"], axes=[0, 2, 3], keepdims=1),
        helper.make_node("Sub", ["rows", "m"], ["apart"]),
        helper.make_node("Mul", ["apart", "apart"], ["squares"]),
        helper.make_node("ReduceMean", ["squares"], ["v"], axes=[0, 2, 3], keepdims=1),
        helper.make_node("Reshape", ["m", "flat"], ["mean"]),
        helper.make_node("Reshape", ["v", "flat"], ["variance"]),
        helper.make_node("Shape", ["mean"], ["count"]),
        helper.make_node("Expand", ["one", "count"], ["ones"]),
        helper.make_node("Expand", ["zero", "count"], ["zeros"]),
        helper.make_node(
            "BatchNormalization",
            ["rows", "ones", "zeros", "mean", "variance"],
            ["normal"],
            "normalise",
            epsilon=1e-3,
        ),
        helper.make_node("Reshape", ["normal", "as_steps"], ["steps"]),
        helper.make_node("Mul", ["steps", "gamma"], ["scaled"]),
        helper.make_node("Add", ["scaled", "beta"], ["moved"]),
        helper.make_node("MatMul", ["moved", "w"], ["y"]),
    ]
    held = {
        "as_channels": np.array([1, -1, FEATURES, 1]),
        "as_steps": np.array([-1, STEPS, FEATURES]),
        "flat": np.array([-1]),
        "one": np.array([1], np.float32),
        "zero": np.array([0], np.float32),
        "gamma": real(FEATURES),
        "beta": real(FEATURES),
        "w": real(FEATURES, 3),
    }
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", STEPS, FEATURES])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", STEPS, 3])],
        [numpy_helper.from_array(array, name) for name, array in held.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)


def test_written_out_it_computes_the_same() -> None:
    made = layer_normalised()
    written = live_statistics(made)
    assert "BatchNormalization" not in {node.op_type for node in written.graph.node}
    x = real(3, STEPS, FEATURES)
    expected, found = (
        onnxruntime.InferenceSession(each.SerializeToString()).run(None, {"x": x})[0]
        for each in (made, written)
    )
    np.testing.assert_allclose(expected, found, rtol=1e-5, atol=1e-6)


def test_it_is_a_layer_normalisation(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(layer_normalised(), path)
    imported = import_file(path)
    assert check_file(imported).verdict == "passed"
    (norm,) = (n.layer for n in imported.workload.model.nodes if isinstance(n.layer, LayerNorm))
    assert norm.epsilon == pytest.approx(1e-3)


def test_constant_statistics_stay() -> None:
    made = layer_normalised()
    (norm,) = (node for node in made.graph.node if node.op_type == "BatchNormalization")
    for place in range(1, 5):
        norm.input[place] = "gamma"
    made.graph.node[0].input[1] = "by_feature"
    made.graph.initializer.append(numpy_helper.from_array(np.array([-1, 6, 5, 1]), "by_feature"))
    assert live_statistics(made) is None
