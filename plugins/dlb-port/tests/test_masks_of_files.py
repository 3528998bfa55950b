"""What a Where chooses by in two files: a mask, however it is computed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dlb_port import compare_files

FEATURES = 48
KEPT = np.arange(FEATURES) < 20


def write(path: Path, kept: npt.NDArray[np.bool_], *, cast: bool) -> Path:
    """A product of what a mask leaves; a cast mask is written as real numbers, as MXNet's exporter does."""
    arrays: dict[str, Any] = {
        "kept": kept.astype(np.float32) if cast else kept,
        "other": np.zeros((), np.float32),
        "weight": np.random.default_rng(0).normal(size=(FEATURES, 3)).astype(np.float32),
    }
    chosen_by = "cast" if cast else "kept"
    nodes = [
        helper.make_node("Where", [chosen_by, "input", "other"], ["masked"]),
        helper.make_node("MatMul", ["masked", "weight"], ["output"]),
    ]
    if cast:
        nodes.insert(0, helper.make_node("Cast", ["kept"], ["cast"], to=TensorProto.BOOL))
    graph = helper.make_graph(
        nodes,
        "masked",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", FEATURES])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, ["batch", 3])],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


@pytest.mark.parametrize("cast", [False, True])
def test_the_same_places_are_proven(tmp_path: Path, cast: bool) -> None:
    first = write(tmp_path / "first.onnx", KEPT, cast=False)
    second = write(tmp_path / "second.onnx", KEPT, cast=cast)
    assert compare_files(first, second).status(second.name) == "proven"


@pytest.mark.parametrize("cast", [False, True])
def test_as_many_other_places_deviate(tmp_path: Path, cast: bool) -> None:
    """Structures count the places that stay; values tell which they are."""
    first = write(tmp_path / "first.onnx", KEPT, cast=False)
    second = write(tmp_path / "second.onnx", np.roll(KEPT, 7), cast=cast)
    certificate = compare_files(first, second)
    assert certificate.status(second.name) == "deviates"
    (failed,) = [each for each in certificate.checks if each.check == "forward float64"]
    assert failed.verdict == "failed"
