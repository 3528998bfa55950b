"""The numbers of an exported file, next to those of the model that it is of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from dlb.proof.checks.exported_weights import check_exported_weights
from dlb.proof.engine import Check
from dlb_graph.workload import Input, Model, Node, Shift

NUMBERS = np.array([0.5, 0.25, 3.0, 7.0], "float32")
ZEROS = np.array([0.0, -0.0, 0.0, 0.0], "float32")
ALMOST = np.array([0.0, 1e-30, 0.0, 0.0], "float32")
TWICE = np.array([0.5, 0.5, 3.0, 7.0], "float32")


@pytest.mark.parametrize(
    ("held", "model", "verdict"),
    [
        ([NUMBERS], [NUMBERS], "passed"),
        ([NUMBERS[::-1]], [NUMBERS], "passed"),
        ([NUMBERS], [NUMBERS, NUMBERS], "passed"),  # an exporter keeps one of two equal tensors
        ([NUMBERS], [NUMBERS, NUMBERS[::-1]], "failed"),
        ([NUMBERS], [NUMBERS, TWICE], "failed"),
        ([NUMBERS, TWICE], [NUMBERS, TWICE], "passed"),
        ([NUMBERS], [NUMBERS, ZEROS], "passed"),  # an exporter leaves out a bias of zeros
        ([NUMBERS], [NUMBERS, ALMOST], "failed"),
    ],
)
def test_every_number_is_held_as_often(
    held: list[np.ndarray], model: list[np.ndarray], verdict: str, tmp_path: Path
) -> None:
    constants = [numpy_helper.from_array(array, f"c{at}") for at, array in enumerate(held)]
    path = tmp_path / "exported.onnx"
    onnx.save(helper.make_model(helper.make_graph([], "g", [], [], constants)), path)
    weights = {f"l{at}.bias": array for at, array in enumerate(model)}
    nodes = tuple(Node(name=f"l{at}", layer=Shift(sizes=(4,))) for at in range(len(model)))
    described = Model(input=Input(shape=(4,)), nodes=nodes)
    check = Check.of("exported weights", "example")
    assert check_exported_weights(check, described, weights, path).verdict == verdict
