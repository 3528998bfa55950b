"""ONNX files whose samples are not the first axis, and operators that repeat, join or choose."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from test_imported import CONV, before_head, conv, graph, head, kinds, node, real, saved

from dlb.proof.checks.file import check_file
from dlb.report.sentences import describe
from dlb_graph import workload as W
from dlb_graph.files.read import import_file
from dlb_graph.layers import MOST_AXES
from dlb_graph.reading.views import layout_layers, positions

#: Windows of 2 x 3 pixels of a map [2, 4, 6] in the order of torchvision and timm: 4 samples for each one.
SHAPES = {
    "six": np.array([-1, 2, 2, 2, 2, 3]),
    "windows": np.array([-1, 6, 2]),
    "map": np.array([-1, 2, 2, 2, 3, 2]),
    "row": np.array([-1, 48]),
    "steps": np.array([-1, 24, 2]),
}
WINDOWS = [
    node("Reshape", ["x", "six"], ["r"]),
    node("Transpose", ["r"], ["t"], perm=[0, 2, 4, 3, 5, 1]),
    node("Reshape", ["t", "windows"], ["w"]),
]


def windows(*nodes: onnx.NodeProto, features: int = 48, **held: np.ndarray) -> onnx.ModelProto:
    """Nodes from the windows ``w`` [N * 4, 6, 2] to ``v``, and a linear layer of each sample."""
    flat = np.array([-1, features])
    last = [node("Reshape", ["v", "end"], ["h"])]
    ends, weights = head("h", features)
    return graph(
        [*WINDOWS, *nodes, *last, *ends],
        {**SHAPES, "end": flat, **held, **weights},
        ("N", 2, 4, 6),
    )


def einsum(equation: str, *names: str) -> onnx.NodeProto:
    return node("Einsum", list(names), ["v"], equation=equation)


WHITE = [node("Transpose", ["w"], ["k"], perm=[0, 2, 1])]
FILES: dict[str, tuple[onnx.ModelProto, set[str]]] = {
    "a matrix of the features of windows": (
        windows(node("MatMul", ["w", "m"], ["v"]), m=real(2, 2)),
        {"linear"},
    ),
    "a normalisation of windows": (
        windows(
            node("LayerNormalization", ["w", "scale", "bias"], ["v"]),
            scale=real(2),
            bias=real(2),
        ),
        {"layer_norm"},
    ),
    "products of windows": (
        windows(
            *WHITE,
            node("MatMul", ["w", "k"], ["p"]),
            node("Softmax", ["p"], ["s"], axis=-1),
            node("MatMul", ["s", "w"], ["v"]),
        ),
        {"matmul", "softmax"},
    ),
    "a product by letters": (
        windows(*WHITE, einsum("bij,bjk->bki", "w", "k"), features=144),
        {"matmul"},
    ),
    "a matrix by letters, in the order of the alphabet": (
        windows(einsum("bic,cd", "w", "m"), m=real(2, 3), features=72),
        {"linear"},
    ),
    "a matrix by letters": (
        windows(einsum("bic,dc->bdi", "w", "m"), m=real(3, 2), features=72),
        {"linear"},
    ),
    "a matrix by letters, first": (
        windows(einsum("icd,bic->bd", "m", "w"), m=real(6, 2, 3), features=12),
        {"linear"},
    ),
    "the largest of windows, and their sums": (
        windows(
            node("ReduceMax", ["w"], ["v0"], axes=[1], keepdims=1),
            node("ReduceSum", ["w", "one"], ["v1"], keepdims=1),
            node("Mul", ["v0", "v1"], ["v"]),
            one=np.array([2]),
        ),
        {"reduce", "binary"},
    ),
    "some rows of windows": (
        windows(
            node("Slice", ["w", "one", "end4", "one"], ["v"]),
            one=np.array([1]),
            end4=np.array([4]),
            features=24,
        ),
        {"slice"},
    ),
    "numbers for each of the windows": (
        windows(node("Add", ["w", "numbers"], ["v"]), numbers=real(1, 6, 2)),
        {"shift"},
    ),
    "samples that are last": (
        graph(
            [
                node("Transpose", ["x"], ["t"], perm=[2, 1, 0]),
                node("Softmax", ["t"], ["s"], axis=0),
                node("ReduceSum", ["s", "axis"], ["r"], keepdims=0),
                node("Transpose", ["r"], ["h"], perm=[1, 0]),
                *head("h", 3)[0],
            ],
            {"axis": np.array([0]), **head("h", 3)[1]},
            ("N", 3, 4),
        ),
        {"softmax", "reduce"},
    ),
    "the last step of each sample, among the rows of all": (
        graph(
            [
                node("MatMul", ["x", "m"], ["p"]),
                node("Reshape", ["p", "rows"], ["r"]),
                node("Gather", ["r", "last"], ["h"], axis=0),
                *head("h", 3)[0],
            ],
            {
                "m": real(4, 3),
                "rows": np.array([-1, 3]),
                "last": np.array([4, 9]),
                **head("h", 3)[1],
            },
            (2, 5, 4),
        ),
        {"select"},
    ),
    "rows of steps, of which each has all samples": (
        graph(
            [
                node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
                node("Reshape", ["t", "rows"], ["r"]),
                node("MatMul", ["r", "m"], ["p"]),
                node("Reshape", ["p", "steps"], ["q"]),
                node("Transpose", ["q"], ["b"], perm=[1, 0, 2]),
                node("Reshape", ["b", "row"], ["h"]),
                *head("h", 15)[0],
            ],
            {
                "rows": np.array([-1, 4]),
                "steps": np.array([5, -1, 3]),
                "row": np.array([-1, 15]),
                "m": real(4, 3),
                **head("h", 15)[1],
            },
            ("N", 5, 4),
        ),
        {"linear"},
    ),
    "a normalisation of all steps": (
        graph(
            [
                node("Reshape", ["x", "rows"], ["r"]),
                node("BatchNormalization", ["r", "s", "b", "m", "v"], ["n"]),
                node("Reshape", ["n", "row"], ["h"]),
                *head("h", 20)[0],
            ],
            {
                "rows": np.array([-1, 4]),
                "row": np.array([-1, 20]),
                **{name: real(4) for name in "sbm"},
                "v": np.abs(real(4)) + 1,
                **head("h", 20)[1],
            },
            ("N", 5, 4),
        ),
        {"batch_norm"},
    ),
    **{
        f"padding by {mode}": (
            before_head(
                [
                    node("Pad", ["x", "pads"], ["p"], mode=mode),
                    node("Conv", ["p", "k", "bias"], ["h"]),
                ],
                {
                    "pads": np.array([0, 0, 1, 2, 0, 0, 2, 1]),
                    "k": real(4, 2, 4, 4),
                    "bias": real(4),
                },
                120,
            ),
            {"gather", "conv"},
        )
        for mode in ("reflect", "edge")
    },
    "a value that is repeated": (
        before_head(
            [
                conv(),
                node("ReduceMax", ["c"], ["r"], axes=[2, 3], keepdims=1),
                node("Expand", ["r", "sizes"], ["e"]),
                node("Tile", ["e", "times"], ["h"]),
            ],
            {
                **CONV,
                "sizes": np.array([1, 1, 2, 1]),
                "times": np.array([1, 1, 2, 3]),
            },
            48,
        ),
        {"reduce", "gather"},
    ),
    "numbers that repeat a value": (
        before_head(
            [
                conv(),
                node("ReduceMax", ["c"], ["r"], axes=[3], keepdims=1),
                node("Mul", ["r", "numbers"], ["h"]),
            ],
            {**CONV, "numbers": real(1, 3)},
            60,
        ),
        {"gather", "scale"},
    ),
    "numbers that a value divides": (
        before_head(
            [
                conv(),
                node("Exp", ["c"], ["e"]),
                node("Div", ["two", "e"], ["d"]),
                node("Div", ["d", "three"], ["h"]),
            ],
            {
                **CONV,
                "two": np.float32(2.3),
                "three": np.float32(2.302585),
            },
            120,
        ),
        {"elementwise"},
    ),
    "a token before a sequence, without a table": (
        graph(
            [
                node("Concat", ["token", "x"], ["j"], axis=1),
                node("LayerNormalization", ["j", "scale", "bias"], ["n"]),
                node("Reshape", ["n", "row"], ["h"]),
                *head("h", 24)[0],
            ],
            {
                "token": np.tile(real(1, 1, 4), (2, 1, 1)),
                "scale": real(4),
                "bias": real(4),
                "row": np.array([-1, 24]),
                **head("h", 24)[1],
            },
            (2, 5, 4),
        ),
        {"pad", "position_embedding"},
    ),
    "channels that are constants": (
        before_head(
            [conv(), node("Concat", ["c", "more"], ["h"], axis=1)],
            {**CONV, "more": np.tile(real(1, 2, 5, 6), (2, 1, 1, 1))},
            180,
            shape=(2, 2, 5, 6),
        ),
        {"pad", "shift"},
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_layers_compute_what_the_file_does(name: str, tmp_path: Path) -> None:
    made, expected = FILES[name]
    found = import_file(saved(tmp_path, made))
    assert check_file(found).verdict == "passed"
    assert expected <= set(kinds(found.workload.model))


@pytest.mark.parametrize("operator", ["OneHot", "Equal"])
def test_classes_of_the_input_are_rows_of_a_table(operator: str, tmp_path: Path) -> None:
    """As networks of bytes have them."""
    if operator == "OneHot":
        nodes = [node("OneHot", ["x", "depth", "values"], ["o"], axis=-1)]
        held = {"depth": np.array([7]), "values": np.array([0, 1], np.float32)}
    else:
        nodes = [
            node("Unsqueeze", ["x", "last"], ["u"]),
            node("Equal", ["u", "numbers"], ["e"]),
            node("Cast", ["e"], ["o"], to=TensorProto.FLOAT),
        ]
        held = {"last": np.array([2]), "numbers": np.arange(7).reshape(1, 1, 7)}
    nodes.append(node("MatMul", ["o", "w"], ["y"]))
    made = graph(nodes, {**held, "w": real(7, 3)}, ("N", 5), rank=3, kind=TensorProto.INT64)
    found = import_file(saved(tmp_path, made))
    assert check_file(found).verdict == "passed"
    assert found.workload.model.nodes[0].layer == W.Embedding(entries=7, features=7)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("operator", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("alone", [False, True])
def test_the_last_state_is_the_value_of_the_last_step(
    operator: str, direction: str, alone: bool, tmp_path: Path
) -> None:
    """Also where nothing else is read, so that the file names no other output."""
    directions, gates = (
        1 + (direction == "bidirectional"),
        {"LSTM": 4, "GRU": 3, "RNN": 1}[operator],
    )
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
        node(
            operator,
            ["t", "w", "r"],
            ["" if alone else "y_all", "state"],
            hidden_size=3,
            direction=direction,
        ),
        node("Transpose", ["state"], ["b"], perm=[1, 0, 2]),
        node("Reshape", ["b", "row"], ["h"]),
        *head("h", 3 * directions)[0],
    ]
    held = {
        "w": real(directions, gates * 3, 4),
        "r": real(directions, gates * 3, 3),
        "row": np.array([-1, 3 * directions]),
        **head("h", 3 * directions)[1],
    }
    found = import_file(saved(tmp_path, graph(nodes, held, ("N", 5, 4))))
    assert check_file(found).verdict == "passed"
    assert "select" in kinds(found.workload.model)


@pytest.mark.parametrize("steps", [False, True])
@pytest.mark.parametrize("before", ["", "Softmax"])
def test_the_choice_of_a_class_is_left_to_accuracy(
    steps: bool, before: str, tmp_path: Path
) -> None:
    nodes = [node("MatMul", ["x", "w"], ["l"])]
    nodes += [node(before, ["l"], ["p"], axis=-1)] if before else []
    nodes.append(
        node("ArgMax", ["p" if before else "l"], ["y"], axis=-1, keepdims=0, name="choice")
    )
    shape = ("N", 5, 4) if steps else ("N", 4)
    made = graph(nodes, {"w": real(4, 3)}, shape, rank=len(shape) - 1)
    made.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    found = import_file(saved(tmp_path, made))
    assert found.workload.loss == W.SoftmaxCrossEntropy()
    assert "'choice' (ArgMax) chooses a class" in describe(check_file(found))


@pytest.mark.parametrize(("window", "size"), [(7, 64), (9, 256)])
def test_an_open_size_grows_until_windows_fit(window: int, size: int, tmp_path: Path) -> None:
    """Nobody gave one, and what is tried first is too small for three halvings and a large window."""
    nodes = [
        node("MaxPool", ["x"], ["p"], kernel_shape=[2, 2], strides=[8, 8]),
        node("Conv", ["p", "w"], ["c"], kernel_shape=[window, window]),
        node("GlobalAveragePool", ["c"], ["g"]),
        node("Flatten", ["g"], ["f"]),
        *head("f", 4)[0],
    ]
    made = graph(nodes, {"w": real(4, 3, window, window), **head("f", 4)[1]}, ("N", 3, "H", "W"))
    found = import_file(saved(tmp_path, made))
    assert found.workload.model.input.shape == (3, size, size)
    assert f"H = {size} (open in the file" in describe(check_file(found))


def test_weights_may_be_in_a_branch(tmp_path: Path) -> None:
    """An If of a constant condition is the branch that it takes."""

    def branch(name: str) -> onnx.GraphProto:
        held = [onnx.numpy_helper.from_array(real(4, 3).astype(np.float32), f"{name}_w")]
        inner = [helper.make_node("MatMul", ["x", f"{name}_w"], [name])]
        ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)]
        return helper.make_graph(inner, name, [], ends, held)

    nodes = [
        helper.make_node(
            "If", ["which"], ["y"], then_branch=branch("one"), else_branch=branch("other")
        )
    ]
    found = import_file(saved(tmp_path, graph(nodes, {"which": np.array(True)}, ("N", 4))))
    assert kinds(found.workload.model) == ["linear"]


def test_an_attention_without_an_output_map_is_read_in_parts(tmp_path: Path) -> None:
    nodes = [
        *(node("MatMul", ["x", f"w{k}"], [f"m{k}"]) for k in "qkv"),
        *(node("Reshape", [f"m{k}", "heads"], [f"h{k}"]) for k in "qkv"),
        node("Transpose", ["hq"], ["q"], perm=[0, 2, 1, 3]),
        node("Transpose", ["hk"], ["k"], perm=[0, 2, 3, 1]),
        node("Transpose", ["hv"], ["v"], perm=[0, 2, 1, 3]),
        node("MatMul", ["q", "k"], ["p"]),
        node("Div", ["p", "root"], ["s"]),
        node("Softmax", ["s"], ["a"], axis=-1),
        node("MatMul", ["a", "v"], ["o"]),
        node("Transpose", ["o"], ["t"], perm=[0, 2, 1, 3]),
        node("Reshape", ["t", "row"], ["h"]),
        *head("h", 40)[0],
    ]
    held = {
        **{f"w{k}": real(8, 8) for k in "qkv"},
        "heads": np.array([-1, 5, 2, 4]),
        "root": np.float32(2),
        "row": np.array([-1, 40]),
        **head("h", 40)[1],
    }
    found = import_file(saved(tmp_path, graph(nodes, held, ("N", 5, 8))))
    assert check_file(found).verdict == "passed"
    assert {"matmul", "softmax", "linear"} <= set(kinds(found.workload.model))


def test_rearrangements_of_many_axes_are_several_of_few() -> None:
    """Windows of windows have more axes than a sample may have."""
    draw = np.random.default_rng(0)
    for count in range(2, 10):
        sizes = draw.integers(2, 4, count)
        order = draw.permutation(count) + 1
        shape = (2, int(np.prod(sizes)))
        places = (
            positions(shape)
            .reshape(2, *sizes)
            .transpose(0, *order)
            .reshape(2, -1, sizes[order[-1] - 1])
        )
        layers = layout_layers(places, shape)
        assert layers is not None
        value = positions(shape)
        for layer in layers:
            if isinstance(layer, W.Reshape):
                assert len(layer.shape) <= MOST_AXES
                value = value.reshape(2, *layer.shape)
            else:
                value = value.transpose(0, *layer.axes)
        assert np.array_equal(value, places)


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("rows_first", [True, False], ids=["rows", "columns"])
@pytest.mark.parametrize("ends", [False, True], ids=["steps", "ends"])
def test_a_recurrence_over_the_rows_of_a_map(
    direction: str, rows_first: bool, ends: bool, tmp_path: Path
) -> None:
    """Each of its rows, or columns, is a sequence of its own, as in Sequencer (arXiv:2205.01972)."""
    directions = 2 if direction == "bidirectional" else 1
    # [N, C, H, W] to [steps, N * sequences, C], where the steps are along W or along H.
    perm, steps, count = ([3, 0, 2, 1], 4, 3) if rows_first else ([2, 0, 3, 1], 3, 4)
    shape = np.array([steps, -1, 2])
    held = {
        "w": real(directions, 20, 2),
        "r": real(directions, 20, 5),
        "b": real(directions, 40),
        "to_rows": shape,
        "to_flat": np.array([-1, count * directions * 5 * (1 if ends else steps)]),
    }
    nodes = [
        node("Conv", ["x", "k"], ["c"]),
        node("Transpose", ["c"], ["t"], perm=perm),
        node("Reshape", ["t", "to_rows"], ["s"]),
        node("LSTM", ["s", "w", "r", "b"], ["l", "e"], hidden_size=5, direction=direction),
        node(
            "Transpose", ["e" if ends else "l"], ["back"], perm=[1, 0, 2] if ends else [2, 0, 1, 3]
        ),
        node("Reshape", ["back", "to_flat"], ["h"]),
    ]
    features = int(held["to_flat"][1])
    model = before_head(nodes, {**held, "k": real(2, 2, 1, 1)}, features, shape=("N", 2, 3, 4))
    found = import_file(saved(tmp_path, model))
    recurrences = [each for each in found.workload.model.nodes if isinstance(each.layer, W.LSTM)]
    assert len(recurrences) == count * directions
    assert sum(not each.weights_of for each in recurrences) == directions
