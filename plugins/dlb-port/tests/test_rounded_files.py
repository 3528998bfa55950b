"""Constants that exporters rounded at different steps are told apart from other numbers."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from test_files_proof import compare  # noqa: F401

from dlb.report.sentences import describe
from dlb_port.findings.files import RoundedConstants

DRAW = np.random.default_rng(0)
WEIGHT = DRAW.standard_normal((6, 5)).astype("float32")
BY = DRAW.standard_normal((6, 1)).astype("float32")
OVER = np.float32(0.7)


def model(folded: bool, *, turned: bool = False, change: float = 0.0) -> onnx.ModelProto:
    """``(x W) * over``, where a file holds the products ``W`` and ``over``, or computes them."""
    nodes, held = [], {}
    product = WEIGHT * BY
    root = np.float32(1) / np.sqrt(OVER)
    if change:
        product = product * (1 + np.float32(change) * DRAW.choice((-1.0, 1.0), product.shape))
    if folded:
        held = {"w": product.T if turned else product, "r": root}
    else:
        held = {"weight": WEIGHT, "by": BY, "over": OVER, "one": np.float32(1)}
        nodes = [
            helper.make_node("Mul", ["weight", "by"], ["w"]),
            helper.make_node("Sqrt", ["over"], ["s"]),
            helper.make_node("Div", ["one", "s"], ["r"]),
        ]
    nodes += [
        helper.make_node("Gemm", ["x", "w"], ["h"], transB=int(turned)),
        helper.make_node("Tanh", ["h"], ["t"]),
        helper.make_node("Mul", ["t", "r"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 5])],
        [numpy_helper.from_array(np.float32(array), name) for name, array in held.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("swapped", [False, True])
def test_folded_in_float32_or_left_to_the_runtime(compare, swapped, turned) -> None:  # noqa: F811
    files = (model(False), model(True, turned=turned))
    certificate = compare(*(files[::-1] if swapped else files))
    assert certificate.status("b.onnx") == "within rounding"
    failed = [each for each in certificate.checks if each.verdict == "failed"]
    causes = [each.findings[0].cause for each in failed]
    assert causes and all(isinstance(cause, RoundedConstants) for cause in causes)
    assert causes[0].constants == 2 and 1e-9 < causes[0].furthest < 1e-6
    assert "2 constants that exporters rounded at different steps" in describe(failed[0])


def test_folded_in_another_order(compare) -> None:  # noqa: F811
    certificate = compare(model(True), model(True, change=1e-7))
    assert certificate.status("b.onnx") == "within rounding"


@pytest.mark.parametrize("change", [1e-5, 1e-3])
def test_other_numbers_deviate(compare, change) -> None:  # noqa: F811
    certificate = compare(model(False), model(True, change=change))
    assert certificate.status("b.onnx") == "deviates"


def test_one_number_of_many_deviates(compare) -> None:  # noqa: F811
    """Though by one unit in the last place: who rounds in another order changes many."""
    other = model(True)
    tensor = next(each for each in other.graph.initializer if each.name == "w")
    array = numpy_helper.to_array(tensor).copy()
    array.flat[3] += np.spacing(array.flat[3])
    tensor.CopyFrom(numpy_helper.from_array(array, "w"))
    assert compare(model(True), other).status("b.onnx") == "deviates"
