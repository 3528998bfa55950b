"""ONNX Runtime's own operators, written out: next to what ONNX Runtime computes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from dlb.errors import UnsupportedError
from dlb_graph.files.model_file import read_model_file
from dlb_graph.rewriting.foreign_operators import foreign_operators
from dlb_graph.truth.evaluate import Evaluator

Held = dict[str, np.ndarray]


def real(*shape: int) -> np.ndarray:
    draw = np.random.default_rng(len(shape) * 100 + sum(shape))
    return draw.normal(size=shape).astype(np.float32)


def model(
    operator: str,
    shapes: dict[str, tuple[int, ...]],
    held: Held,
    *,
    inputs: list[str] | None = None,
    outputs: list[str] | None = None,
    opset: int = 17,
    domain: str = "com.microsoft",
    **attributes: Any,
) -> onnx.ModelProto:
    """One node of these inputs, those that are held last unless they are listed."""
    names = inputs or [*shapes, *held]
    outputs = outputs or ["y"]
    rank = 3 if operator.startswith("Embed") else len(next(iter(shapes.values())))
    node = helper.make_node(operator, names, outputs, "it", domain=domain, **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info(
                name, TensorProto.INT32 if name.startswith("ids") else TensorProto.FLOAT, shape
            )
            for name, shape in shapes.items()
        ],
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * rank)
            for name in outputs
            if name
        ],
        [numpy_helper.from_array(array, name) for name, array in held.items()],
    )
    sets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=sets, ir_version=8)


X = {"x": (2, 5, 6)}
NORM = {"gamma": real(6), "beta": real(6)}
WINDOW: dict[str, Any] = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 1]}
MAPS = {"x": (2, 3, 7, 6)}
FILTER = {"w": real(4, 3, 3, 3), "b": real(4)}
QKV = {"q": (2, 5, 8), "k": (2, 4, 8), "v": (2, 4, 8)}

MODELS = {
    "Gelu": model("Gelu", X, {}),
    "BiasGelu": model("BiasGelu", X, {"b": real(6)}),
    "FastGelu": model("FastGelu", X, {}),
    "FastGelu with a bias": model("FastGelu", X, {"b": real(6)}),
    "QuickGelu": model("QuickGelu", X, {}),
    "QuickGelu that is SiLU": model("QuickGelu", X, {}, alpha=1.0),
    "FusedConv": model("FusedConv", MAPS, FILTER, activation="Relu", **WINDOW),
    "FusedConv without a bias": model(
        "FusedConv", MAPS, {"w": FILTER["w"]}, activation="Sigmoid", **WINDOW
    ),
    "FusedConv with a sum": model(
        "FusedConv",
        MAPS,
        {**FILTER, "z": real(2, 4, 4, 6)},
        activation="Tanh",
        **WINDOW,
    ),
    "FusedConv, leaky": model(
        "FusedConv", MAPS, FILTER, activation="LeakyRelu", activation_params=[0.2], **WINDOW
    ),
    "FusedConv, clipped": model(
        "FusedConv", MAPS, FILTER, activation="Clip", activation_params=[0.1, 0.9], **WINDOW
    ),
    "FusedConv, hard": model(
        "FusedConv",
        MAPS,
        FILTER,
        activation="HardSigmoid",
        activation_params=[0.2, 0.5],
        **WINDOW,
    ),
    "FusedGemm": model(
        "FusedGemm",
        {"x": (5, 6)},
        {"w": real(4, 6), "c": real(4)},
        transB=1,
        alpha=0.5,
        beta=2.0,
        activation="Tanh",
    ),
    "FusedGemm, leaky": model(
        "FusedGemm",
        {"x": (5, 6)},
        {"w": real(6, 4)},
        activation="LeakyRelu",
        activation_alpha=0.3,
    ),
    "FusedMatMul": model(
        "FusedMatMul", {"a": (2, 3, 4, 5), "b": (2, 3, 6, 5)}, {}, transB=1, alpha=0.25
    ),
    "FusedMatMul of both turned": model(
        "FusedMatMul", {"a": (2, 3, 5, 4), "b": (2, 3, 6, 5)}, {}, transA=1, transB=1
    ),
    "SkipLayerNormalization": model(
        "SkipLayerNormalization", {"x": (2, 5, 6), "s": (2, 5, 6)}, NORM
    ),
    "SkipLayerNormalization with a bias and its sum": model(
        "SkipLayerNormalization",
        {"x": (2, 5, 6), "s": (2, 5, 6)},
        {**NORM, "bias": real(6)},
        outputs=["y", "", "", "sum"],
        epsilon=1e-3,
    ),
    "SkipSimplifiedLayerNormalization": model(
        "SkipSimplifiedLayerNormalization",
        {"x": (2, 5, 6), "s": (2, 5, 6)},
        {"gamma": real(6), "bias": real(6)},
    ),
    "SimplifiedLayerNormalization": model(
        "SimplifiedLayerNormalization", X, {"gamma": real(6)}, domain="", epsilon=1e-2
    ),
    "LayerNormalization before its time": model(
        "LayerNormalization", X, NORM, domain="", opset=14, epsilon=1e-2
    ),
    "a normalisation of set 18": model(
        "SkipLayerNormalization", {**X, "s": (2, 5, 6)}, NORM, opset=18
    ),
    "EmbedLayerNormalization": model(
        "EmbedLayerNormalization",
        {"ids": (2, 4), "ids_of_parts": (2, 4)},
        {"w": real(9, 6), "p": real(7, 6), "t": real(3, 6), **NORM},
        outputs=["y", "", "sum"],
    ),
    "EmbedLayerNormalization without parts": model(
        "EmbedLayerNormalization",
        {"ids": (2, 4)},
        {"w": real(9, 6), "p": real(7, 6), **NORM},
        inputs=["ids", "", "w", "p", "", "gamma", "beta"],
        outputs=["y", ""],
    ),
    "Attention": model(
        "Attention", {"x": (2, 5, 6)}, {"w": real(6, 24), "b": real(24)}, num_heads=2
    ),
    "Attention with a bias of its scores": model(
        "Attention",
        {"x": (2, 5, 6), "a": (1, 2, 5, 5)},
        {"w": real(6, 24), "b": real(24)},
        inputs=["x", "w", "b", "", "", "a"],
        num_heads=2,
        scale=0.5,
    ),
    "MultiHeadAttention": model("MultiHeadAttention", QKV, {}, num_heads=4),
    "MultiHeadAttention with a bias": model(
        "MultiHeadAttention", QKV, {"bias": real(24)}, num_heads=2, scale=0.3
    ),
}


def run(given: onnx.ModelProto, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    # As it is written: the optimiser would join operators again, and not all that it makes can be run.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(given.SerializeToString(), options)
    found: list[np.ndarray] = session.run(None, feed)
    return found


@pytest.mark.parametrize("name", MODELS)
def test_what_is_written_out_is_what_onnx_runtime_computes(name: str, tmp_path: Path) -> None:
    given = MODELS[name]
    feed: dict[str, np.ndarray] = {}
    for number, value in enumerate(given.graph.input):
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        draw = np.random.default_rng(number)
        whole = value.type.tensor_type.elem_type == TensorProto.INT32
        feed[value.name] = (
            draw.integers(0, 3, shape).astype(np.int32)
            if whole
            else draw.normal(size=shape).astype(np.float32)
        )
    expected = run(given, feed)
    straight = foreign_operators(given) or given
    assert {node.domain for node in straight.graph.node} == {""}
    onnx.checker.check_model(straight)
    for wanted, found in zip(expected, run(straight, feed)):
        np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-5)
    computed = Evaluator(straight).run(feed)
    for wanted, found in zip(expected, computed.values()):
        np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-5)
    path = tmp_path / "model.onnx"
    onnx.save(given, path)
    assert read_model_file(path, "it").facts.consistent


@pytest.mark.parametrize(
    "given",
    [
        model("FusedConv", MAPS, FILTER, activation="Mish", **WINDOW),
        model("FusedMatMul", {"a": (2, 3, 4, 5), "b": (2, 3, 6, 5)}, {}, transBatchA=1),
        model("Attention", {"x": (2, 5, 6)}, {"w": real(6, 24)}, num_heads=2, unidirectional=1),
        model("Attention", {"x": (2, 5, 6)}, {"w": real(6, 24)}),
        model("QuickGelu", {"x": (2, 5, 6), "z": (2, 5, 6)}, {}, alpha=1.0),
        model("SkipLayerNormalization", {"x": (2, 5, 6), "s": (2, 5, 6)}, NORM, epsilon="small"),
        model("MatMulNBits", {"x": (2, 5, 6)}, {}, K=6, N=4, bits=4),
    ],
    ids=lambda given: given.graph.node[0].op_type,
)
def test_what_is_not_written_out_is_refused(given: onnx.ModelProto, tmp_path: Path) -> None:
    assert (foreign_operators(given) or given).graph.node == given.graph.node
    path = tmp_path / "model.onnx"
    onnx.save(given, path)
    with pytest.raises(UnsupportedError, match="no operator of ONNX"):
        read_model_file(path, "it")
