"""ONNX files as models of a port: layers, weights in canonical layout, and passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import exported_models
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dlb.errors import DlbError, WorkerRaised
from dlb_graph.files.model_file import read_model_file
from dlb_graph.truth.evaluate import evaluate
from dlb_port.onnx_model import OnnxModel
from dlb_worker.contract import ParameterDescription

EXPORTED = Path(exported_models.__file__).parent / "exported"
RANDOM = np.random.default_rng(0)


def graph(nodes: list[Any], weights: dict[str, Any], shape: list[Any], opset: int = 17) -> Any:
    """A float64 model that reads ``x`` and returns ``y``."""
    inputs = [helper.make_tensor_value_info("x", TensorProto.DOUBLE, shape)]
    outputs = [helper.make_tensor_value_info("y", TensorProto.DOUBLE, None)]
    constants = [
        numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()
    ]
    made = helper.make_graph(nodes, "g", inputs, outputs, constants)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)])


def opened(model: Any, *shape: int) -> tuple[OnnxModel, dict[str, Any]]:
    inputs = {"input": RANDOM.standard_normal(shape)}
    return OnnxModel("file", model, inputs), inputs


def roles(model: OnnxModel) -> dict[str, tuple[str, str, tuple[int, ...]]]:
    """Layer, role and shape of each parameter."""
    return {name: (each.layer, each.role, each.shape) for name, each in model.parameters.items()}


@pytest.mark.parametrize("path", sorted(EXPORTED.glob("*.onnx")), ids=lambda path: path.stem)
def test_loading_its_own_weights_changes_nothing(path: Path) -> None:
    file = read_model_file(path, path.stem)
    model = file.float64
    shape = OnnxModel("file", model, None).input_shape
    assert shape is not None
    tokens = path.stem.endswith("tokens")
    numbers = RANDOM.integers(0, 5, (4, *shape)) if tokens else RANDOM.standard_normal((4, *shape))
    opened_file = OnnxModel("file", model, {"input": numbers})
    passed = opened_file.forward({"input": numbers}, layers=list(opened_file.layers))
    kinds = {layer.kind for layer in opened_file.layers.values()}
    assert kinds >= ({"embedding", "lstm", "linear"} if tokens else {"conv", "linear"})
    assert any(call.output is not None for call in passed.calls)
    opened_file.load_weights(opened_file.weights())
    again = opened_file.forward({"input": numbers})
    assert np.array_equal(again.outputs[0], passed.outputs[0])


def test_weights_of_a_linear_layer_are_canonical_and_the_bias_belongs_to_it() -> None:
    weights = {"fc.weight": RANDOM.standard_normal((3, 4)), "fc.bias": np.zeros(4)}
    nodes = [
        helper.make_node("MatMul", ["x", "fc.weight"], ["h"], "product"),
        helper.make_node("Add", ["fc.bias", "h"], ["s"], "sum"),
        helper.make_node("Relu", ["s"], ["y"], "relu"),
    ]
    model, inputs = opened(graph(nodes, weights, ["n", 3]), 2, 3)
    assert roles(model) == {
        "fc.weight": ("fc", "weight", (4, 3)),
        "fc.bias": ("fc", "bias", (4,)),
    }
    assert list(model.layers) == ["", "fc", "relu"]
    weight, bias = RANDOM.standard_normal((4, 3)), RANDOM.standard_normal(4)
    model.load_weights({"fc.weight": weight, "fc.bias": bias})
    passed = model.forward(inputs, layers=["fc"])
    assert np.allclose(passed.calls[0].output, inputs["input"] @ weight.T + bias)
    assert passed.calls[1].output is None
    assert np.array_equal(model.weights()["fc.weight"], weight)


@pytest.mark.parametrize("operator", ["LSTM", "GRU", "RNN"])
def test_recurrent_weights_are_those_of_each_direction(operator: str) -> None:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[operator]
    weights = {
        "W": RANDOM.standard_normal((2, gates * 2, 3)),
        "R": RANDOM.standard_normal((2, gates * 2, 2)),
        "B": RANDOM.standard_normal((2, gates * 4)),
    }
    more = {"linear_before_reset": 1} if operator == "GRU" else {}
    nodes = [
        helper.make_node(
            operator, ["x", *weights], ["y"], "r", hidden_size=2, direction="bidirectional", **more
        )
    ]
    written = graph(nodes, weights, ["t", "n", 3])
    model, inputs = opened(written, 5, 4, 3)
    bias = (2, 6) if operator == "GRU" else (2 * gates,)
    assert {(role, shape) for _, role, shape in roles(model).values()} == {
        (f"{start}{role}", shape)
        for start in ("", "backward ")
        for role, shape in (
            ("input_weight", (gates * 2, 3)),
            ("recurrent_weight", (gates * 2, 2)),
            ("bias", bias),
        )
    }
    expected = evaluate(written, {"x": inputs["input"]})["y"]
    model.load_weights(model.weights())
    passed = model.forward(inputs, layers=["r"])
    assert np.allclose(passed.outputs[0], expected, 1e-12)
    call = passed.calls[0]
    assert call.inputs is not None and call.inputs.shape == (4, 5, 3)
    assert np.allclose(call.output, expected.transpose(2, 0, 1, 3).reshape(4, 5, 4), 1e-12)


def test_a_constant_that_two_layers_read_is_one_parameter() -> None:
    table = RANDOM.standard_normal((4, 4))
    nodes = [
        helper.make_node("Transpose", ["w"], ["turned"], "turn", perm=[1, 0]),
        helper.make_node("MatMul", ["x", "turned"], ["h"], "first"),
        helper.make_node("Gemm", ["h", "w"], ["y"], "second", transB=1),
    ]
    model, inputs = opened(graph(nodes, {"w": table}, ["n", 4]), 2, 4)
    assert list(model.parameters) == ["w"]
    model.load_weights({"w": 2 * table})
    x = inputs["input"]
    assert np.allclose(model.forward(inputs).outputs[0], x @ (2 * table).T @ (2 * table).T)


def test_a_table_that_is_also_a_matrix_is_one_parameter() -> None:
    table = RANDOM.standard_normal((5, 3))
    nodes = [
        helper.make_node("Cast", ["x"], ["ids"], "ids", to=TensorProto.INT64),
        helper.make_node("Gather", ["e.weight", "ids"], ["h"], "table"),
        helper.make_node("MatMul", ["h", "onnx::MatMul_7"], ["y"], "out"),
    ]
    numbers = {"e.weight": table, "onnx::MatMul_7": np.ascontiguousarray(table.T)}
    written = graph(nodes, numbers, ["n", 2])
    model = OnnxModel("file", written, {"x": np.ones((2, 2))})
    assert roles(model) == {"e.weight": ("e", "weight", (5, 3))}
    model.load_weights({"e.weight": 2 * table})
    output = model.forward({"x": np.ones((2, 2))}).outputs[0]
    assert np.allclose(output[0, 0], 4 * table @ table[1])


def test_a_constant_of_the_code_is_a_parameter_only_if_another_model_has_it() -> None:
    weights = {"gamma": np.ones(3), "val_1": np.array([0.1, 0.2, 0.7], np.float32).astype(float)}
    nodes = [
        helper.make_node("Mul", ["x", "gamma"], ["h"], "scale"),
        helper.make_node("Sub", ["h", "val_1"], ["y"], "shift"),
    ]
    model, inputs = opened(graph(nodes, weights, ["n", 3]), 2, 3)
    assert not model.parameters
    # A decimal that the file rounded to float32 counts as the decimal.
    assert np.array_equal(model.forward(inputs).outputs[0], inputs["input"] - [0.1, 0.2, 0.7])
    other = ParameterDescription("gamma", "", "", (3,), (3,), "float64", True)
    model.adopt([other], ())
    assert roles(model) == {"gamma": ("scale", "", (3,))}


def test_a_batch_that_the_file_fixes_is_computed_in_parts() -> None:
    nodes = [helper.make_node("Gemm", ["x", "w"], ["y"], "fc", transB=1)]
    model, inputs = opened(graph(nodes, {"w": RANDOM.standard_normal((2, 3))}, [4, 3]), 8, 3)
    passed = model.forward(inputs, layers=["fc"])
    assert passed.outputs[0].shape == (8, 2)
    assert np.array_equal(passed.calls[0].output, passed.outputs[0])
    with pytest.raises(WorkerRaised, match="fixes its batch at 4 samples, and 6 are given"):
        model.forward({"input": inputs["input"][:6]})


def test_a_normalisation_that_is_written_out_is_a_layer() -> None:
    weights = {
        "two": np.array(2.0),
        "eps": np.array(1e-5),
        "ln.weight": RANDOM.standard_normal(6),
        "ln.bias": RANDOM.standard_normal(6),
    }
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[-1]),
        helper.make_node("Sub", ["x", "mean"], ["d"]),
        helper.make_node("Pow", ["d", "two"], ["squares"]),
        helper.make_node("ReduceMean", ["squares"], ["variance"], axes=[-1]),
        helper.make_node("Add", ["variance", "eps"], ["shifted"]),
        helper.make_node("Sqrt", ["shifted"], ["root"]),
        helper.make_node("Div", ["d", "root"], ["normal"]),
        helper.make_node("Mul", ["normal", "ln.weight"], ["scaled"]),
        helper.make_node("Add", ["scaled", "ln.bias"], ["y"]),
    ]
    model, inputs = opened(graph(nodes, weights, ["n", 5, 6]), 2, 5, 6)
    assert roles(model) == {
        "ln.weight": ("ln", "scale", (6,)),
        "ln.bias": ("ln", "bias", (6,)),
    }
    assert [(layer.name, layer.kind) for layer in model.layers.values()] == [
        ("", ""),
        ("ln", "layer_norm"),
    ]
    model.load_weights({"ln.weight": np.zeros(6), "ln.bias": np.ones(6)})
    assert np.array_equal(model.forward(inputs, layers=["ln"]).outputs[0], np.ones((2, 5, 6)))


def test_a_normalisation_of_groups_keeps_its_scale_and_not_the_ones_of_its_instances() -> None:
    """Before training, the scale of channels is ones too; here there are as many groups as channels."""
    weights = {
        "groups": np.array([0, 6, -1]),
        "ones": np.ones(6),
        "zeros": np.zeros(6),
        "maps": np.array([-1, 6, 4, 4]),
        "gn.weight": np.ones((6, 1, 1)),
        "gn.bias": np.zeros((6, 1, 1)),
    }
    nodes = [
        helper.make_node("Reshape", ["x", "groups"], ["a"]),
        helper.make_node("InstanceNormalization", ["a", "ones", "zeros"], ["b"]),
        helper.make_node("Reshape", ["b", "maps"], ["c"]),
        helper.make_node("Mul", ["c", "gn.weight"], ["d"]),
        helper.make_node("Add", ["d", "gn.bias"], ["y"]),
    ]
    model, inputs = opened(graph(nodes, weights, ["n", 6, 4, 4]), 2, 6, 4, 4)
    assert roles(model) == {"gn.weight": ("gn", "scale", (6,)), "gn.bias": ("gn", "bias", (6,))}
    assert model.layers["gn"].kind == "group_norm"
    model.load_weights({"gn.weight": np.zeros(6), "gn.bias": np.arange(6)})
    passed = model.forward(inputs, layers=["gn"])
    assert np.array_equal(passed.outputs[0][0, :, 0, 0], np.arange(6))


def test_float32_keeps_the_weights() -> None:
    nodes = [helper.make_node("Gemm", ["x", "w"], ["y"], "fc", transB=1)]
    model, inputs = opened(graph(nodes, {"w": RANDOM.standard_normal((2, 3))}, ["n", 3]), 8, 3)
    single = model.in_float32()
    assert single.weights()["w"].dtype == np.float32
    output = single.forward({"input": inputs["input"].astype(np.float32)}).outputs[0]
    assert output.dtype == np.float32
    assert np.allclose(output, model.forward(inputs).outputs[0], 1e-5)
    assert model.weights()["w"].dtype == np.float64


def test_what_a_file_does_not_have_is_refused_in_words() -> None:
    nodes = [helper.make_node("Gather", ["w", "x"], ["y"], "table")]
    model = graph(nodes, {"w": RANDOM.standard_normal((5, 3))}, ["n", 2])
    model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    opened_file = OnnxModel("file", model, {"input": np.zeros((2, 2), np.int64)})
    with pytest.raises(
        WorkerRaised, match="'x' reads integers, and reals are given; give --tokens N"
    ):
        opened_file.forward({"input": np.zeros((2, 2))})
    with pytest.raises(WorkerRaised, match="reads 1 inputs"):
        opened_file.forward({"a": np.zeros(2), "b": np.zeros(2)})
    with pytest.raises(DlbError, match="a file has no gradients"):
        opened_file.vjp({}, [], training=False)
