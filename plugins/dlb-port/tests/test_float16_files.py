"""A file in float16 is told apart from another model."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper
from test_files_proof import GRAPHS, W, compare, of  # noqa: F401

from dlb.proof.explain import explain
from dlb.proof.rounding import to_bfloat16
from dlb.report.explanations import explanation_lines
from dlb.report.records import certificate_table
from dlb.report.sentences import describe
from dlb_graph.comparing.read_facts import NarrowValues
from dlb_port.findings.files import Float16Model

NETWORKS = ("lenet", "residual")


def half(model: onnx.ModelProto, change: float = 0.0) -> onnx.ModelProto:
    """The model in float16, with one number of its largest weight changed."""
    narrow = onnx.ModelProto()
    narrow.CopyFrom(model)
    for value in (*narrow.graph.input, *narrow.graph.output, *narrow.graph.value_info):
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
    for tensor in narrow.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            array = numpy_helper.to_array(tensor).astype(np.float16)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    weights = [each for each in narrow.graph.initializer if each.data_type == TensorProto.FLOAT16]
    largest = max(weights, key=lambda each: numpy_helper.to_array(each).size)
    array = numpy_helper.to_array(largest).copy()
    array.flat[0] += np.float16(change)
    largest.CopyFrom(numpy_helper.from_array(array, largest.name))
    return narrow


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("network", NETWORKS)
def test_a_file_in_float16_is_the_same_model(compare, network, swapped) -> None:  # noqa: F811
    files = (GRAPHS[network], half(GRAPHS[network]))
    certificate = compare(*(files[::-1] if swapped else files))
    assert certificate.status("b.onnx") == "the same model in float16"
    failed = [each for each in certificate.checks if each.verdict == "failed"]
    causes = [each.findings[0].cause for each in failed]
    assert causes and all(isinstance(cause, Float16Model) for cause in causes)
    assert causes[0].file == ("a.onnx" if swapped else "b.onnx")
    assert 1e-5 < causes[0].distance < 1e-2
    assert "the same model in float16: " in describe(failed[0])
    (line,) = explanation_lines(certificate, short=True)
    assert line.startswith("b.onnx differs by rounding") and not explain(certificate)
    cells = [row[2] for row in certificate_table(certificate).rows]
    assert not any("failed" in each for each in cells) and "by rounding" in cells[0]


ROUNDED = {
    "float16": lambda array: array.astype(np.float16).astype(np.float32),
    "bfloat16": to_bfloat16,
}


@pytest.mark.parametrize("weights", [1, None])
@pytest.mark.parametrize("kind", ROUNDED)
def test_weights_rounded_and_stored_in_float32_are_said_to_be_that(compare, kind, weights) -> None:  # noqa: F811
    """One weight, or all."""
    rounded = onnx.ModelProto()
    rounded.CopyFrom(GRAPHS["lenet"])
    real = [each for each in rounded.graph.initializer if each.data_type == TensorProto.FLOAT]
    for tensor in real[:weights]:
        array = ROUNDED[kind](numpy_helper.to_array(tensor))
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    certificate = compare(GRAPHS["lenet"], rounded)
    assert certificate.status("b.onnx") == f"the same model in {kind}"
    (line,) = explanation_lines(certificate, short=True)
    count = "1 weight is that" if weights else f"{len(real)} weights are those"
    assert f"{count} of 'a.onnx' rounded to {kind}, stored in a wider type" in line
    largest = max(real, key=lambda each: numpy_helper.to_array(each).size)
    array = numpy_helper.to_array(largest).copy()
    array.flat[-1] += np.float32(1)
    largest.CopyFrom(numpy_helper.from_array(array, largest.name))
    assert compare(GRAPHS["lenet"], rounded).status("b.onnx") == "deviates"


@pytest.mark.parametrize("network", NETWORKS)
def test_a_file_in_float16_with_another_weight_deviates(compare, network) -> None:  # noqa: F811
    certificate = compare(GRAPHS[network], half(GRAPHS[network], change=1e-2))
    assert certificate.status("b.onnx") == "deviates"


PRODUCT = "h = MatMul (x, w) y = Relu (h)"


def with_cast(kind: int) -> onnx.ModelProto:
    cast = f"n = Cast <to = {kind}> (h) g = Cast <to = {TensorProto.FLOAT}> (n) y = Relu (g)"
    return of(f"h = MatMul (x, w) {cast}", {"w": W})


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_a_value_that_one_file_rounds_is_told(compare, kind, swapped) -> None:  # noqa: F811
    files = of(PRODUCT, {"w": W}), with_cast(kind)
    certificate = compare(*(files[::-1] if swapped else files))
    assert certificate.status("b.onnx") in ("within rounding", "unproven")
    (forward,) = (each for each in certificate.checks if each.check == "forward float64")
    causes = [each.cause for each in forward.findings]
    (cause,) = (each for each in causes if isinstance(each, NarrowValues))
    assert (cause.file, cause.values) == ("a.onnx" if swapped else "b.onnx", ("n",))
    assert "which the other file does not" in describe(forward)


@pytest.mark.parametrize("off", [0.0, 1e-4])
def test_a_rounding_that_both_files_have_is_none(compare, off) -> None:  # noqa: F811
    files = with_cast(TensorProto.FLOAT16), with_cast(TensorProto.FLOAT16)
    array = numpy_helper.to_array(files[1].graph.initializer[0]) + np.float32(off)
    files[1].graph.initializer[0].CopyFrom(numpy_helper.from_array(array, "w"))
    assert compare(*files).status("b.onnx") == ("deviates" if off else "proven")


def test_another_weight_is_no_rounding(compare) -> None:  # noqa: F811
    other = of(PRODUCT, {"w": W + np.float32(1e-4)})
    assert compare(with_cast(TensorProto.FLOAT16), other).status("b.onnx") == "deviates"


def test_a_file_in_float16_with_equal_weights_still_rounds(compare) -> None:  # noqa: F811
    narrow = half(GRAPHS["lenet"])
    wide = onnx.ModelProto()
    wide.CopyFrom(GRAPHS["lenet"])
    for tensor, held in zip(wide.graph.initializer, narrow.graph.initializer):
        if tensor.data_type == TensorProto.FLOAT:
            array = numpy_helper.to_array(held).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    assert compare(wide, narrow).status("b.onnx") in ("within rounding", "unproven")
