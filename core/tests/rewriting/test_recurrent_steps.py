"""Recurrent operators that begin with a state, or hand out their cells' last: as steps, and as workloads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from dlb.proof.checks.file import check_file
from dlb_graph.files.read import import_file
from dlb_graph.rewriting import recurrent_steps as module
from dlb_graph.rewriting.recurrent_steps import recurrent_steps
from dlb_graph.truth.trace import trace

STEPS, FEATURES, HIDDEN = 4, 3, 5
GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}


def real(*shape: int) -> np.ndarray:
    draw = np.random.default_rng(len(shape) * 100 + sum(shape))
    return (0.5 * draw.normal(size=shape)).astype(np.float32)


def decoder(
    operator: str,
    *,
    opset: int = 17,
    direction: str = "forward",
    layout: int = 0,
    constant: bool = False,
    zeros: bool = False,
    bias: bool = True,
    **attributes: Any,
) -> onnx.ModelProto:
    """A layer, and one that begins with the states in which the first ends; every output of both.

    Args:
        constant: the second begins with constants instead; zeros: these are 0.
    """
    directions, rows = 1 + (direction == "bidirectional"), GATES[operator] * HIDDEN
    names = ["h", "c"] if operator == "LSTM" else ["h"]
    held = {}
    for layer in ("1", "2"):
        held |= {
            f"w{layer}": real(directions, rows, FEATURES) + int(layer) / 9,
            f"r{layer}": real(directions, rows, HIDDEN),
            f"b{layer}": real(directions, 2 * rows),
        }
    shape = (2, directions, HIDDEN) if layout else (directions, 2, HIDDEN)
    # The same for both samples.
    state = np.broadcast_to(real(1, 1, HIDDEN), shape)
    held |= {f"{name}0": (state + number) * (not zeros) for number, name in enumerate(names)}
    given: dict[str, Any] = {"hidden_size": HIDDEN, "direction": direction, **attributes}
    if layout:
        given["layout"] = 1
    begin = [f"{name}0" if constant else f"{name}1" for name in names]

    def node(layer: str, states: list[str]) -> onnx.NodeProto:
        read = ["x", f"w{layer}", f"r{layer}", f"b{layer}" if bias else "", "", *states]
        made = [f"y{layer}", *(f"{name}{layer}" for name in names)]
        return helper.make_node(operator, read, made, f"layer {layer}", **given)

    sizes = (2, STEPS, FEATURES) if layout else (STEPS, 2, FEATURES)
    made = ["y2", *(f"{name}2" for name in names)]
    graph = helper.make_graph(
        [node("1", []), node("2", begin)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes)],
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * (3 + (name == "y2")))
            for name in made
        ],
        [numpy_helper.from_array(array, name) for name, array in held.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


MODELS = {
    **{operator: decoder(operator) for operator in GATES},
    **{f"{operator}, opset 12": decoder(operator, opset=12) for operator in GATES},
    **{
        f"{operator}, {direction}": decoder(operator, direction=direction)
        for operator in GATES
        for direction in ("reverse", "bidirectional")
    },
    **{f"{operator}, constants": decoder(operator, constant=True) for operator in GATES},
    "LSTM that begins with zeros": decoder("LSTM", constant=True, zeros=True),
    "LSTM without biases": decoder("LSTM", bias=False),
    "GRU, reset last": decoder("GRU", linear_before_reset=1),
    "GRU, reset last, both directions": decoder(
        "GRU", linear_before_reset=1, direction="bidirectional"
    ),
    "RNN of ReLUs": decoder("RNN", activations=["Relu"]),
}


@pytest.mark.parametrize("name", MODELS)
def test_steps_compute_the_same(name: str) -> None:
    made = MODELS[name]
    stepped = recurrent_steps(made)
    left = [node.name for node in stepped.graph.node if node.op_type in GATES]
    reads_more = "c1" in made.graph.node[1].input or name == "RNN of ReLUs"
    assert left == ([] if reads_more else ["layer 1"])
    onnx.checker.check_model(stepped)
    x = real(STEPS, 2, FEATURES)
    expected, found = (
        onnxruntime.InferenceSession(each.SerializeToString()).run(None, {"x": x})
        for each in (made, stepped)
    )
    for one, other in zip(expected, found, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("operator", GATES)
def test_batches_may_come_first(operator: str) -> None:
    """ONNX Runtime has no such layout; NumPy's evaluation has."""
    made = decoder(operator, layout=1)
    traced = trace(made)
    stepped = trace(recurrent_steps(made))
    for name in traced.outputs:
        assert stepped.values[name].shape == traced.values[name].shape
        np.testing.assert_allclose(stepped.values[name], traced.values[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("operator", GATES)
def test_what_a_layer_can_do_stays(operator: str) -> None:
    made = decoder(operator)
    del made.graph.node[1]
    del made.graph.output[:]
    made.graph.output.append(helper.make_tensor_value_info("y1", TensorProto.FLOAT, None))
    assert recurrent_steps(made) is None


def test_long_sequences_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_NODES", 50)
    made = decoder("LSTM")
    assert recurrent_steps(made) is None


@pytest.mark.parametrize("name", [name for name in MODELS if "opset 12" not in name])
def test_a_decoder_is_a_workload(name: str, tmp_path: Path) -> None:
    """Which import_file compares with the file, to 1e-10."""
    made = onnx.ModelProto()
    made.CopyFrom(MODELS[name])
    # Batches first, as in most files.
    turn = helper.make_node("Transpose", ["input"], ["x"], "turn", perm=[1, 0, 2])
    made.graph.node.insert(0, turn)
    del made.graph.input[:], made.graph.output[1:]
    shape = ["N", STEPS, FEATURES]
    made.graph.input.append(helper.make_tensor_value_info("input", TensorProto.FLOAT, shape))
    if "constants" in name:  # whose batch is fixed
        made.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
    path = tmp_path / "decoder.onnx"
    onnx.save(made, path)
    imported = import_file(path)
    assert check_file(imported).verdict == "passed"
    kinds = {type(node.layer).__name__ for node in imported.workload.model.nodes if node.layer}
    assert ("Linear" in kinds) == (name != "LSTM that begins with zeros")
