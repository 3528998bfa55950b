"""ONNX files with maps that are resized by interpolation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from test_imported import CONV, TAIL, before_head, conv, kinds, node, saved

from dlb.errors import DlbError
from dlb.proof.checks.file import check_file
from dlb_graph import workload as W
from dlb_graph.files.read import import_file


def resized(*nodes: onnx.NodeProto, width: int, opset: int = 17, **held: Any) -> onnx.ModelProto:
    """Nodes from the map ``c`` [4, 5, 6] of three samples to ``h``, and a linear layer after them."""
    made = before_head([conv(), *nodes], {**CONV, **held}, width, shape=(3, 2, 5, 6))
    made.opset_import[0].version = opset
    return made


def to_sizes(*sizes: int, **attributes: Any) -> onnx.ModelProto:
    made = node("Resize", ["c", "", "", "sizes"], ["h"], **attributes)
    return resized(made, width=4 * sizes[0] * sizes[1], sizes=np.array([3, 4, *sizes]))


def by_scales(*scales: float, size: tuple[int, int], **attributes: Any) -> onnx.ModelProto:
    made = node("Resize", ["c", "", "scales"], ["h"], **attributes)
    numbers = np.array([1, 1, *scales], np.float32)
    return resized(made, width=4 * size[0] * size[1], scales=numbers)


FILES: dict[str, tuple[onnx.ModelProto, W.Resize]] = {
    "sizes": (to_sizes(10, 12, mode="linear"), W.Resize(sizes=(4, 10, 12))),
    "fewer": (to_sizes(2, 1, mode="linear"), W.Resize(sizes=(4, 2, 1))),
    "one axis": (to_sizes(5, 9, mode="linear"), W.Resize(sizes=(4, 5, 9))),
    "cubic": (
        to_sizes(8, 4, mode="cubic", cubic_coeff_a=-0.5, exclude_outside=1),
        W.Resize(sizes=(4, 8, 4), mode="cubic", cubic_a=-0.5, exclude_outside=True),
    ),
    **{
        mode: (
            to_sizes(8, 4, mode="cubic", coordinate_transformation_mode=mode),
            W.Resize(sizes=(4, 8, 4), mode="cubic", coordinates=mode),  # type: ignore[arg-type]
        )
        for mode in ("pytorch_half_pixel", "align_corners", "asymmetric")
    },
    "whole scales": (by_scales(2, 3, size=(10, 18), mode="linear"), W.Resize(sizes=(4, 10, 18))),
    "scales that are rounded down": (
        by_scales(1.3, 0.7, size=(6, 4), mode="linear"),
        W.Resize(sizes=(4, 6, 4), scales=(1.0, 1.3, 0.7)),
    ),
    "scales of corners": (
        by_scales(
            *(1.2, 0.5), size=(6, 3), mode="linear", coordinate_transformation_mode="align_corners"
        ),
        W.Resize(sizes=(4, 6, 3), coordinates="align_corners"),
    ),
    "a scale that changes no size": (
        by_scales(1.1, 1, size=(5, 6), mode="linear"),
        W.Resize(sizes=(4, 5, 6), scales=(1.0, 1.1, 1.0)),
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_resize_is_read_as_its_layer(name: str, tmp_path: Path) -> None:
    model, layer = FILES[name]
    found = import_file(saved(tmp_path, model))
    assert check_file(found).verdict == "passed"
    assert kinds(found.workload.model) == ["conv", "resize", *TAIL]
    assert found.workload.model.nodes[1].layer == layer


def test_axes_and_channels_last(tmp_path: Path) -> None:
    nodes = [
        node("Transpose", ["c"], ["t"], perm=[0, 2, 3, 1]),
        node("Resize", ["t", "", "", "sizes"], ["r"], mode="linear", axes=[2, 1]),
        node("Transpose", ["r"], ["h"], perm=[0, 3, 1, 2]),
    ]
    found = import_file(
        saved(tmp_path, resized(*nodes, width=308, opset=18, sizes=np.array([7, 11])))
    )
    assert check_file(found).verdict == "passed"
    assert kinds(found.workload.model) == ["conv", "resize", *TAIL]
    assert found.workload.model.nodes[1].layer == W.Resize(sizes=(4, 11, 7))


def test_rows_and_channels_may_be_resized(tmp_path: Path) -> None:
    nodes = [
        node("Reshape", ["c", "rows"], ["r"]),
        node("Resize", ["r", "", "", "sizes"], ["s"], mode="cubic"),
        node("Tanh", ["s"], ["h"]),
    ]
    held = {"rows": np.array([-1, 20, 6]), "sizes": np.array([3, 7, 9])}
    found = import_file(saved(tmp_path, resized(*nodes, width=63, **held)))
    assert check_file(found).verdict == "passed"
    layers = [each.layer for each in found.workload.model.nodes]
    assert W.Resize(sizes=(7, 9), mode="cubic") in layers


@pytest.mark.parametrize(("opset", "scales"), [(9, "an input"), (7, "an attribute")])
def test_an_upsample_is_a_resize(opset: int, scales: str, tmp_path: Path) -> None:
    """It divides places by the scale."""
    numbers = np.array([1, 1, 2, 3], np.float32)
    if scales == "an input":
        made = resized(
            node("Upsample", ["c", "by"], ["h"], mode="linear"), width=720, opset=opset, by=numbers
        )
    else:
        made = resized(
            node("Upsample", ["c"], ["h"], mode="linear", scales=numbers.tolist()),
            width=720,
            opset=opset,
        )
    found = import_file(saved(tmp_path, made))
    assert check_file(found).verdict == "passed"
    assert found.workload.model.nodes[1].layer == W.Resize(
        sizes=(4, 10, 18), coordinates="asymmetric"
    )


def test_a_resize_to_the_same_sizes_is_none(tmp_path: Path) -> None:
    found = import_file(saved(tmp_path, to_sizes(5, 6, mode="cubic")))
    assert kinds(found.workload.model) == ["conv", *TAIL]


REFUSED = {
    "antialiasing": ({"mode": "linear", "antialias": 1}, "without antialiasing or a crop"),
    "a ratio": (
        {"mode": "linear", "keep_aspect_ratio_policy": "not_larger"},
        "without antialiasing or a crop",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_ways_to_resize_are_refused(name: str, tmp_path: Path) -> None:
    attributes, message = REFUSED[name]
    asked = node("Resize", ["c", "", "", "sizes"], ["h"], name="n", axes=[2, 3], **attributes)
    made = resized(asked, width=480, opset=18, sizes=np.array([10, 12]))
    with pytest.raises(DlbError) as raised:
        import_file(saved(tmp_path, made))
    assert f"node 'n' (Resize): only the nearest element and interpolation {message}" in str(
        raised.value
    )
