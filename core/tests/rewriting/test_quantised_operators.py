"""ONNX Runtime's operators of quantised numbers, written out: next to what ONNX Runtime computes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import InferenceSession

from dlb.proof.checks.file import check_file
from dlb_graph.comparing.read_facts import StraightThrough
from dlb_graph.errors import UnsupportedError
from dlb_graph.files.read import import_file
from dlb_graph.rewriting.foreign_operators import foreign_operators
from dlb_graph.truth.canonical import canonical_graph
from dlb_graph.truth.evaluate import Evaluator, evaluate

SHAPE = (2, 4, 6, 6)
#: Scale and zero point of what is read, and of what comes out.
READ, OUT = ("read_scale", "read_zero"), ("out_scale", "out_zero")
HELD = {
    "read_scale": np.float32(0.0317),
    "read_zero": np.uint8(121),
    "out_scale": np.float32(0.02),
    "out_zero": np.uint8(100),
    "share_scale": np.float32(1 / 256),
    "share_zero": np.uint8(0),
}
SHARES = ("share_scale", "share_zero")
W = {
    "w": np.random.default_rng(3).integers(-90, 90, (5, 6)).astype(np.int8),
    "w_scale": np.float32(0.01),
    "w_zero": np.int8(2),
    "c": np.random.default_rng(4).integers(-900, 900, 5).astype(np.int32),
    "mask": np.random.default_rng(5).integers(0, 2, SHAPE).astype(bool),
}
WEIGHT = ("w", "w_scale", "w_zero")


def quantised(
    operator: str,
    inputs: tuple[str, ...],
    *,
    out: tuple[str, str] | None = OUT,
    shape: tuple[int, ...] = SHAPE,
    **attributes: Any,
) -> onnx.ModelProto:
    """Inputs that are quantised to ``a`` and ``b``, one node of ``com.microsoft``, and its real result."""
    nodes = [
        helper.make_node("QuantizeLinear", [name, *READ], [name[-1]], f"q{name}")
        for name in ("in_a", "in_b")
        if name[-1] in inputs
    ]
    nodes.append(
        helper.make_node(
            operator, inputs, ["q" if out else "y"], "it", "", "com.microsoft", **attributes
        )
    )
    nodes += [helper.make_node("DequantizeLinear", ["q", *out], ["y"], "d")] if out else []
    real = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name in ("in_a", "in_b")
        if name[-1] in inputs
    ]
    held = {
        name: array for name, array in {**HELD, **W}.items() if any(name in n.input for n in nodes)
    }
    graph = helper.make_graph(
        nodes,
        "g",
        real,
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in held.items()],
    )
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=sets, ir_version=8)


A, B = ("a", *READ), ("b", *READ)
MODELS = {
    "QLinearAdd": quantised("QLinearAdd", (*A, *B, *OUT)),
    "QLinearMul": quantised("QLinearMul", (*A, *B, *OUT)),
    "QLinearConcat": quantised("QLinearConcat", (*OUT, *A, *B), axis=1),
    "QLinearWhere": quantised("QLinearWhere", ("mask", *A, *B, *OUT)),
    "QLinearLeakyRelu": quantised("QLinearLeakyRelu", (*A, *OUT), alpha=0.2),
    "QLinearSigmoid": quantised("QLinearSigmoid", (*A, *SHARES), out=SHARES),
    "QLinearSoftmax": quantised("QLinearSoftmax", (*A, *SHARES), out=SHARES, axis=-1, opset=13),
    "QLinearGlobalAveragePool": quantised("QLinearGlobalAveragePool", (*A, *OUT)),
    "QLinearAveragePool": quantised(
        "QLinearAveragePool", (*A, *OUT), kernel_shape=[2, 2], strides=[2, 2]
    ),
    "QGemm": quantised("QGemm", (*A, *WEIGHT, "c", *OUT), shape=(7, 6), transB=1),
    "QGemm without integers that are added": quantised(
        "QGemm", (*A, *WEIGHT, "", *OUT), shape=(7, 6), transB=1, alpha=0.5
    ),
    "QGemm of real numbers": quantised(
        "QGemm", (*A, *WEIGHT, "c"), out=None, shape=(7, 6), transB=1
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_what_is_written_out_is_what_onnx_runtime_computes(name: str) -> None:
    """But for numbers that its kernels, in float32, round to the next step."""
    given = MODELS[name]
    feed = {
        value.name: np.random.default_rng(place)
        .standard_normal([size.dim_value for size in value.type.tensor_type.shape.dim])
        .astype(np.float32)
        for place, value in enumerate(given.graph.input)
    }
    (expected,) = InferenceSession(given.SerializeToString()).run(None, feed)
    straight = foreign_operators(given) or given
    assert {node.domain for node in straight.graph.node} == {""}
    (found,) = Evaluator(straight).run(feed).values()
    step = 0.021 if "q" in {name for node in given.graph.node for name in node.output} else 0
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=step + 1e-6)
    assert np.isclose(found, expected, rtol=1e-5, atol=1e-6).mean() > 0.95


def test_weights_that_are_integers_are_trained(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(MODELS["QGemm"], path)
    found = import_file(path)
    (weight,) = (array for array in found.weights.values() if array.ndim == 2)
    real = (W["w"].astype(np.float32) - W["w_zero"]) * W["w_scale"]
    np.testing.assert_allclose(weight, real, rtol=1e-6)
    assert StraightThrough(roundings=2) in [each.cause for each in check_file(found).findings]


def recurrent(
    direction: str = "forward",
    *,
    along: bool = False,
    state: bool = False,
    moved: bool = False,
    steps: object = 3,
    outputs: tuple[str, ...] = ("h",),
) -> onnx.ModelProto:
    """A DynamicQuantizeLSTM of 4 numbers a step with a state of 5, and a linear layer of its steps.

    Args:
        along: each gate has scales of its own.
        state: of its first step, which is no zeros.
        moved: the order of gates is wrong: ONNX has input, output, forget, cell.
    """
    draw, sides = np.random.default_rng(9), 1 + (direction == "bidirectional")
    shape = (sides, 20) if along else (sides,)
    # Of seven bits: with eight, ONNX Runtime's sums saturate on processors without VNNI.
    # https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html
    held = {
        "w": draw.integers(-63, 64, (sides, 4, 20)).astype(np.int8),
        "r": draw.integers(-63, 64, (sides, 5, 20)).astype(np.int8),
        "b": draw.standard_normal((sides, 40)).astype(np.float32),
        "ws": draw.uniform(0.008, 0.012, shape).astype(np.float32),
        "rs": draw.uniform(0.008, 0.012, shape).astype(np.float32),
        "z": np.zeros(shape, np.int8),
        "c": draw.standard_normal((sides, 1, 5)).astype(np.float32) * state,
        "v": draw.standard_normal((sides * 5, 2)).astype(np.float32),
        "rows": np.array([0, 0, -1]),
    }
    if moved:
        for name in ("w", "r", "b"):
            held[name] = np.roll(held[name], 5, axis=-1)
    ends = ["c", "c"] if state else ["", ""]
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
        helper.make_node(
            "DynamicQuantizeLSTM",
            ["t", "w", "r", "b", "", *ends, "", "ws", "z", "rs", "z"],
            [name if name in outputs else "" for name in ("h", "last", "cell")],
            "it",
            "",
            "com.microsoft",
            hidden_size=5,
            direction=direction,
        ),
    ]
    last = outputs[0]
    axes = [0, 2, 1, 3] if last == "h" else [1, 0, 2]
    nodes.append(helper.make_node("Transpose", [last], ["turned"], perm=axes))
    if last == "h":
        nodes.append(helper.make_node("Reshape", ["turned", "rows"], ["steps"]))
        nodes.append(helper.make_node("Transpose", ["steps"], ["all"], perm=[1, 0, 2]))
    else:
        nodes.append(helper.make_node("Flatten", ["turned"], ["all"]))
    nodes.append(helper.make_node("MatMul", ["all", "v"], ["y"]))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ("N", steps, 4))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [
            numpy_helper.from_array(array, name)
            for name, array in held.items()
            if any(name in n.input for n in nodes)
        ],
    )
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=sets, ir_version=8)


LSTMS = {
    "forward": recurrent(),
    "reverse": recurrent("reverse"),
    "both ways": recurrent("bidirectional"),
    "scales of each gate": recurrent(along=True),
    "from a state": recurrent(state=True),
    "its last state": recurrent("bidirectional", outputs=("last",)),
    "its last cell": recurrent(outputs=("cell",)),
}


def steps_of(model: onnx.ModelProto, samples: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(1).standard_normal((samples, 3, 4)).astype(np.float32)}


@pytest.mark.parametrize("name", LSTMS)
def test_an_lstm_of_a_sample_is_what_onnx_runtime_computes(name: str) -> None:
    feed = steps_of(LSTMS[name], 1)
    (expected,) = InferenceSession(LSTMS[name].SerializeToString()).run(None, feed)
    (found,) = Evaluator(foreign_operators(LSTMS[name])).run(feed).values()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", LSTMS)
def test_an_lstm_is_read_as_its_steps(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(LSTMS[name], path)
    found = import_file(path)
    causes = [each.cause for each in check_file(found).findings]
    assert any(isinstance(cause, StraightThrough) and cause.by_sample for cause in causes)
    feed = steps_of(LSTMS[name], 1)
    (expected,) = InferenceSession(LSTMS[name].SerializeToString()).run(None, feed)
    canonical = canonical_graph(found.workload.model, found.weights, dtype="float32")
    (value,) = evaluate(canonical, {canonical.graph.input[0].name: feed["x"]}).values()
    np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-4)


def test_gates_in_another_order_are_another_lstm() -> None:
    feed = steps_of(LSTMS["forward"], 1)
    (expected,) = InferenceSession(LSTMS["forward"].SerializeToString()).run(None, feed)
    (found,) = Evaluator(foreign_operators(recurrent(moved=True))).run(feed).values()
    assert np.abs(found - expected).max() > 0.05


def test_an_lstm_with_peepholes_is_refused_by_name(tmp_path: Path) -> None:
    model = recurrent()
    model.graph.node[1].input[7] = "peephole"
    model.graph.initializer.append(
        numpy_helper.from_array(np.ones((1, 15), np.float32), "peephole")
    )
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    with pytest.raises(UnsupportedError, match="DynamicQuantizeLSTM, which is no operator of ONNX"):
        import_file(path)
