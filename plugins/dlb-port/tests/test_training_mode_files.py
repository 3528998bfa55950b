"""A file that was exported in training mode is said to be."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from test_files_proof import compare, result  # noqa: F401

from dlb.report.sentences import describe
from dlb_graph.comparing.read_facts import InTrainingMode

DRAW = np.random.default_rng(0)
WEIGHTS = {
    "scale": DRAW.uniform(0.5, 1.5, 3),
    "bias": DRAW.normal(size=3),
    "mean": DRAW.normal(size=3),
    "variance": DRAW.uniform(0.5, 1.5, 3),
}


def network(norm: bool, dropout: bool):
    """A batch normalisation and a dropout, each in training mode or not."""
    statistics = ["running mean", "running variance"] if norm else []
    nodes = [
        helper.make_node(
            "BatchNormalization",
            ["x", *WEIGHTS],
            ["y", *statistics],
            name="bn",
            training_mode=int(norm),
        ),
        helper.make_node("Dropout", ["y", "rate", "training"], ["z"], name="drop"),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 3]) for name in ("x", "z")]
    tensors = [
        numpy_helper.from_array(array.astype(np.float32), name) for name, array in WEIGHTS.items()
    ]
    tensors += [
        numpy_helper.from_array(np.float32(0.0), "rate"),
        numpy_helper.from_array(np.bool_(dropout), "training"),
    ]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)


@pytest.mark.parametrize(
    ("norm", "dropout", "says"), [(True, False, "'bn'"), (True, True, "'bn', 'drop'")]
)
def test_nodes_in_training_mode_are_named(compare, norm, dropout, says) -> None:  # noqa: F811
    certificate = compare(network(False, False), network(norm, dropout))
    assert certificate.status("b.onnx") == "deviates"
    forward = result(certificate, "forward float64")
    assert isinstance(forward.findings[0].cause, InTrainingMode)
    assert f"'b.onnx' was exported in training mode: training_mode=1 at {says}" in describe(forward)


def test_nothing_is_said_of_evaluation_mode(compare) -> None:  # noqa: F811
    certificate = compare(network(False, False), network(False, False))
    assert certificate.status("b.onnx") == "proven"
    for each in certificate.checks:
        assert not any(isinstance(finding.cause, InTrainingMode) for finding in each.findings)
