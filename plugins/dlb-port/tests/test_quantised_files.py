"""A quantised file is told apart from another model: files of ONNX Runtime's own quantiser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

from dlb.proof.certificate import Certificate
from dlb.report.sentences import describe
from dlb_port import compare_files
from dlb_port.findings.files import QuantisedModel

SHAPE = (3, 16, 16)


def drawn(*shape: int) -> np.ndarray:
    draw = np.random.default_rng(sum(shape))
    return (draw.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))).astype(np.float32)


def network(*, relu: bool = True, moved: float = 0.0) -> onnx.ModelProto:
    """Two convolutions with a sum between them, and a classifier; one weight is moved by so much."""
    node = helper.make_node
    window = {"pads": [1, 1, 1, 1]}
    second = [node("Relu", ["c2"], ["r2"])] if relu else [node("Identity", ["c2"], ["r2"])]
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["c1"], **window),
        node("Relu", ["c1"], ["r1"]),
        node("Conv", ["r1", "w2", "b2"], ["c2"], **window),
        *second,
        node("Add", ["r2", "r1"], ["sum"]),
        node("GlobalAveragePool", ["sum"], ["pooled"]),
        node("Flatten", ["pooled"], ["flat"]),
        node("Gemm", ["flat", "w3", "b3"], ["y"]),
    ]
    held = {"w1": drawn(8, 3, 3, 3), "b1": drawn(8, 1)[:, 0], "w2": drawn(8, 8, 3, 3)}
    held |= {"b2": drawn(9, 1)[:8, 0], "w3": drawn(8, 5), "b3": drawn(5, 1)[:, 0]}
    held["w2"][0, 0, 0, 0] += np.float32(moved)
    kind = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "g",
        [kind("x", TensorProto.FLOAT, ["N", *SHAPE])],
        [kind("y", TensorProto.FLOAT, ["N", 5])],
        [numpy_helper.from_array(array, name) for name, array in held.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


class Noise(CalibrationDataReader):
    """Batches of noise, from which a quantiser takes ranges."""

    def __init__(self) -> None:
        draw = np.random.default_rng(1)
        self.batches: Iterator[Any] = iter(
            [{"x": draw.standard_normal((4, *SHAPE)).astype(np.float32)} for _ in range(4)]
        )

    def get_next(self) -> Any:
        return next(self.batches, None)


def quantised(path: Path, form: str) -> Path:
    """The file, quantised in one of the quantiser's forms."""
    result = path.with_name("quantised.onnx")
    if form == "dynamic":
        quantize_dynamic(path, result)
        return result
    channels = form == "channels"
    quantize_static(
        path,
        result,
        Noise(),
        quant_format=QuantFormat.QOperator if form == "operators" else QuantFormat.QDQ,
        per_channel=channels,
        activation_type=QuantType.QInt8 if channels else QuantType.QUInt8,
    )
    return result


def compared(tmp_path: Path, form: str, other: onnx.ModelProto | None = None) -> Certificate:
    """The network, quantised, next to another."""
    plain = tmp_path / "plain.onnx"
    onnx.save(network(), plain)
    result = quantised(plain, form)
    if other is not None:
        onnx.save(other, plain)
    return compare_files(plain, result)


@pytest.mark.parametrize("form", ["pairs", "channels", "operators", "dynamic"])
def test_a_quantised_file_is_the_same_model(tmp_path: Path, form: str) -> None:
    certificate = compared(tmp_path, form)
    assert certificate.status("quantised.onnx") == "the same model, quantised"
    failed = [each for each in certificate.checks if each.verdict == "failed"]
    causes = [each.findings[0].cause for each in failed]
    assert causes and all(isinstance(cause, QuantisedModel) for cause in causes)
    assert causes[0].weights >= 2
    assert 1e-4 < causes[0].distance < 1  # of noise beyond the ranges, too
    assert "the same model, quantised: each of" in describe(failed[0])


@pytest.mark.parametrize(
    "other", [network(relu=False), network(moved=0.05)], ids=["no ReLU", "a weight moved"]
)
def test_another_model_deviates(tmp_path: Path, other: onnx.ModelProto) -> None:
    """A step of the weights is 0.009."""
    assert compared(tmp_path, "pairs", other).status("quantised.onnx") == "deviates"


@pytest.mark.parametrize(("moved", "word"), [(0.0, "the same model, quantised"), (1.0, "deviates")])
def test_a_table_whose_rows_are_scaled_after_they_are_looked_up(
    tmp_path: Path, moved: float, word: str
) -> None:
    """As the quantiser writes the table of an embedding."""
    table, weight = drawn(20, 6), drawn(6, 3)
    kind, node = helper.make_tensor_value_info, helper.make_node
    plain = tmp_path / "plain.onnx"
    for by in (0.0, moved):
        table[3, 2] += np.float32(by)
        graph = helper.make_graph(
            [
                node("Gather", ["table", "ids"], ["rows"]),
                node("ReduceMean", ["rows"], ["mean"], axes=[1], keepdims=0),
                node("MatMul", ["mean", "weight"], ["y"]),
            ],
            "g",
            [kind("ids", TensorProto.INT64, ["N", 5])],
            [kind("y", TensorProto.FLOAT, ["N", 3])],
            [numpy_helper.from_array(table, "table"), numpy_helper.from_array(weight, "weight")],
        )
        opset = [helper.make_opsetid("", 17)]
        onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), plain)
        if not by:
            quantize_dynamic(plain, tmp_path / "quantised.onnx")
    nodes = onnx.load(tmp_path / "quantised.onnx").graph.node
    assert [each.op_type for each in nodes[:2]] == ["Gather", "DequantizeLinear"]
    certificate = compare_files(plain, tmp_path / "quantised.onnx")
    assert certificate.status("quantised.onnx") == word
