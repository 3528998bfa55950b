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
from dlb_graph.files.read import import_file
from dlb_graph.rewriting.foreign_operators import foreign_operators
from dlb_graph.truth.evaluate import Evaluator

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
