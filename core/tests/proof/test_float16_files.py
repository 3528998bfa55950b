"""A file in float16 is told apart from another model."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper
from test_files_proof import GRAPHS, compare  # noqa: F401

from dlb.proof.findings.files import Float16Model
from dlb.report.sentences import describe

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
    assert "the same model in float16: each of" in describe(failed[0])


@pytest.mark.parametrize("network", NETWORKS)
def test_a_file_in_float16_with_another_weight_deviates(compare, network) -> None:  # noqa: F811
    certificate = compare(GRAPHS[network], half(GRAPHS[network], change=1e-2))
    assert certificate.status("b.onnx") == "deviates"
