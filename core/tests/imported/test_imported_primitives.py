"""ONNX files with pointwise functions, reductions, softmax and sums of unequal shapes, read as layers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from test_imported import CONV, TAIL, before_head, conv, kinds, node, real, saved

from dlb.proof.checks.file import check_file
from dlb_graph import workload as W
from dlb_graph.files.read import import_file


def after_conv(*nodes: onnx.NodeProto, **held: np.ndarray) -> onnx.ModelProto:
    """Nodes from the map ``c`` [4, 5, 6] to the map ``h``, and a linear layer after them."""
    return before_head([conv(), *nodes], {**CONV, **held}, 120)


def bounded(*bounds: str) -> onnx.ModelProto:
    numbers = {"low": np.float32(-0.3), "high": np.float32(0.9)}
    held = {name: numbers[name] for name in bounds if name}
    return after_conv(node("Clip", ["c", *bounds], ["h"]), **held)


E = W.Elementwise
SLOPES = real(4)
FILES: dict[str, tuple[onnx.ModelProto, list[W.Layer]]] = {
    "leaky ReLU": (
        after_conv(node("LeakyRelu", ["c"], ["h"], alpha=0.1)),
        [E(function="leaky_relu", alpha=0.1)],
    ),
    "leaky ReLU by default": (
        after_conv(node("LeakyRelu", ["c"], ["h"])),
        [E(function="leaky_relu", alpha=0.01)],
    ),
    "leaky ReLU by a maximum": (
        after_conv(
            node("Mul", ["c", "slope"], ["s"]),
            node("Max", ["c", "s"], ["h"]),
            slope=np.float32(0.1),
        ),
        [E(function="leaky_relu", alpha=0.1)],
    ),
    "slopes of channels": (
        after_conv(node("PRelu", ["c", "slopes"], ["h"]), slopes=SLOPES[:, None, None]),
        [W.PReLU()],
    ),
    "slopes of channels, channels last": (
        after_conv(
            node("Transpose", ["c"], ["l"], perm=[0, 2, 3, 1]),
            node("PRelu", ["l", "slopes"], ["p"]),
            node("Transpose", ["p"], ["h"], perm=[0, 3, 1, 2]),
            slopes=SLOPES,
        ),
        [W.PReLU()],
    ),
    "slopes of channels, as Keras has them": (
        after_conv(
            node("Relu", ["c"], ["r"]),
            node("Neg", ["c"], ["n"]),
            node("Relu", ["n"], ["m"]),
            node("Mul", ["m", "slopes"], ["s"]),
            node("Add", ["r", "s"], ["h"]),
            slopes=-SLOPES[:, None, None],
        ),
        [W.PReLU()],
    ),
    "one slope": (
        after_conv(node("PRelu", ["c", "slopes"], ["h"]), slopes=SLOPES[:1]),
        [W.PReLU(shared=True)],
    ),
    "a hard sigmoid of Keras": (
        after_conv(node("HardSigmoid", ["c"], ["h"], alpha=0.2)),
        [E(function="hard_sigmoid", alpha=0.2, beta=0.5)],
    ),
    "a reciprocal of a bounded value": (
        after_conv(
            node("Exp", ["c"], ["e"]),
            node("Clip", ["e", "high"], ["q"]),
            node("Div", ["one", "q"], ["h"]),
            high=np.float32(0.9),
            one=np.float32(1),
        ),
        [E(function="exp"), E(function="clip", min=0.9), E(function="reciprocal")],
    ),
    "two bounds": (bounded("low", "high"), [E(function="clip", min=-0.3, max=0.9)]),
    "an upper bound": (bounded("", "high"), [E(function="clip", max=0.9)]),
    "a map without its largest number": (
        after_conv(
            node("ReduceMax", ["c"], ["m"], axes=[2, 3]),
            node("Sub", ["c", "m"], ["h"]),
        ),
        [W.Reduce(function="max", axes=(2, 3), keepdims=True), W.Binary(function="sub")],
    ),
    "a map times its rows": (
        after_conv(
            node("ReduceMean", ["c"], ["m"], axes=[1, 3]),
            node("Mul", ["c", "m"], ["h"]),
        ),
        [W.Reduce(function="mean", axes=(1, 3), keepdims=True), W.Binary(function="mul")],
    ),
    "a function scaled and moved": (
        after_conv(
            node("Softsign", ["c"], ["s"]),
            node("Mul", ["s", "by"], ["t"]),
            node("Sub", ["one", "t"], ["h"]),
            by=np.float32(0.3),
            one=np.float32(1),
        ),
        [
            E(function="softsign"),
            E(function="affine", alpha=0.3, beta=0.0),
            E(function="affine", alpha=-1.0, beta=1.0),
        ],
    ),
    "a map times 0": (
        after_conv(node("Mul", ["c", "zero"], ["h"]), zero=np.float32(0)),
        [W.Binary(function="sub")],
    ),
    "an absolute value, and a little more": (
        after_conv(
            node("Abs", ["c"], ["a"]),
            node("Add", ["a", "little"], ["q"]),
            node("Sqrt", ["q"], ["h"]),
            little=np.float32(1e-6),
        ),
        [E(function="abs"), E(function="affine", alpha=1.0, beta=1e-6), E(function="sqrt")],
    ),
    "a square and a root": (
        after_conv(
            node("Pow", ["c", "two"], ["s"]),
            node("Add", ["s", "one"], ["t"]),
            node("Sqrt", ["t"], ["h"]),
            two=np.float32(2),
            one=np.float32(1),
        ),
        [W.Mul(), E(function="affine", alpha=1.0, beta=1.0), E(function="sqrt")],
    ),
    "the larger of two": (
        after_conv(
            node("ReduceMean", ["c"], ["m"], axes=[2, 3]),
            node("Max", ["c", "m"], ["q"]),
            node("Tanh", ["c"], ["t"]),
            node("Min", ["q", "t"], ["h"]),
        ),
        [W.GlobalAveragePool(), W.Binary(function="max"), W.Tanh(), W.Binary(function="min")],
    ),
    "a length": (
        after_conv(node("ReduceL2", ["c"], ["n"], axes=[1]), node("Div", ["c", "n"], ["h"])),
        [
            W.Mul(),
            W.Reduce(function="sum", axes=(1,), keepdims=True),
            E(function="sqrt"),
            W.Binary(function="div"),
        ],
    ),
    "numbers for each place": (
        after_conv(
            node("Mul", ["c", "by"], ["s"]),
            node("Sub", ["s", "less"], ["h"]),
            by=real(5, 6),
            less=real(4, 5, 1),
        ),
        [W.Scale(sizes=(1, 5, 6)), W.Shift(sizes=(4, 5, 1))],
    ),
    "numbers less a map": (
        after_conv(node("Sub", ["by", "c"], ["h"]), by=real(5, 6)),
        [W.Scale(sizes=(1, 1, 1)), W.Shift(sizes=(1, 5, 6))],
    ),
    "a product of two maps": (
        after_conv(
            node("Transpose", ["c"], ["t"], perm=[0, 1, 3, 2]),
            node("MatMul", ["c", "t"], ["p"]),
            node("MatMul", ["p", "c"], ["h"]),
        ),
        [W.Transpose(axes=(1, 3, 2)), W.MatMul(), W.MatMul()],
    ),
    "powers": (
        after_conv(
            node("Softplus", ["c"], ["s"]),
            node("Pow", ["s", "third"], ["p"]),
            node("Pow", ["p", "less"], ["h"]),
            third=np.float32(3),
            less=np.float32(-0.3),
        ),
        [E(function="softplus"), E(function="pow", alpha=3.0), E(function="pow", alpha=-0.3)],
    ),
    "shares of channels": (
        after_conv(node("Softmax", ["c"], ["h"], axis=1)),
        [W.Softmax(axis=1)],
    ),
    "a quotient": (
        after_conv(node("Softplus", ["c"], ["s"]), node("Div", ["c", "s"], ["h"])),
        [E(function="softplus"), W.Binary(function="div")],
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_function_is_read_as_its_layer(name: str, tmp_path: Path) -> None:
    model, layers = FILES[name]
    found = import_file(saved(tmp_path, model))
    assert check_file(found).verdict == "passed"
    assert kinds(found.workload.model) == ["conv", *map(W.type_name, layers), *TAIL]
    read = [each.layer for each in found.workload.model.nodes[1:]]
    assert read[: len(layers)] == layers


def test_a_matrix_times_a_value_is_a_linear_layer(tmp_path: Path) -> None:
    nodes = [node("MatMul", ["m", "c"], ["p"]), node("Softplus", ["p"], ["h"])]
    found = import_file(
        saved(tmp_path, before_head([conv(), *nodes], {**CONV, "m": real(3, 5)}, 72))
    )
    assert check_file(found).verdict == "passed"
    assert "linear" in kinds(found.workload.model)[:-1]


def test_windows_of_a_map_are_values_of_more_axes(tmp_path: Path) -> None:
    """As a transformer of windows has them: split both sides, and bring the windows together."""
    nodes = [
        node("Reshape", ["x", "split"], ["s"]),
        node("Transpose", ["s"], ["t"], perm=[0, 2, 4, 3, 5, 1]),
        node("Mul", ["t", "half"], ["q"]),
        node("Reshape", ["t", "rows"], ["r"]),
        node("MatMul", ["r", "w"], ["l"]),
        node("Softmax", ["q"], ["u"], axis=4),
        node("Flatten", ["u"], ["v"]),
        node("Flatten", ["l"], ["g"]),
        node("Concat", ["v", "g"], ["h"], axis=1),
    ]
    held = {
        "split": np.array([-1, 2, 2, 2, 3, 2]),
        "half": np.float32(0.5),
        "rows": np.array([-1, 6, 4, 2]),
        "w": real(2, 5),
    }
    made = before_head(nodes, held, 168, shape=("N", 2, 4, 6))
    found = import_file(saved(tmp_path, made))
    assert check_file(found).verdict == "passed"
    assert {"transpose", "softmax", "linear"} <= set(kinds(found.workload.model))


def test_features_are_scaled_in_the_order_of_the_file(tmp_path: Path) -> None:
    """Channels last, and numbers that differ between places."""
    nodes = [
        node("Transpose", ["c"], ["t"], perm=[0, 2, 3, 1]),
        node("Mul", ["t", "by"], ["s"]),
        node("Tanh", ["s"], ["u"]),
        node("Add", ["u", "more"], ["h"]),
    ]
    made = after_conv(*nodes, by=real(6, 4), more=real(5, 1, 4))
    found = import_file(saved(tmp_path, made))
    assert check_file(found).verdict == "passed"
    layers = [each.layer for each in found.workload.model.nodes[1:4]]
    assert layers == [W.Scale(sizes=(4, 1, 6)), W.Tanh(), W.Shift(sizes=(4, 5, 1))]


def test_a_map_times_a_number_of_each_sample(tmp_path: Path) -> None:
    nodes = [
        node("Flatten", ["c"], ["f"]),
        node("MatMul", ["f", "one"], ["o"]),
        node("Reshape", ["o", "ones"], ["g"]),
        node("Mul", ["c", "g"], ["h"]),
    ]
    held = {"one": real(120, 1), "ones": np.array([-1, 1, 1, 1])}
    found = import_file(saved(tmp_path, after_conv(*nodes, **held)))
    assert check_file(found).verdict == "passed"
    assert "binary" in kinds(found.workload.model)
