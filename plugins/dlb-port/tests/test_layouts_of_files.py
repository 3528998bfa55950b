"""``dlb diff`` of files whose inputs and outputs have other orders of axes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dlb.errors import RequestError
from dlb.proof.certificate import Certificate
from dlb.report.sentences import describe
from dlb_port import compare_files

LAST, FIRST = [0, 3, 1, 2], [0, 2, 3, 1]


def written(
    path: Path,
    channels: int = 3,
    *,
    reads: list[int] | None = None,
    returns: list[int] | None = None,
    shape: tuple[object, ...] = (),
    bias: float = 0.0,
) -> Path:
    """A convolution of maps [N, C, 4, 5], or [N, 4, 4, 4], perhaps transposed before and after."""
    draw = np.random.default_rng(7)
    held = {
        "w": draw.standard_normal((6, channels, 3, 3)),
        "b": draw.standard_normal(6) + bias,
    }
    nodes = [helper.make_node("Conv", ["map", "w", "b"], ["h"], "conv", pads=[1, 1, 1, 1])]
    read = helper.make_node("Transpose", ["x"], ["map"], perm=reads or [0, 1, 2, 3])
    end = helper.make_node("Transpose", ["h"], ["y"], perm=returns or [0, 1, 2, 3])
    graph = helper.make_graph(
        [read, *nodes, end],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ("N", *shape))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ("N", None, None, None))],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in held.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), str(path))
    return path


def said(certificate: Certificate) -> str:
    return "; ".join(describe(check) for check in certificate.checks)


OTHERS = {
    "input and output": (
        {"reads": LAST, "returns": FIRST, "shape": (4, 5, 3)},
        ["'x' of 'b.onnx' transposed by [0, 3, 1, 2]", "'y' of 'b.onnx' transposed by"],
    ),
    "its output alone": ({"returns": FIRST, "shape": (3, 4, 5)}, ["'y' of 'b.onnx' transposed"]),
    "its input alone": ({"reads": LAST, "shape": (4, 5, 3)}, ["'x' of 'b.onnx' transposed"]),
    "its input, of open sizes": (
        {"reads": LAST, "shape": (None, None, 3)},
        ["'x' of 'b.onnx' transposed by [0, 3, 1, 2]: as sizes show"],
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_layout_is_found_and_named(name: str, tmp_path: Path) -> None:
    options, sentences = OTHERS[name]
    first = written(tmp_path / "a.onnx", shape=(3, 4, 5))
    compared = compare_files(first, written(tmp_path / "b.onnx", **options))
    assert compared.status("b.onnx") == "proven"
    for sentence in sentences:
        assert sentence in said(compared)
    assert compared.agrees == compare_files(tmp_path / "b.onnx", first).agrees


def test_another_weight_in_another_layout_deviates(tmp_path: Path) -> None:
    first = written(tmp_path / "a.onnx", shape=(3, 4, 5))
    second = written(tmp_path / "b.onnx", reads=LAST, returns=FIRST, shape=(4, 5, 3), bias=0.1)
    compared = compare_files(first, second)
    assert compared.status("b.onnx") == "deviates" and "of Conv 'conv'" in said(compared)


def test_height_and_width_exchanged_is_no_layout(tmp_path: Path) -> None:
    first = written(tmp_path / "a.onnx", shape=(3, 4, 5))
    second = written(tmp_path / "b.onnx", reads=[0, 3, 2, 1], shape=(5, 4, 3))
    with pytest.raises(RequestError, match="shapes do not match"):
        compare_files(first, second)


def test_sizes_that_fit_both_ways_are_no_layout(tmp_path: Path) -> None:
    """Whoever means another layout says so: files that take the same arrays must compute the same of them."""
    first = written(tmp_path / "a.onnx", 4, shape=(4, 4, 4))
    second = written(tmp_path / "b.onnx", 4, reads=LAST, returns=FIRST, shape=(4, 4, 4))
    compared = compare_files(first, second)
    assert compared.status("b.onnx") == "deviates"
    assert "--layout b.onnx=NHWC says so" in said(compared)
    declared = compare_files(first, second, layouts={"b.onnx": "NHWC"})
    assert declared.status("b.onnx") == "proven"
    assert "transposed by [0, 3, 1, 2]: as --layout says" in said(declared)
    other = written(tmp_path / "c.onnx", 4, reads=LAST, returns=FIRST, shape=(4, 4, 4), bias=0.1)
    assert "--layout" not in said(compare_files(first, other))
    assert compare_files(first, other, layouts={"c.onnx": "NHWC"}).status("c.onnx") == "deviates"


@pytest.mark.parametrize(
    ("layouts", "message"),
    [
        ({"c.onnx": "NHWC"}, "name one of a.onnx, b.onnx"),
        ({"b.onnx": "NCWH"}, "one of NHWC, NWC"),
        ({"b.onnx": "NWC"}, "no input has as many axes"),
    ],
)
def test_a_layout_that_is_none_is_refused(
    layouts: dict[str, str], message: str, tmp_path: Path
) -> None:
    first = written(tmp_path / "a.onnx", shape=(3, 4, 5))
    with pytest.raises(RequestError, match=message):
        compare_files(first, written(tmp_path / "b.onnx", shape=(3, 4, 5)), layouts=layouts)
