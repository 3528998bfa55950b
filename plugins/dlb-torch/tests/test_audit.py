"""Right runs whose audit once called them different."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import dlb


def test_a_mean_that_is_a_small_sum_of_large_values(tmp_path: Path) -> None:
    """After a normalisation with small shifts, a convolution has means far below its values."""
    path = tmp_path / "model.onnx"
    onnx.save(_two_normalisations(), path)
    proof = dlb.verify(path, on=["torch"], groups=("audit",), threads=1)
    (steps,) = (each for each in proof.checks if each.check == "audit, steps")
    assert steps.verdict == "passed", steps


def test_a_small_element_whose_sign_rounding_turns() -> None:
    """Adam's first step goes as far for it as for any other, of which a weight of 12 x 12 has few."""
    workload = Path(__file__).parents[3] / "tests" / "cross" / "workloads" / "transformer.toml"
    chosen = {"groups": ("audit",), "variants": ("precision=bfloat16",), "threads": 1}
    for _ in range(3):
        proof = dlb.verify(workload, on=["torch"], **chosen)
        (steps,) = (each for each in proof.checks if each.check == "audit, steps")
        assert steps.verdict == "passed", steps


def _two_normalisations() -> onnx.ModelProto:
    """Convolution and normalisation twice, with the statistics that training would have left."""
    draw, middle, last = np.random.default_rng(0), 16, 32
    shifts = draw.standard_normal(middle) * 1e-5
    mixed = draw.standard_normal((last, middle, 1, 1)) * 0.3
    means = mixed[:, :, 0, 0] @ shifts + draw.standard_normal(last) * 1e-6
    held = {
        "first": draw.standard_normal((middle, 3, 3, 3)) * 0.3,
        "scale": np.ones(middle),
        "shift": shifts,
        "mean": np.zeros(middle),
        "variance": np.full(middle, 2.0),
        "second": mixed,
        "second_scale": np.ones(last),
        "second_shift": np.zeros(last),
        "second_mean": means,
        "second_variance": (mixed**2).sum((1, 2, 3)),
        "matrix": draw.standard_normal((10, last)) * 0.1,
        "bias": np.zeros(10),
    }
    nodes = [
        helper.make_node("Conv", ["x", "first"], ["a"], kernel_shape=[3, 3]),
        helper.make_node("BatchNormalization", ["a", "scale", "shift", "mean", "variance"], ["b"]),
        helper.make_node("Conv", ["b", "second"], ["c"], kernel_shape=[1, 1]),
        helper.make_node(
            "BatchNormalization",
            ["c", *(f"second_{each}" for each in ("scale", "shift", "mean", "variance"))],
            ["d"],
        ),
        helper.make_node("Relu", ["d"], ["e"]),
        helper.make_node("GlobalAveragePool", ["e"], ["f"]),
        helper.make_node("Flatten", ["f"], ["g"]),
        helper.make_node("Gemm", ["g", "matrix", "bias"], ["y"], transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "two normalisations",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 18, 18])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 10])],
        [numpy_helper.from_array(np.float32(array), name) for name, array in held.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
