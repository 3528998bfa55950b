"""ONNX files with normalisations of groups of channels, as operators and in parts, read as layers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from test_imported import CONV, TAIL, before_head, conv, graph, kinds, node, real, saved

from dlb.proof.checks.file import check_file
from dlb_graph import workload as W
from dlb_graph.files.read import import_file

SCALE, BIAS = real(4) + 2, real(4)


def after_conv(
    *nodes: onnx.NodeProto, opset: int = 17, **held: np.ndarray | np.generic
) -> onnx.ModelProto:
    """Nodes from the map ``c`` [4, 5, 6] to the map ``h``, and a linear layer after them."""
    return before_head([conv(), *nodes], {**CONV, **held}, 120, opset=opset)


def normal(groups: int) -> onnx.NodeProto:
    return node("GroupNormalization", ["c", "s", "z"], ["h"], num_groups=groups, epsilon=1e-3)


def by_instances(groups: int) -> onnx.ModelProto:
    """As torch and the canonical graph have it."""
    return after_conv(
        node("Reshape", ["c", "split"], ["g"]),
        node("InstanceNormalization", ["g", "ones", "zeros"], ["n"], epsilon=1e-3),
        node("Reshape", ["n", "whole"], ["m"]),
        node("Mul", ["m", "s"], ["t"]),
        node("Add", ["t", "z"], ["h"]),
        split=np.array([0, groups, -1]),
        whole=np.array([0, 4, 5, 6]),
        ones=np.ones(groups, "f4"),
        zeros=np.zeros(groups, "f4"),
        s=SCALE[:, None, None],
        z=BIAS[:, None, None],
    )


def with_channels_last(groups: int) -> onnx.ModelProto:
    """As Keras has it: channels last, and scaled before it is moved."""
    return after_conv(
        node("Transpose", ["c"], ["l"], perm=[0, 2, 3, 1]),
        node("Reshape", ["l", "split"], ["g"]),
        node("ReduceMean", ["g"], ["m"], axes=[1, 2, 4]),
        node("Sub", ["g", "m"], ["d"]),
        node("Mul", ["d", "d"], ["q"]),
        node("ReduceMean", ["q"], ["v"], axes=[1, 2, 4]),
        node("Add", ["v", "e"], ["a"]),
        node("Sqrt", ["a"], ["r"]),
        node("Reciprocal", ["r"], ["i"]),
        node("Mul", ["i", "s"], ["f"]),
        node("Neg", ["m"], ["o"]),
        node("Mul", ["o", "f"], ["p"]),
        node("Add", ["p", "z"], ["t"]),
        node("Mul", ["g", "f"], ["x2"]),
        node("Add", ["x2", "t"], ["y2"]),
        node("Reshape", ["y2", "whole"], ["k"]),
        node("Transpose", ["k"], ["h"], perm=[0, 3, 1, 2]),
        split=np.array([-1, 5, 6, groups, 4 // groups]),
        whole=np.array([-1, 5, 6, 4]),
        e=np.float32(1e-3),
        s=SCALE.reshape(1, 1, 1, groups, -1),
        z=BIAS.reshape(1, 1, 1, groups, -1),
    )


#: Files with the groups that they have, and the scale and bias of each channel.
FILES: dict[str, tuple[onnx.ModelProto, int, np.ndarray]] = {
    "instances": (
        after_conv(
            node("InstanceNormalization", ["c", "s", "z"], ["h"], epsilon=1e-3), s=SCALE, z=BIAS
        ),
        4,
        SCALE,
    ),
    "an operator": (after_conv(normal(2), opset=21, s=SCALE, z=BIAS), 2, SCALE),
    "an operator with a scale for each group": (
        after_conv(normal(2), opset=18, s=SCALE[:2], z=BIAS[:2]),
        2,
        SCALE[:2].repeat(2),
    ),
    **{f"{n} groups by instances": (by_instances(n), n, SCALE) for n in (1, 2, 4)},
    **{f"{n} groups, channels last": (with_channels_last(n), n, SCALE) for n in (1, 2, 4)},
}


@pytest.mark.parametrize("name", FILES)
def test_groups_that_are_normalised_are_a_layer(name: str, tmp_path: Path) -> None:
    model, groups, scale = FILES[name]
    found = import_file(saved(tmp_path, model))
    assert check_file(found).verdict == "passed"
    assert kinds(found.workload.model) == ["conv", "group_norm", *TAIL]
    layer = found.workload.model.nodes[1]
    assert layer.layer == W.GroupNorm(groups=groups, epsilon=1e-3)
    assert np.array_equal(found.weights[f"{layer.name}.scale"], scale)


def test_rows_are_normalised_as_maps(tmp_path: Path) -> None:
    nodes = [node("InstanceNormalization", ["x", "s", "z"], ["h"])]
    model = before_head(nodes, {"s": SCALE, "z": BIAS}, 20, shape=("N", 4, 5))
    found = import_file(saved(tmp_path, model))
    assert check_file(found).verdict == "passed"
    assert [kind for kind in kinds(found.workload.model) if kind != "reshape"] == [
        "group_norm",
        *TAIL,
    ]


def of_rows(*nodes: onnx.NodeProto, opset: int = 17) -> onnx.ModelProto:
    """Nodes from ``x`` [7] to ``h``, and a matrix after them."""
    held = {
        "s": ROW_SCALE,
        "w": real(7, 3),
        "e": np.float32(1e-3),
        "two": np.float32(2),
        "seven": np.float32(7),
        "one": np.array([1]),
    }
    read = {name for each in nodes for name in each.input} | {"w"}
    held = {name: array for name, array in held.items() if name in read}
    return graph([*nodes, node("MatMul", ["h", "w"], ["y"])], held, ("N", 7), opset=opset)


ROW_SCALE = real(7) + 2
ROWS = {
    "an operator": of_rows(
        node("RMSNormalization", ["x", "s"], ["h"], epsilon=1e-3, axis=-1), opset=23
    ),
    "by a reciprocal, as torch has it": of_rows(
        node("Pow", ["x", "two"], ["q"]),
        node("ReduceMean", ["q"], ["m"], axes=[1]),
        node("Add", ["m", "e"], ["a"]),
        node("Sqrt", ["a"], ["r"]),
        node("Reciprocal", ["r"], ["i"]),
        node("Mul", ["x", "i"], ["n"]),
        node("Mul", ["n", "s"], ["h"]),
    ),
    "by a sum, as Chainer has it": of_rows(
        node("Mul", ["x", "x"], ["q"]),
        node("ReduceSum", ["q", "one"], ["t"]),
        node("Div", ["t", "seven"], ["m"]),
        node("Add", ["m", "e"], ["a"]),
        node("Sqrt", ["a"], ["r"]),
        node("Div", ["x", "r"], ["n"]),
        node("Mul", ["n", "s"], ["h"]),
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_divided_by_their_root_mean_square_are_a_layer(name: str, tmp_path: Path) -> None:
    found = import_file(saved(tmp_path, ROWS[name]))
    assert check_file(found).verdict == "passed"
    assert kinds(found.workload.model) == ["rms_norm", "linear"]
    layer = found.workload.model.nodes[0]
    assert layer.layer == W.RMSNorm(epsilon=1e-3)
    assert np.array_equal(found.weights[f"{layer.name}.scale"], ROW_SCALE)
