"""Recurrent operators and GatherElements, against ONNX Runtime: another hand wrote it."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dlb.errors import UnsupportedError
from dlb_graph.truth.evaluate import evaluate
from dlb_graph.truth.precision import in_precision
from dlb_graph.truth.runtime import run_model

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
STEPS, SAMPLES, FEATURES, HIDDEN = 5, 3, 4, 2
DRAW = np.random.default_rng(0)


def model(
    operator: str, inputs: dict[str, np.ndarray], outputs: int, **attributes: object
) -> onnx.ModelProto:
    """One operator that reads the first input; the others are constants."""
    first, *held = inputs
    names = [f"y{number}" for number in range(outputs)]
    return helper.make_model(
        helper.make_graph(
            [helper.make_node(operator, list(inputs), names, **attributes)],
            "g",
            [helper.make_tensor_value_info(first, TensorProto.FLOAT, inputs[first].shape)],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names],
            [numpy_helper.from_array(inputs[name], name) for name in held if name],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )


def agrees(made: onnx.ModelProto, x: np.ndarray) -> None:
    name = made.graph.input[0].name
    theirs = run_model(made.SerializeToString(), {name: x}, threads=1)
    ours = evaluate(in_precision(made, TensorProto.DOUBLE), {name: x.astype(np.float64)})
    for expected, found in zip(theirs, ours.values()):
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("states", [False, True], ids=["zeros", "states"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(
    ("operator", "attributes"),
    [
        ("LSTM", {}),
        ("RNN", {}),
        ("RNN", {"activations": ["Relu"]}),
        ("GRU", {}),
        ("GRU", {"linear_before_reset": 0}),
        ("GRU", {"linear_before_reset": 1}),
    ],
)
def test_a_recurrent_operator(
    operator: str, attributes: dict[str, int], direction: str, states: bool
) -> None:
    directions, gates = 1 + (direction == "bidirectional"), GATES[operator] * HIDDEN
    shapes = {
        "x": (STEPS, SAMPLES, FEATURES),
        "w": (directions, gates, FEATURES),
        "r": (directions, gates, HIDDEN),
        "b": (directions, 2 * gates),
    }
    inputs = {name: DRAW.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    if states:
        inputs[""] = np.zeros(0, np.float32)
        for name in ("h", "c")[: 1 + (operator == "LSTM")]:
            inputs[name] = DRAW.normal(size=(directions, SAMPLES, HIDDEN)).astype(np.float32)
    outputs = 3 if operator == "LSTM" else 2
    if "activations" in attributes:
        attributes = {"activations": attributes["activations"] * directions}
    made = model(operator, inputs, outputs, hidden_size=HIDDEN, direction=direction, **attributes)
    agrees(made, inputs["x"])


@pytest.mark.parametrize("attributes", [{"clip": 1.0}, {"activations": ["Relu", "Tanh"]}])
def test_an_option_that_is_not_evaluated_is_named(attributes: dict) -> None:
    inputs = {
        "x": np.zeros((STEPS, SAMPLES, FEATURES), np.float32),
        "w": np.zeros((1, 3 * HIDDEN, FEATURES), np.float32),
        "r": np.zeros((1, 3 * HIDDEN, HIDDEN), np.float32),
    }
    made = model("GRU", inputs, 1, hidden_size=HIDDEN, **attributes)
    with pytest.raises(UnsupportedError, match=f"GRU with {next(iter(attributes))}"):
        evaluate(made, {"x": inputs["x"]})


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather_elements_of_a_long_axis(axis: int) -> None:
    data = DRAW.normal(size=(40, 50)).astype(np.float32)
    indices = DRAW.integers(-40, 40, (30, 40) if axis == 0 else (40, 30))
    agrees(model("GatherElements", {"x": data, "i": indices}, 1, axis=axis), data)


@pytest.mark.parametrize("most", [1, 4])
def test_what_iterations_output_is_stacked(most: int) -> None:
    """As Keras' GRU is written: a body that reads a step and a weight of the graph around it."""
    body = helper.make_graph(
        [
            helper.make_node("Gather", ["x", "i"], ["step"]),
            helper.make_node("MatMul", ["step", "w"], ["product"]),
            helper.make_node("Add", ["product", "h"], ["sum"]),
            helper.make_node("Tanh", ["sum"], ["next"]),
            helper.make_node("Identity", ["next"], ["each"]),
            helper.make_node("Identity", ["go"], ["goes"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("h", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("goes", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, None),
            helper.make_tensor_value_info("each", TensorProto.FLOAT, None),
        ],
    )
    x = DRAW.normal(size=(STEPS, SAMPLES, FEATURES)).astype(np.float32)
    inputs = {
        "m": np.array(most),
        "go_on": np.array(True),
        "start": np.zeros((SAMPLES, HIDDEN), np.float32),
        "w": DRAW.normal(size=(FEATURES, HIDDEN)).astype(np.float32),
    }
    made = helper.make_model(
        helper.make_graph(
            [helper.make_node("Loop", ["m", "go_on", "start"], ["last", "all"], body=body)],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
            [
                helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
                for name in ("last", "all")
            ],
            [numpy_helper.from_array(array, name) for name, array in inputs.items()],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    agrees(made, x)
