"""ONNX's own backend tests on every adapter: a subset that takes seconds."""

from __future__ import annotations

import unittest
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.backend.test import BackendTest

import dlb_port
from conftest import ADAPTERS
from dlb.errors import RequestError

#: Covered by layers.
PASS = {
    "NodeModel": """
        abs averagepool_2d_ceil averagepool_2d_pads averagepool_2d_pads_count_include_pad
        basic_conv_with_padding batchnorm_epsilon einsum_inner_prod conv_with_strides_and_asymmetric_padding
        gemm_transposeB hardsigmoid hardswish hardswish_expanded leakyrelu maxpool_2d_ceil maxpool_2d_pads
        maxpool_2d_same_lower relu tanh
        and2d xor2d greater less_equal not_2d floor round gather_elements_1 tril
        reduce_log_sum_exp_default_axes_keepdims_example dequantizelinear where_example
        gru_defaults lstm_defaults argmax_keepdims_example top_k
        gridsample gridsample_bicubic_align_corners_1_additional_1 col2im_pads stft dft_axis
        reduce_prod_negative_axes_keepdims_random
    """,
    "PyTorchConvertedModel": "Conv2d_groups Conv2d_padding Linear MaxPool2d ReLU",
    "SimpleModel": "single_relu_model",
}
#: Not covered, of which nothing must be tried.
SKIP = {"NodeModel": "det_2d nonzero_example bitshift_left_uint8"}


@pytest.fixture(scope="module")
def runner(home: Path) -> Iterator[BackendTest]:
    """Every test, made once, since that alone takes seconds."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setenv("DLB_HOME", str(home))
        yield BackendTest(dlb_port.onnx_backend(ADAPTERS[0]), __name__)


def named(runner: BackendTest, names: dict[str, str]) -> Iterator[unittest.TestCase]:
    cases = runner.test_cases
    for kind, words in names.items():
        for word in words.split():
            yield cases[f"OnnxBackend{kind}Test"](f"test_{word}_cpu")


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_what_layers_cover_passes_and_what_they_do_not_is_skipped(
    adapter: str, runner: BackendTest
) -> None:
    runner.backend = dlb_port.onnx_backend(adapter)
    covered, others = unittest.TestResult(), unittest.TestResult()
    for test in named(runner, PASS):
        test.run(covered)
    for test in named(runner, SKIP):
        test.run(others)
    runner.backend.worker.close()
    wrong = [*covered.failures, *covered.errors, *others.failures, *others.errors]
    assert not wrong, "\n".join(text for _, text in wrong)
    assert not covered.skipped
    assert len(others.skipped) == others.testsRun


@pytest.mark.parametrize(
    "adapter", ["torch", *(pytest.param(each, marks=pytest.mark.long) for each in ADAPTERS[1:])]
)
def test_what_float32_rounds_away_is_there_in_float64(
    adapter: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That each adapter computes in float64, the conformance suite shows."""
    monkeypatch.setenv("DLB_HOME", str(home))
    float32 = onnx.TensorProto.FLOAT
    # Neither 2^30 + 1 nor 2^30 + 1.5 is in float32.
    weight = np.float32([[2**30], [1], [0.5], [-(2**30)]])
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])],
            "one",
            [onnx.helper.make_tensor_value_info("x", float32, (1, 4))],
            [onnx.helper.make_tensor_value_info("y", float32, (1, 1))],
            [onnx.numpy_helper.from_array(weight, "w")],
        ),
        opset_imports=[onnx.helper.make_opsetid("", 13)],
        ir_version=10,
    )
    backend = dlb_port.onnx_backend(adapter, threads=1, dtype="float64")
    (found,) = backend.prepare(model).run([np.ones((1, 4), np.float32)])
    backend.worker.close()
    assert found.dtype == np.float32 and found.tolist() == [[1.5]]


def test_a_backend_of_another_type_is_refused() -> None:
    with pytest.raises(RequestError, match="float16"):
        dlb_port.onnx_backend(ADAPTERS[0], dtype="float16")
