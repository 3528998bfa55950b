"""ONNX files read as workloads: layers, weights, and the check against the file."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import onnx
import pytest
from exported_models import EXPORTED_FILES, MODELS
from hypothesis import HealthCheck, assume, example, given, settings
from onnx import TensorProto, helper, numpy_helper

from dlb.proof.checks.file import check_file
from dlb.report.sentences import describe
from dlb_conformance.layer_cases import CASES
from dlb_conformance.random_models import models
from dlb_graph import workload as W
from dlb_graph.files import check
from dlb_graph.files.read import import_file
from dlb_graph.truth.canonical import canonical_graph
from dlb_graph.truth.evaluate import evaluate
from dlb_graph.truth.exported import check_exported
from dlb_graph.truth.precision import in_precision
from dlb_graph.truth.trace import trace
from dlb_graph.workload.initial import initial_weights, proof_weights

EXPORTED = sorted(EXPORTED_FILES.glob("*.onnx"))
#: torch and Keras fold a batch normalisation into the convolution before it, and Keras writes out
#: the one that it cannot fold, which is a convolution of each channel by itself.
FOLDED = {
    "torch": ["conv", "relu", "conv", "add", "relu", "batch_norm", "relu", "conv"],
    "keras": ["conv", "relu", "conv", "add", "relu", "conv", "relu", "conv"],
}


def kinds(model: W.Model) -> list[str]:
    return [W.type_name(node.layer) for node in model.nodes]


# --- what exporters write ------------------------------------------------------------------------


@pytest.mark.parametrize("path", EXPORTED, ids=lambda path: path.stem)
def test_an_exported_model_comes_back(path: Path) -> None:
    exporter, _, name = path.stem.rpartition("-")
    found = import_file(path)
    assert check_file(found).verdict == "passed" and check_file(found).worst is not None
    assert (
        check_file(found).worst.relative_l2 is not None
        and check_file(found).worst.relative_l2 < 1e-14
    )
    wanted = [kind for kind in kinds(MODELS[name]) if kind != "dropout"]
    folded = FOLDED.get(exporter.split("-")[0])
    if name == "residual" and folded:
        wanted = [*folded, "global_average_pool", "flatten", "linear"]
    assert sorted(kinds(found.workload.model)) == sorted(wanted)
    assert found.workload.model.input.shape == MODELS[name].input.shape
    assert found.workload.model.input.kind == MODELS[name].input.kind
    assert found.workload.onnx and found.workload.onnx == check_file(found).baseline.sha256


@pytest.mark.parametrize("path", EXPORTED, ids=lambda path: path.stem)
def test_a_batch_may_be_written_as_minus_one(path: Path, tmp_path: Path) -> None:
    model = onnx.load(str(path))
    for value in (*model.graph.input, *model.graph.output):
        if value.type.tensor_type.shape.dim:
            value.type.tensor_type.shape.dim[0].dim_value = -1
    found, expected = import_file(saved(tmp_path, model)), import_file(path)
    assert found.workload.model == expected.workload.model


# --- the canonical graph of a model is that model ------------------------------------------------


def same(path: Path, model: W.Model, weights: dict[str, np.ndarray]) -> None:
    path.write_bytes(canonical_graph(model, weights).SerializeToString())
    found = import_file(path)
    assert found.workload.model.wired() == model.wired()
    assert found.workload.model.input == model.input
    assert list(found.weights) == list(weights)
    for name, array in weights.items():
        assert found.weights[name].dtype == np.float32
        assert np.array_equal(found.weights[name], array), name


@pytest.mark.parametrize("name", MODELS)
def test_a_canonical_graph_is_its_own_model(name: str, tmp_path: Path) -> None:
    weights = proof_weights(initial_weights(MODELS[name], 3), 3)
    same(tmp_path / "model.onnx", MODELS[name], weights)


FILMS = ("films", "film-layouts", "max_pool-of-films-dilation", "max_pool-dilation-ceil")


@pytest.mark.parametrize("name", FILMS)
def test_a_canonical_graph_of_films_is_its_own_model(name: str, tmp_path: Path) -> None:
    weights = proof_weights(initial_weights(CASES[name], 3), 3)
    same(tmp_path / "model.onnx", CASES[name], weights)


#: They say the same in several ways, and come back in one of them: see test_imported_parts.py.
PARTS = {"gather", "pad", "select", "slice"}


def turned(layer: W.Layer) -> W.Model:
    """A layer that reads a map whose axes are in another order than the layer's before."""
    layers = (W.ReLU(), W.Transpose(axes=(2, 1, 3)), layer, W.Flatten(), W.Linear(out_features=5))
    nodes = tuple(W.Node(name=f"n{k}", layer=each) for k, each in enumerate(layers))
    return W.Model(input=W.Input(shape=(4, 7, 6)), nodes=nodes)


def doubled(layer: W.Layer) -> W.Model:
    """A layer whose output is added to itself."""
    nodes = (
        W.Node(name="n", layer=layer),
        W.Node(name="both", layer=W.Add(), inputs=("n", "n")),
        W.Node(name="flat", layer=W.Flatten()),
        W.Node(name="logits", layer=W.Linear(out_features=5)),
    )
    return W.Model(input=W.Input(shape=(4, 7, 6)), nodes=nodes)


def reshaped(shape: tuple[int, ...], *layers: W.Layer, before: W.Layer) -> W.Model:
    """Layers that read what a layer of a sequence gives, in another shape."""
    ends = (W.Flatten(), W.Linear(out_features=5))
    parts = (before, W.Reshape(shape=shape), *layers, *ends)
    nodes = tuple(W.Node(name=f"n{k}", layer=each) for k, each in enumerate(parts))
    return W.Model(input=W.Input(shape=(4, 5)), nodes=nodes)


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@example(model=reshaped((2, 2, 5), W.BatchNorm(), before=W.Sigmoid()))
@example(model=reshaped((2, 2, 5), W.ReLU(), W.BatchNorm(), before=W.LSTM(hidden=5)))
@example(model=reshaped((2, 10), W.PositionEmbedding(), before=W.Flatten()))
@example(model=reshaped((2, 10), W.PositionEmbedding(), W.PositionEmbedding(), before=W.Flatten()))
@example(model=doubled(W.GELU()))
@example(model=doubled(W.GELU(approximate="tanh")))
@example(model=turned(W.BatchNorm()))
@example(model=turned(W.GlobalAveragePool()))
@example(model=turned(W.LRN(size=3)))
@example(model=turned(W.MaxPool(kernel=(2, 2), stride=(2, 2))))
# A number for each channel is merged into another layer, or becomes a convolution.
@given(model=models(frozenset(set(W.LAYERS) - PARTS - {"scale", "shift"})))
def test_any_canonical_graph_is_read(
    model: W.Model, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Layers that change nothing, or only arrange, leave no trace; all others come back in order."""
    # A table for a single step is a bias, and may be taken into the layer before.
    shapes = W.infer_shapes(model)
    tables = [node for node in model.nodes if isinstance(node.layer, W.PositionEmbedding)]
    assume(all(shapes[node.name][0] > 1 for node in tables))
    weights = proof_weights(initial_weights(model, 1), 1)
    path = tmp_path_factory.mktemp("random") / "model.onnx"
    graph = canonical_graph(model, weights)
    # ONNX's own tools count windows of ceil mode that lie in the padding, which its text does not.
    assume(check_exported(graph).consistent)
    path.write_bytes(graph.SerializeToString())
    found = import_file(path)
    reached = {model.nodes[-1].name}
    for node in reversed(model.wired()):
        if node.name in reached:
            reached.update(node.inputs)
    arranging = ("flatten", "reshape", "transpose")
    kept = [W.type_name(node.layer) for node in model.nodes if node.name in reached]
    assert [kind for kind in kinds(found.workload.model) if kind not in arranging] == [
        kind for kind in kept if kind not in arranging
    ]


# --- what people write ---------------------------------------------------------------------------

DRAW = np.random.Generator(np.random.PCG64(7))


def real(*shape: int) -> np.ndarray:
    return DRAW.standard_normal(shape).astype(np.float32)


def graph(
    nodes: list[onnx.NodeProto],
    held: dict[str, np.ndarray],
    shape: tuple[object, ...] = ("N", 2, 5, 6),
    *,
    opset: int = 17,
    kind: int = TensorProto.FLOAT,
    rank: int = 2,
) -> onnx.ModelProto:
    """A model from ``x`` to ``y``."""
    out = TensorProto.DOUBLE if kind == TensorProto.DOUBLE else TensorProto.FLOAT
    return helper.make_model(
        helper.make_graph(
            nodes,
            "g",
            [helper.make_tensor_value_info("x", kind, shape)],
            [helper.make_tensor_value_info("y", out, [None] * rank)],
            [numpy_helper.from_array(array, name) for name, array in held.items()],
        ),
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=8,
    )


node = helper.make_node


def head(name: str, features: int, **more: object) -> tuple[list[onnx.NodeProto], dict]:
    """Flatten and a linear layer to three classes."""
    held = {"W": real(features, 3), "B": real(3)}
    nodes = [node("Flatten", [name], ["flat"], axis=1), node("Gemm", ["flat", "W", "B"], ["y"])]
    return nodes, held


def before_head(nodes: list[onnx.NodeProto], held: dict, features: int, **more) -> onnx.ModelProto:
    last, weights = head("h", features)
    return graph([*nodes, *last], {**held, **weights}, **more)


TAIL = ["flatten", "linear"]
CONV = {"w": real(4, 2, 3, 3), "b": real(4)}


def conv(output: str = "c", **attributes: object) -> onnx.NodeProto:
    return node("Conv", ["x", "w", "b"], [output], **{"pads": [1, 1, 1, 1], **attributes})


#: What hard sigmoids are written with.
HARD = {
    "three": np.float32(3),
    "zero": np.float32(0),
    "six": np.float32(6),
    "sixth": np.float32(1 / 6),
    "half": np.float32(0.5),
    "one": np.float32(1),
}


def normalised() -> list[onnx.NodeProto]:
    """Of x [N, 4, 6], to h; what is added last may be a table."""
    return [
        node("ReduceMean", ["x"], ["mean"], axes=[2]),
        node("Sub", ["x", "mean"], ["moved"]),
        node("Mul", ["moved", "moved"], ["squares"]),
        node("ReduceMean", ["squares"], ["variance"], axes=[2]),
        node("Add", ["variance", "epsilon"], ["sum"]),
        node("Sqrt", ["sum"], ["deviation"]),
        node("Div", ["scale", "deviation"], ["factor"]),
        node("Mul", ["x", "factor"], ["scaled"]),
        node("Mul", ["mean", "factor"], ["lost"]),
        node("Sub", ["added", "lost"], ["rest"]),
        node("Add", ["scaled", "rest"], ["h"]),
    ]


def both_ways(direction: str, operator: str = "LSTM", **attributes: object) -> onnx.ModelProto:
    """A recurrent operator of x [N, 4, 6], steps first, to h [4, directions, N, 3], and its steps flattened."""
    count = 1 + (direction == "bidirectional")
    rows = 3 * {"LSTM": 4, "GRU": 3, "RNN": 1}[operator]
    attributes |= {"hidden_size": 3, "direction": direction}
    return before_head(
        [
            node("Transpose", ["x"], ["steps"], perm=[1, 0, 2]),
            node(operator, ["steps", "w", "r", "b"], ["d"], **attributes),
            node("Transpose", ["d"], ["h"], perm=[2, 0, 1, 3]),
        ],
        {"w": real(count, rows, 6), "r": real(count, rows, 3), "b": real(count, 2 * rows)},
        4 * count * 3,
        shape=("N", 4, 6),
    )


POOLED = [
    conv(),
    node("GlobalAveragePool", ["c"], ["m"]),
    node("Reshape", ["m", "all"], ["f"]),
    node("Gather", ["f", "strides"], ["h"], name="culprit"),
]
STRIDES = {**CONV, "all": np.array([-1]), "strides": np.arange(8).reshape(2, 4, 1, 1)}

WRITTEN = {
    "numbers of a whole batch that are taken by their positions": (
        before_head(POOLED, STRIDES, 4, shape=(2, 2, 6, 5)),
        ["conv", "global_average_pool", *TAIL],
    ),
    "rows: convolutions of one axis, their poolings, and the mean of each": (
        before_head(
            [
                node("Transpose", ["x"], ["rows"], perm=[0, 2, 1]),
                node("Pad", ["rows", "pads"], ["padded"]),
                node("Conv", ["padded", "w", "b"], ["c"], strides=[2]),
                node("BatchNormalization", ["c", "one", "zero", "zero", "one"], ["n"]),
                node("MaxPool", ["n"], ["m"], kernel_shape=[2], pads=[1, 0], strides=[1]),
                node("ConvTranspose", ["m", "v"], ["t"], strides=[2], output_padding=[1]),
                node("Slice", ["t", "starts", "ends", "axes"], ["s"]),
                node("AveragePool", ["s"], ["a"], kernel_shape=[3], pads=[1, 1]),
                node("GlobalAveragePool", ["a"], ["h"]),
            ],
            {
                "pads": np.array([0, 0, 2, 0, 0, 1]),
                **{"w": real(4, 5, 3), "b": real(4), "v": real(4, 3, 2)},
                **{"one": np.ones(4, "f4"), "zero": np.zeros(4, "f4")},
                **{key: np.array([n]) for key, n in (("starts", 1), ("ends", 6), ("axes", 2))},
            },
            3,
            shape=("N", 6, 5),
        ),
        [
            "transpose",
            "reshape",
            "conv",
            "batch_norm",
            "max_pool",
            "conv_transpose",
            "average_pool",
            "global_average_pool",
            *TAIL,
        ],
    ),
    "films, channels last: a padded convolution, poolings, and the mean of each channel": (
        before_head(
            [
                node("Transpose", ["x"], ["film"], perm=[0, 4, 1, 2, 3]),
                node("Pad", ["film", "pads"], ["padded"]),
                node("Conv", ["padded", "w", "b"], ["c"], strides=[1, 2, 1]),
                node("BatchNormalization", ["c", "one", "zero", "zero", "one"], ["n"]),
                node("PRelu", ["n", "slopes"], ["p"]),
                node("MaxPool", ["p"], ["m"], kernel_shape=[2, 1, 2], dilations=[3, 1, 2]),
                node("AveragePool", ["m"], ["a"], kernel_shape=[2, 2, 1], pads=[0, 1, 0, 1, 0, 0]),
                node("Add", ["a", "shift"], ["s"]),
                node("GlobalAveragePool", ["s"], ["h"]),
            ],
            {
                "pads": np.array([0, 0, 1, 0, 0, 0, 0, 1, 1, 0]),
                **{"w": real(4, 2, 2, 2, 3), "b": real(4)},
                **{"one": np.ones(4, "f4"), "zero": np.zeros(4, "f4")},
                **{"slopes": real(4, 1, 1, 1), "shift": real(4, 1, 1, 1)},
            },
            4,
            shape=("N", 6, 5, 6, 2),
        ),
        [
            "conv",
            "batch_norm",
            "prelu",
            "max_pool",
            "average_pool",
            "shift",
            "global_average_pool",
            *TAIL,
        ],
    ),
    "a transposed convolution of a film, of which a part is kept": (
        before_head(
            [
                node("ConvTranspose", ["x", "w", "b"], ["c"], strides=[2, 1, 2], group=2),
                node("Slice", ["c", "starts", "ends", "axes"], ["s"]),
                node("GlobalAveragePool", ["s"], ["h"]),
            ],
            {
                **{"w": real(4, 2, 2, 3, 2), "b": real(4)},
                **{"starts": np.array([1, 0]), "ends": np.array([5, 4])},
                "axes": np.array([2, 3]),
            },
            4,
            shape=("N", 4, 3, 3, 2),
        ),
        ["conv_transpose", "global_average_pool", *TAIL],
    ),
    "the mean of a film whose channels are last": (
        before_head(
            [
                node("Conv", ["x", "w"], ["c"]),
                node("Transpose", ["c"], ["l"], perm=[0, 2, 3, 4, 1]),
                node("ReduceMean", ["l"], ["h"], axes=[1, 2, 3], keepdims=0),
            ],
            {"w": real(4, 2, 1, 2, 2)},
            4,
            shape=("N", 2, 3, 4, 5),
        ),
        ["conv", "global_average_pool", *TAIL],
    ),
    "a map resized by its nearest elements": (
        before_head(
            [
                conv(),
                node("Resize", ["c", "", "scales"], ["r"], mode="nearest"),
                node("Resize", ["r", "", "", "sizes"], ["h"], nearest_mode="ceil"),
            ],
            {**CONV, "scales": np.float32([1, 1, 2, 1.5]), "sizes": np.array([2, 4, 7, 9])},
            4 * 7 * 9,
            shape=(2, 2, 6, 5),
        ),
        ["conv", "gather", "gather", "gather", "gather", *TAIL],
    ),
    "an LSTM backwards": (
        both_ways("reverse"),
        ["gather", "lstm", "gather", *TAIL],
    ),
    "an LSTM in both directions": (
        both_ways("bidirectional"),
        ["lstm", "gather", "lstm", "gather", "concat", *TAIL],
    ),
    "a GRU": (both_ways("forward", "GRU"), ["gru", *TAIL]),
    "a GRU backwards": (
        both_ways("reverse", "GRU", linear_before_reset=1),
        ["gather", "gru", "gather", *TAIL],
    ),
    "a GRU in both directions": (
        both_ways("bidirectional", "GRU", linear_before_reset=1),
        ["gru", "gather", "gru", "gather", "concat", *TAIL],
    ),
    "units without gates": (both_ways("forward", "RNN", activations=["Relu"]), ["rnn", *TAIL]),
    "units without gates in both directions": (
        both_ways("bidirectional", "RNN"),
        ["rnn", "gather", "rnn", "gather", "concat", *TAIL],
    ),
    "a transposed convolution to a size that is written": (
        before_head(
            [node("ConvTranspose", ["x", "w"], ["h"], strides=[2, 2], output_shape=[12, 9])],
            {"w": real(2, 3, 3, 2)},
            3 * 12 * 9,
            shape=("N", 2, 6, 5),
        ),
        ["conv_transpose", *TAIL],
    ),
    "a transposed convolution of the same size, cut, with a number added to each channel": (
        before_head(
            [
                node("ConvTranspose", ["x", "w"], ["c"], strides=[2, 1], auto_pad="SAME_LOWER"),
                node("Slice", ["c", "starts", "ends", "axes"], ["s"]),
                node("Add", ["s", "b"], ["h"]),
            ],
            {
                "w": real(2, 3, 3, 2),
                "b": real(3, 1, 1),
                **{key: np.array(n) for key, n in (("starts", [1, 0]), ("ends", [10, 4]))},
                "axes": np.array([2, 3]),
            },
            3 * 9 * 4,
            shape=("N", 2, 6, 5),
        ),
        ["conv_transpose", *TAIL],
    ),
    "a normalisation and a table of positions added up": (
        before_head(
            normalised(),
            {"epsilon": np.float32(1e-3), "scale": real(6), "added": real(1, 4, 6)},
            24,
            shape=("N", 4, 6),
        ),
        ["layer_norm", "position_embedding", *TAIL],
    ),
    "Gemm transB, alpha, beta": (
        graph(
            [node("Gemm", ["x", "w", "b"], ["y"], transB=1, alpha=0.5, beta=0.3)],
            {"w": real(3, 7), "b": real(3)},
            ("N", 7),
        ),
        ["linear"],
    ),
    "MatMul and Add": (
        graph(
            [node("MatMul", ["x", "w"], ["m"]), node("Add", ["b", "m"], ["y"])],
            {"w": real(7, 3), "b": real(3)},
            ("N", 7),
        ),
        ["linear"],
    ),
    "constants that are nodes and computed": (
        graph(
            [
                node("Constant", [], ["flat"], value=numpy_helper.from_array(real(21))),
                node("Constant", [], ["shape"], value_ints=[7, 3]),
                node("Reshape", ["flat", "shape"], ["w"]),
                node("ConstantOfShape", ["three"], ["b"], value=numpy_helper.from_array(real(1))),
                node("Gemm", ["x", "w", "b"], ["y"]),
            ],
            {"three": np.array([3])},
            ("N", 7),
        ),
        ["linear"],
    ),
    "ReLU as Clip": (
        before_head(
            [conv(), node("Clip", ["c", "zero"], ["h"])], {**CONV, "zero": np.float32(0)}, 120
        ),
        ["conv", "relu", *TAIL],
    ),
    "ReLU as Max": (
        before_head(
            [conv(), node("Max", ["zero", "c"], ["h"])], {**CONV, "zero": np.float32(0)}, 120
        ),
        ["conv", "relu", *TAIL],
    ),
    "ReLU6 as Clip": (
        before_head(
            [conv(), node("Clip", ["c", "zero", "six"], ["h"])],
            {**CONV, "zero": np.float32(0), "six": np.float32(6)},
            120,
        ),
        ["conv", "relu6", *TAIL],
    ),
    "ReLU6 as the smaller of a ReLU and 6": (
        before_head(
            [conv(), node("Relu", ["c"], ["r"]), node("Min", ["six", "r"], ["h"])],
            {**CONV, "six": np.float32(6)},
            120,
        ),
        ["conv", "relu6", *TAIL],
    ),
    "a ReLU, and the smaller of it and 6": (
        before_head(
            [
                conv(),
                node("Relu", ["c"], ["r"]),
                node("Min", ["r", "six"], ["s"]),
                node("Add", ["r", "s"], ["h"]),
            ],
            {**CONV, "six": np.float32(6)},
            120,
        ),
        ["conv", "relu", "relu6", "add", *TAIL],
    ),
    "hard swish": (
        before_head([conv(), node("HardSwish", ["c"], ["h"])], CONV, 120),
        ["conv", "hard_sigmoid", "mul", *TAIL],
    ),
    "hard sigmoid": (
        before_head([conv(), node("HardSigmoid", ["c"], ["h"], alpha=1 / 6)], CONV, 120),
        ["conv", "hard_sigmoid", *TAIL],
    ),
    "hard sigmoid by a ReLU6": (
        before_head(
            [
                conv(),
                node("Add", ["c", "three"], ["a"]),
                node("Clip", ["a", "zero", "six"], ["i"]),
                node("Div", ["i", "six"], ["h"]),
            ],
            {**CONV, **HARD},
            120,
        ),
        ["conv", "hard_sigmoid", *TAIL],
    ),
    "hard sigmoid of features, by a ReLU and a smaller number": (
        graph(
            [
                node("Gemm", ["x", "w", "b"], ["g"]),
                node("Add", ["three", "g"], ["a"]),
                node("Relu", ["a"], ["r"]),
                node("Min", ["r", "six"], ["m"]),
                node("Mul", ["m", "sixth"], ["n"]),
                node("Gemm", ["n", "v", "b"], ["y"]),
            ],
            {**HARD, "w": real(7, 3), "b": real(3), "v": real(3, 3)},
            ("N", 7),
        ),
        ["linear", "hard_sigmoid", "linear"],
    ),
    "hard sigmoid that is bounded last": (
        before_head(
            [
                conv(),
                node("Mul", ["c", "sixth"], ["a"]),
                node("Add", ["a", "half"], ["i"]),
                node("Max", ["i", "zero"], ["d"]),
                node("Min", ["d", "one"], ["h"]),
            ],
            {**CONV, **HARD},
            120,
        ),
        ["conv", "hard_sigmoid", *TAIL],
    ),
    "hard swish by products": (
        before_head(
            [
                conv(),
                node("Add", ["c", "three"], ["a"]),
                node("Clip", ["a", "zero", "six"], ["i"]),
                node("Mul", ["c", "i"], ["d"]),
                node("Mul", ["d", "sixth"], ["h"]),
            ],
            {**CONV, **HARD},
            120,
        ),
        ["conv", "hard_sigmoid", "mul", *TAIL],
    ),
    "hard swish of the input, by a hard sigmoid": (
        before_head(
            [
                node("Add", ["x", "three"], ["a"]),
                node("Clip", ["a", "zero", "six"], ["i"]),
                node("Mul", ["i", "sixth"], ["s"]),
                node("Mul", ["s", "x"], ["p"]),
                node("Conv", ["p", "w", "b"], ["h"], pads=[1, 1, 1, 1]),
            ],
            {**CONV, **HARD},
            120,
        ),
        ["hard_sigmoid", "mul", "conv", *TAIL],
    ),
    "hard sigmoid written out, and scaled as no layer of its own is": (
        before_head(
            [
                conv(),
                node("Add", ["c", "three"], ["a"]),
                node("Clip", ["a", "zero", "six"], ["i"]),
                node("Mul", ["i", "sixth"], ["s"]),
                node("Mul", ["s", "k"], ["h"]),
            ],
            {**CONV, **HARD, "k": real(4, 1, 1)},
            120,
        ),
        ["conv", "hard_sigmoid", "conv", *TAIL],
    ),
    "hard swish, and scaled as no layer of its own is": (
        before_head(
            [conv(), node("HardSwish", ["c"], ["s"]), node("Mul", ["s", "k"], ["h"])],
            {**CONV, "k": real(4, 1, 1)},
            120,
        ),
        ["conv", "hard_sigmoid", "mul", "conv", *TAIL],
    ),
    "SiLU": (
        before_head(
            [conv(), node("Sigmoid", ["c"], ["s"]), node("Mul", ["s", "c"], ["h"])], CONV, 120
        ),
        ["conv", "sigmoid", "mul", *TAIL],
    ),
    "squeeze and excitation, channels last": (
        graph(
            [
                node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]),
                node("Conv", ["t", "w", "b"], ["c"]),
                node("Transpose", ["c"], ["u"], perm=[0, 2, 3, 1]),
                node("ReduceMean", ["u"], ["m"], axes=[1, 2], keepdims=0),
                node("MatMul", ["m", "v"], ["n"]),
                node("Sigmoid", ["n"], ["s"]),
                node("Reshape", ["s", "apart"], ["g"]),
                node("Mul", ["g", "u"], ["e"]),
                node("Reshape", ["e", "shape"], ["f"]),
                node("MatMul", ["f", "W"], ["y"]),
            ],
            {
                **CONV,
                "v": real(4, 4),
                "apart": np.array([-1, 1, 1, 4]),
                "shape": np.array([-1, 48]),
                "W": real(48, 3),
            },
            ("N", 5, 6, 2),
        ),
        [
            *("conv", "global_average_pool", "flatten", "linear", "sigmoid", "reshape", "mul"),
            *TAIL,
        ],
    ),
    "a normalisation and a matrix of a map's channels": (
        before_head(
            [
                conv(),
                node("Transpose", ["c"], ["t"], perm=[0, 2, 3, 1]),
                node("LayerNormalization", ["t", "s", "z"], ["n"], axis=-1),
                node("MatMul", ["n", "v"], ["m"]),
                node("Transpose", ["m"], ["u"], perm=[0, 3, 1, 2]),
                node("Mul", ["u", "k"], ["r"]),
                node("Add", ["c", "r"], ["h"]),
            ],
            {**CONV, "s": real(4), "z": real(4), "v": real(4, 4), "k": real(4, 1, 1)},
            120,
        ),
        [
            *("conv", "reshape", "transpose", "layer_norm", "linear", "transpose", "reshape"),
            *("add", *TAIL),
        ],
    ),
    "Pad before a convolution": (
        before_head(
            [
                node("Pad", ["x", "pads"], ["p"]),
                node("Conv", ["p", "w", "b"], ["h"], pads=[0, 0, 1, 0]),
            ],
            {**CONV, "pads": np.array([0, 0, 1, 2, 0, 0, 0, 1])},
            4 * 5 * 7,
        ),
        ["conv", *TAIL],
    ),
    "auto_pad": (
        before_head([conv("h", auto_pad="SAME_LOWER", pads=None, strides=[2, 2])], CONV, 4 * 3 * 3),
        ["conv", *TAIL],
    ),
    "channels last": (
        graph(
            [
                node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]),
                node("Conv", ["t", "w", "b"], ["c"]),
                node("Transpose", ["c"], ["u"], perm=[0, 2, 3, 1]),
                node("Relu", ["u"], ["r"]),
                node("Reshape", ["r", "shape"], ["f"]),
                node("MatMul", ["f", "W"], ["y"]),
            ],
            {**CONV, "shape": np.array([-1, 48]), "W": real(48, 3)},
            ("N", 5, 6, 2),
        ),
        ["conv", "relu", *TAIL],
    ),
    "a bias that is added to a convolution": (
        before_head(
            [node("Conv", ["x", "w"], ["c"]), node("Add", ["c", "b"], ["h"])],
            {"w": CONV["w"], "b": real(4, 1, 1)},
            4 * 3 * 4,
        ),
        ["conv", *TAIL],
    ),
    "a scale and a shift of each channel": (
        before_head(
            [node("Mul", ["s", "x"], ["m"]), node("Sub", ["m", "t"], ["h"])],
            {"s": real(1, 2, 1, 1), "t": real(2, 1, 1)},
            60,
        ),
        ["conv", *TAIL],
    ),
    "a scale that a batch normalisation takes in": (
        before_head(
            [
                node("BatchNormalization", ["x", "s", "b", "m", "v"], ["n"], epsilon=1e-3),
                node("Mul", ["n", "t"], ["k"]),
                node("Add", ["k", "t"], ["h"]),
            ],
            {**{name: real(2) for name in "sbm"}, "v": np.abs(real(2)) + 1, "t": real(2, 1, 1)},
            60,
        ),
        ["batch_norm", *TAIL],
    ),
    "dropout of operator set 7, identities and a softmax": (
        graph(
            [
                node("Gemm", ["x", "w", "b"], ["g"]),
                node("Dropout", ["g"], ["d"], ratio=0.25),
                node("Identity", ["d"], ["i"]),
                node("Softmax", ["i"], ["y"], name="prob"),
            ],
            {"w": real(7, 3), "b": real(3)},
            ("N", 7),
            opset=9,
        ),
        ["linear", "dropout"],
    ),
    "a sum of three": (
        before_head(
            [
                conv(),
                node("Relu", ["c"], ["r"]),
                node("Tanh", ["c"], ["t"]),
                node("Sum", ["c", "r", "t"], ["h"]),
            ],
            CONV,
            120,
        ),
        ["conv", "relu", "tanh", "add", "add", *TAIL],
    ),
    "poolings": (
        before_head(
            [
                node("MaxPool", ["x"], ["p"], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
                node("AveragePool", ["p"], ["h"], kernel_shape=[2, 2], pads=[1, 1, 0, 0]),
            ],
            {},
            2 * 2 * 3,
        ),
        ["max_pool", "average_pool", *TAIL],
    ),
    "the largest of each channel": (
        before_head(
            [conv(), node("GlobalMaxPool", ["c"], ["h"])],
            CONV,
            4,
        ),
        ["conv", "max_pool", *TAIL],
    ),
    "windows of a map that zeros are put around, which are no padding of theirs": (
        before_head(
            [
                conv(),
                node("Pad", ["c", "pads"], ["p"]),
                node("MaxPool", ["p"], ["h"], kernel_shape=[3, 3], strides=[2, 2]),
            ],
            {**CONV, "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1])},
            4 * 3 * 3,
        ),
        ["conv", "pad", "max_pool", *TAIL],
    ),
    "the largest of each channel, and of what is put around it": (
        before_head(
            [
                conv(),
                node("Relu", ["c"], ["r"]),
                node("Pad", ["r", "pads"], ["p"]),
                node("GlobalMaxPool", ["p"], ["h"]),
            ],
            {**CONV, "pads": np.array([0, 0, 1, 0, 0, 0, 0, 2])},
            4,
        ),
        ["conv", "relu", "max_pool", *TAIL],
    ),
    "a class token before a sequence": (
        graph(
            [
                node("MatMul", ["x", "w"], ["m"]),
                node("Shape", ["x"], ["sizes"]),
                node("Gather", ["sizes", "zero"], ["batch"]),
                node("Concat", ["batch", "rest"], ["shape"], axis=0),
                node("Expand", ["token", "shape"], ["tokens"]),
                node("Concat", ["tokens", "m"], ["j"], axis=1),
                node("Add", ["j", "table"], ["t"]),
                node("Gather", ["t", "first"], ["f"], axis=1),
                node("MatMul", ["f", "v"], ["y"]),
            ],
            {
                "w": real(6, 5),
                "zero": np.array([0]),
                "rest": np.array([1, 5]),
                "token": real(1, 1, 5),
                "table": real(1, 5, 5),
                "first": np.array(0),
                "v": real(5, 3),
            },
            ("N", 4, 6),
        ),
        ["linear", "pad", "position_embedding", "select", "linear"],
    ),
    "tokens before a sequence, and a table of zeros": (
        graph(
            [
                node("MatMul", ["x", "w"], ["m"]),
                node("Concat", ["token", "other", "m"], ["j"], axis=1),
                node("Add", ["j", "table"], ["t"]),
                node("Gather", ["t", "first"], ["f"], axis=1),
                node("MatMul", ["f", "v"], ["y"]),
            ],
            {
                "w": real(6, 5),
                "token": np.tile(real(1, 1, 5), (2, 1, 1)),
                "other": np.zeros((2, 1, 5), np.float32),
                "table": np.zeros((1, 6, 5), np.float32),
                "first": np.array(0),
                "v": real(5, 3),
            },
            (2, 4, 6),
        ),
        ["linear", "pad", "position_embedding", "select", "linear"],
    ),
    "a class token before a sequence that a table was added to": (
        graph(
            [
                node("MatMul", ["x", "w"], ["m"]),
                node("Add", ["m", "table"], ["t"]),
                node("Concat", ["t", "token"], ["j"], axis=1),
                node("Gather", ["j", "last"], ["f"], axis=1),
                node("MatMul", ["f", "v"], ["y"]),
            ],
            {
                "w": real(6, 5),
                "token": np.tile(real(1, 1, 5), (2, 1, 1)),
                "table": real(1, 4, 5),
                "last": np.array(-1),
                "v": real(5, 3),
            },
            (2, 4, 6),
        ),
        ["linear", "pad", "position_embedding", "select", "linear"],
    ),
    "a row and a table that are added to what is looked up": (
        graph(
            [
                node("Gather", ["words", "x"], ["e"]),
                node("Add", ["e", "row"], ["s"]),
                node("Add", ["s", "table"], ["t"]),
                node("Gather", ["t", "first"], ["f"], axis=1),
                node("MatMul", ["f", "v"], ["y"]),
            ],
            {
                "words": real(9, 6),
                "row": real(6),
                "table": real(1, 4, 6),
                "first": np.array(0),
                "v": real(6, 3),
            },
            ("N", 4),
            kind=TensorProto.INT64,
        ),
        ["embedding", "position_embedding", "select", "linear"],
    ),
    "a mean of each window that is scaled by how much of it counts": (
        before_head(
            [
                node(
                    "AveragePool",
                    ["x"],
                    ["p"],
                    kernel_shape=[2, 2],
                    pads=[1, 0, 0, 0],
                    count_include_pad=1,
                ),
                node("Mul", ["p", "s"], ["h"]),
            ],
            {"s": np.repeat(np.float32([[2], [1], [1], [1], [1]]), 5, axis=1)},
            2 * 5 * 5,
        ),
        ["average_pool", *TAIL],
    ),
    "a mean of each window that is divided by how much of it counts, in thirds": (
        before_head(
            [
                node(
                    "AveragePool",
                    ["x"],
                    ["p"],
                    kernel_shape=[3, 2],
                    pads=[1, 0, 0, 0],
                    count_include_pad=1,
                ),
                node("Div", ["p", "s"], ["h"]),
            ],
            {"s": np.repeat(np.float32([[2 / 3], [1], [1], [1]]), 5, axis=1)},
            2 * 4 * 5,
        ),
        ["average_pool", *TAIL],
    ),
    "pixels that are scaled and shifted, and windows of a padded map": (
        before_head(
            [
                node("Mul", ["x", "s"], ["m"]),
                node("Add", ["m", "t"], ["a"]),
                node("Relu", ["a"], ["r"]),
                node("Pad", ["r", "pads"], ["p"]),
                node("MaxPool", ["p"], ["h"], kernel_shape=[2, 2], strides=[2, 2]),
            ],
            {"s": real(2, 1, 1), "t": real(2, 1, 1), "pads": np.array([0, 0, 0, 0, 0, 0, 1, 0])},
            2 * 3 * 3,
        ),
        ["conv", "relu", "max_pool", *TAIL],
    ),
    "a mean of each window that is scaled channels last": (
        before_head(
            [
                node(
                    "AveragePool",
                    ["x"],
                    ["p"],
                    kernel_shape=[3, 2],
                    pads=[1, 0, 0, 0],
                    count_include_pad=1,
                ),
                node("Transpose", ["p"], ["t"], perm=[0, 2, 3, 1]),
                node("Div", ["t", "s"], ["d"]),
                node("Transpose", ["d"], ["h"], perm=[0, 3, 1, 2]),
            ],
            {"s": np.repeat(np.float32([[2 / 3], [1], [1], [1]]), 5, axis=1)[..., None]},
            2 * 4 * 5,
        ),
        ["average_pool", *TAIL],
    ),
    "a convolution for the classes": (
        graph(
            [
                conv(),
                node("ReduceMean", ["c"], ["m"], axes=[-2, -1]),
                node("Conv", ["m", "v"], ["y"]),
            ],
            {**CONV, "v": real(3, 4, 1, 1)},
            rank=4,
        ),
        ["conv", "global_average_pool", "conv", "flatten"],
    ),
    "a batch that is fixed": (
        before_head([conv("h")], CONV, 120, shape=(5, 2, 5, 6)),
        ["conv", *TAIL],
    ),
    "channels that are shuffled": (
        before_head(
            [
                conv(),
                node("Reshape", ["c", "five"], ["g"]),
                node("Transpose", ["g"], ["t"], perm=[0, 2, 1, 3, 4]),
                node("Reshape", ["t", "four"], ["s"]),
                node("Conv", ["s", "v"], ["h"]),
            ],
            {
                **CONV,
                "five": np.array([-1, 2, 2, 5, 6]),
                "four": np.array([-1, 4, 5, 6]),
                "v": real(4, 4, 1, 1),
            },
            120,
        ),
        ["conv", "reshape", "transpose", "reshape", "conv", *TAIL],
    ),
    "branches that nothing reads": (
        before_head(
            [
                conv(),
                node("LeakyRelu", ["c"], ["unread"]),
                node("Relu", ["c"], ["neither"]),
                node("Mul", ["c", "s"], ["h"]),
            ],
            {**CONV, "s": real(4, 1, 1)},
            120,
        ),
        ["conv", "conv", *TAIL],
    ),
}


def one_matrix(cut: str, bias: str) -> onnx.ModelProto:
    """Causal attention in two heads whose queries, keys and values one matrix makes."""
    held = {"W": real(8, 24), "B": real(24), "O": real(8, 8), "C": real(8, 3), "scale": real(1)}
    held |= {"shape": np.array([-1, 4, 2, 4]), "whole": np.array([0, 4, 8])}
    held["scale"][:], held["above"] = 0.5, np.triu(np.full((4, 4), -1e30, np.float32), 1)
    order = (0, 2, 1, 3)
    heads = [
        made
        for name, perm in (("q", order), ("k", (0, 2, 3, 1)), ("v", order))
        for made in (
            node("Reshape", [name, "shape"], [f"{name}_apart"]),
            node("Transpose", [f"{name}_apart"], [f"{name}_heads"], perm=perm),
        )
    ]
    turned = node("Transpose", ["k"], ["k_heads"], perm=(0, 1, 3, 2))
    if cut == "Split of rows":
        held["rows"] = np.array([-1, 24])
        parts = [
            node("Reshape", ["qkv", "rows"], ["qkv_rows"]),
            node("Split", ["qkv_rows"], ["q", "k", "v"], axis=1),
        ]
    elif cut == "Split along an axis of its own":
        held["apart"] = np.array([-1, 3, 8])
        parts = [
            node("Reshape", ["qkv", "apart"], ["three"]),
            node("Split", ["three"], ["q", "k", "v"], axis=1),
        ]
    elif cut in ("Split of heads", "Split of each head"):
        shape, axis = ([-1, 4, 6, 4], 1) if cut == "Split of heads" else ([-1, 4, 2, 12], 3)
        held["apart"] = np.array(shape)
        parts = [
            node("Reshape", ["qkv", "apart"], ["all"]),
            node("Transpose", ["all"], ["all_heads"], perm=order),
            node("Split", ["all_heads"], ["q_heads", "k", "v_heads"], axis=axis),
        ]
        heads = [turned]
    elif cut == "Gather":
        held |= {"apart": np.array([-1, 4, 3, 2, 4])}
        held |= {f"place{place}": np.array(place) for place in range(3)}
        parts = [
            node("Reshape", ["qkv", "apart"], ["all"]),
            node("Transpose", ["all"], ["three"], perm=(2, 0, 3, 1, 4)),
            node("Gather", ["three", "place0"], ["q_heads"], axis=0),
            node("Gather", ["three", "place1"], ["k"], axis=0),
            node("Gather", ["three", "place2"], ["v_heads"], axis=0),
        ]
        heads = [turned]
    elif cut == "Split":
        parts = [node("Split", ["qkv"], ["q", "k", "v"], axis=2)]
    else:
        held |= {f"at{place}": np.array([8 * place]) for place in range(4)} | {
            "last": np.array([2])
        }
        parts = [
            node("Slice", ["qkv", f"at{place}", f"at{place + 1}", "last"], [name])
            for place, name in enumerate("qkv")
        ]
    if bias:
        made = [node("MatMul", ["x", "W"], ["m"]), node("Add", ["m", "B"], ["qkv"])]
    else:
        made = [node("MatMul", ["x", "W"], ["qkv"])]
    attended = [
        node("MatMul", ["q_heads", "k_heads"], ["products"]),
        node("Mul", ["products", "scale"], ["scaled"]),
        node("Add", ["scaled", "above"], ["scores"]),
        node("Softmax", ["scores"], ["shares"], axis=3),
        node("MatMul", ["shares", "v_heads"], ["mixed"]),
        node("Transpose", ["mixed"], ["back"], perm=(0, 2, 1, 3)),
        node("Reshape", ["back", "whole"], ["joined"]),
        node("MatMul", ["joined", "O"], ["attended"]),
        node("MatMul", ["attended", "C"], ["y"]),
    ]
    return graph([*made, *parts, *heads, *attended], held, ("N", 4, 8), rank=3)


@pytest.mark.parametrize("bias", ["bias", ""])
@pytest.mark.parametrize(
    "cut",
    [
        "Split",
        "Split of rows",
        "Split along an axis of its own",
        "Split of heads",
        "Split of each head",
        "Gather",
        "Slice",
    ],
)
def test_queries_keys_and_values_may_come_of_one_matrix(
    cut: str, bias: str, tmp_path: Path
) -> None:
    model = one_matrix(cut, bias)
    found = import_file(saved(tmp_path, model))
    assert kinds(found.workload.model) == ["attention", "linear"]
    assert check_file(found).verdict == "passed" and not describe(check_file(found))
    whole = numpy_helper.to_array(model.graph.initializer[0])
    features = np.arange(24).reshape(3, 8)
    if cut == "Split of each head":
        features = np.arange(24).reshape(2, 3, 4).swapaxes(0, 1).reshape(3, 8)
    for mine, role in zip(features, ("query", "key", "value")):
        np.testing.assert_array_equal(found.weights[f"mixed.{role}_weight"], whole[:, mine].T)


@pytest.mark.parametrize("bias", ["bias", ""])
def test_what_scales_the_features_of_attention_is_taken_in(bias: str, tmp_path: Path) -> None:
    model = one_matrix("Split", bias)
    scale = real(8)
    model.graph.initializer.append(numpy_helper.from_array(scale, "each"))
    model.graph.node[-1].input[0] = "sized"
    model.graph.node.insert(len(model.graph.node) - 1, node("Mul", ["attended", "each"], ["sized"]))
    found = import_file(saved(tmp_path, model))
    assert kinds(found.workload.model) == ["attention", "linear"]
    assert check_file(found).verdict == "passed"
    (last,) = (each for each in model.graph.initializer if each.name == "O")
    np.testing.assert_array_equal(
        found.weights["mixed.output_weight"], numpy_helper.to_array(last).T * scale[:, None]
    )


@pytest.mark.parametrize("asked", ["shares", "scores"])
def test_rows_that_a_mask_leaves_empty_may_be_looked_for(asked: str, tmp_path: Path) -> None:
    """Of a softmax, where they do not depend on the input; what is NaN elsewhere may, and is no attention."""
    model = one_matrix("Gather", "")
    nodes = list(model.graph.node)
    (place,) = (at for at, each in enumerate(nodes) if each.op_type == "Softmax")
    nodes[place + 1].input[0] = "filled"
    nodes[place + 1 : place + 1] = [
        node("IsNaN", [asked], ["empty"]),
        node("Where", ["empty", "nothing", "shares"], ["filled"]),
    ]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    model.graph.initializer.append(numpy_helper.from_array(np.float32(0), "nothing"))
    read = kinds(import_file(saved(tmp_path, model)).workload.model)
    if asked == "shares":
        assert read == ["attention", "linear"]
    else:
        assert "attention" not in read and "where" in read


def test_keys_of_other_steps_are_no_linear_map(tmp_path: Path) -> None:
    """Places that are taken along another axis than features, as many as there are: that is no attention."""
    model = one_matrix("Split", "")
    turned = numpy_helper.from_array(np.array([1, 0, 2, 3]), "turned")
    model.graph.initializer.append(turned)
    (cut,) = (each for each in model.graph.node if each.op_type == "Split")
    cut.output[1] = "k_before"
    place = list(model.graph.node).index(cut)
    model.graph.node.insert(place + 1, node("Gather", ["k_before", "turned"], ["k"], axis=1))
    found = import_file(saved(tmp_path, model))
    assert check_file(found).verdict == "passed"
    read = kinds(found.workload.model)
    assert "attention" not in read and {"gather", "mask", "softmax", "matmul"} <= set(read)


def test_what_is_split_is_sliced(tmp_path: Path) -> None:
    """One half of a layer's features is bent and added to the other."""
    held = {"w": real(7, 8), "W": real(4, 3), "two": np.array([4, 4])}
    nodes = [
        node("MatMul", ["x", "w"], ["m"]),
        node("Split", ["m", "two"], ["a", "b"], axis=-1, name="halves"),
        node("Tanh", ["a"], ["t"]),
        node("Add", ["t", "b"], ["s"]),
        node("MatMul", ["s", "W"], ["y"]),
    ]
    found = import_file(saved(tmp_path, graph(nodes, held, ("N", 7))))
    assert kinds(found.workload.model) == ["linear", "slice", "slice", "tanh", "add", "linear"]
    assert check_file(found).verdict == "passed"
    names = [each.name for each in found.workload.model.nodes]
    assert {"halves_0", "halves_1"} < set(names)


def saved(folder: Path, model: onnx.ModelProto) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_written_in_another_way_is_read(name: str, tmp_path: Path) -> None:
    model, wanted = WRITTEN[name]
    found = import_file(saved(tmp_path, model))
    assert kinds(found.workload.model) == wanted
    assert check_file(found).verdict == "passed" and check_file(found).worst is not None
    assert (
        check_file(found).worst.relative_l2 is not None
        and check_file(found).worst.relative_l2 < 1e-14
    )


def test_the_softmax_is_left_to_the_loss_and_that_is_said(tmp_path: Path) -> None:
    model, _ = WRITTEN["dropout of operator set 7, identities and a softmax"]
    found = import_file(saved(tmp_path, model))
    assert "node 'prob' (Softmax) is what the loss begins with" in describe(check_file(found))
    assert found.workload.model.nodes[-1].layer == W.Dropout(rate=0.25)


def test_weights_that_are_rounded_are_named(tmp_path: Path) -> None:
    model, _ = WRITTEN["Gemm transB, alpha, beta"]
    found = import_file(saved(tmp_path, model))
    assert "rounded to float32 for what is run: y.bias" in describe(check_file(found))


def test_a_file_in_float64_is_rounded_too(tmp_path: Path) -> None:
    held = {"w": DRAW.standard_normal((7, 3))}
    wide = graph([node("MatMul", ["x", "w"], ["y"])], held, ("N", 7), kind=TensorProto.DOUBLE)
    found = import_file(saved(tmp_path, wide))
    assert "rounded to float32 for what is run: y.weight" in describe(check_file(found))
    assert np.array_equal(found.weights["y.weight"], held["w"].T.astype(np.float32))


def test_of_many_weights_that_are_rounded_the_first_are_named(tmp_path: Path) -> None:
    held = {f"w{place}": DRAW.standard_normal((7, 7)) for place in range(6)}
    names = ["x", *(f"y{place}" for place in range(5)), "y"]
    nodes = [node("MatMul", [names[at], f"w{at}"], [names[at + 1]]) for at in range(6)]
    found = import_file(saved(tmp_path, graph(nodes, held, ("N", 7), kind=TensorProto.DOUBLE)))
    assert (
        "rounded to float32 for what is run: y0.weight, y1.weight, y2.weight, y3.weight and 2 "
        "more of 6" in describe(check_file(found))
    )


def test_names_are_made_valid_and_stay_apart(tmp_path: Path) -> None:
    names = ["a/b.c:0", "a.b/c:0", "A_B_C_0", "0", "labels"]
    values = ["x", *names]
    nodes = [
        node("Relu", [before], [after], name=name)
        for before, after, name in zip(values, values[1:], names)
    ]
    nodes.append(node("MatMul", ["labels", "w"], ["y"]))
    found = import_file(saved(tmp_path, graph(nodes, {"w": real(4, 3)}, ("N", 4)))).workload.model
    assert [each.name for each in found.nodes[:-1]] == [
        "a_b_c_0",
        "a_b_c_0_2",
        "A_B_C_0_3",
        "n0",
        "labels_2",
    ]


@pytest.mark.parametrize("last", ["", "Sigmoid"])
@pytest.mark.parametrize("shape", [("N", 4), ("N", 5, 4)])
def test_one_output_is_a_share(shape: tuple[object, ...], last: str, tmp_path: Path) -> None:
    """Softmax cross-entropy of one class is always 0, so there would be nothing to train."""
    nodes = [node("MatMul", ["x", "w"], ["l" if last else "y"], name="product")]
    nodes += [node(last, ["l"], ["y"], name="last")] if last else []
    path = saved(tmp_path, graph(nodes, {"w": real(4, 1)}, shape, rank=len(shape)))
    found = import_file(path)
    assert [each.layer for each in found.workload.model.nodes] == [
        W.Linear(out_features=1, bias=False)
    ]
    assert found.workload.loss == W.BinaryCrossEntropy()
    said = describe(check_file(found))
    assert "binary cross entropy" in said and ("'last' (Sigmoid)" in said) == bool(last)


@pytest.mark.parametrize("last", ["", "Sigmoid", "Softmax"])
@pytest.mark.parametrize("turned", [False, True])
def test_a_map_is_trained_by_its_numbers(last: str, turned: bool, tmp_path: Path) -> None:
    """In any order of its axes; a softmax over its channels is a layer."""
    names = ["conv", *(["turned"] if turned else []), *(["y"] if last else [])]
    names[-1] = "y"
    nodes = [node("Conv", ["x", "w"], [names[0]], pads=[1, 1, 1, 1])]
    if turned:
        nodes.append(node("Transpose", ["conv"], [names[1]], perm=[0, 2, 3, 1]))
    if last:
        options = {"axis": 3 if turned else 1} if last == "Softmax" else {}
        nodes.append(node(last, [names[-2]], ["y"], name="last", **options))
    path = saved(tmp_path, graph(nodes, {"w": real(4, 3, 3, 3)}, ("N", 3, 5, 6), rank=4))
    found = import_file(path)
    kinds = [W.type_name(each.layer) for each in found.workload.model.nodes]
    assert kinds[0] == "conv" and ("softmax" in kinds) == (last == "Softmax")
    expected = W.BinaryCrossEntropy() if last == "Sigmoid" else W.SquaredError()
    assert found.workload.loss == expected
    x = np.random.default_rng(0).standard_normal((2, 3, 5, 6))
    outputs = evaluate(canonical_graph(found.workload.model, found.weights), {"x": x})
    value = trace(onnx.load(str(path)), {"x": x.astype(np.float32)})
    read = value.values[names[-2] if last == "Sigmoid" else "y"]
    (got,) = (outputs[name] for name in [found.workload.model.nodes[-1].name])
    assert np.allclose(got.ravel()[found.layout.index_map], read, atol=1e-6)


def test_indices_may_come_as_real_numbers(tmp_path: Path) -> None:
    nodes = [
        node("Cast", ["x"], ["i"], to=TensorProto.INT64),
        node("Gather", ["table", "i"], ["e"]),
        node("MatMul", ["e", "w"], ["y"]),
    ]
    found = import_file(
        saved(tmp_path, graph(nodes, {"table": real(9, 4), "w": real(4, 3)}, ("N", 6), rank=3))
    )
    assert found.workload.model.input == W.Input(name="x", shape=(6,), kind="index")


@pytest.mark.parametrize("kept", ["once", "twice"])
def test_a_layer_that_multiplies_by_the_table_is_tied_to_it(kept: str, tmp_path: Path) -> None:
    """Whether the file keeps the matrix once, or as exporters that turn constants do."""
    table = real(9, 4)
    turned = [node("Transpose", ["table"], ["turned"])] if kept == "once" else []
    held = {"table": table} if kept == "once" else {"table": table, "turned": table.T.copy()}
    nodes = [
        node("Cast", ["x"], ["i"], to=TensorProto.INT64),
        node("Gather", ["table", "i"], ["e"]),
        *turned,
        node("Tanh", ["e"], ["t"]),
        node("MatMul", ["t", "turned"], ["y"]),
    ]
    found = import_file(saved(tmp_path, graph(nodes, held, ("N", 6), rank=3)))
    assert found.workload.model.nodes[-1].layer == W.Linear(out_features=9, bias=False, tied_to="e")
    assert list(found.weights) == ["e.weight"] and check_file(found).verdict == "passed"
    assert "'y' multiplies by the table of 'e': they are tied" in describe(check_file(found))


def test_a_layer_that_is_used_twice_is_shared(tmp_path: Path) -> None:
    nodes = [
        node("Gemm", ["x", "w", "b"], ["h"]),
        node("Tanh", ["h"], ["t"]),
        node("Gemm", ["t", "w", "b"], ["y"]),
    ]
    found = import_file(saved(tmp_path, graph(nodes, {"w": real(5, 5), "b": real(5)}, ("N", 5))))
    assert list(found.weights) == ["h.weight", "h.bias"]
    assert found.workload.model.nodes[-1].weights_of == "h"
    assert "computed with the parameters of 'h', which they share: 'y'" in describe(
        check_file(found)
    )


def test_layers_that_share_a_matrix_otherwise_are_trained_apart_and_that_is_said(
    tmp_path: Path,
) -> None:
    nodes = [node("Gemm", ["x", "w", "b"], ["h"]), node("MatMul", ["h", "w"], ["y"])]
    held = {"w": real(5, 5), "b": real(5)}
    found = import_file(saved(tmp_path, graph(nodes, held, ("N", 5))))
    assert list(found.weights) == ["h.weight", "h.bias", "y.weight"]
    assert "h.weight and y.weight are the same numbers, trained apart" in describe(
        check_file(found)
    )


def test_matrices_of_one_number_are_not_shared(tmp_path: Path) -> None:
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("MatMul", ["h", "v"], ["y"])]
    held = {"w": np.ones((5, 5), np.float32), "v": np.ones((5, 5), np.float32)}
    found = import_file(saved(tmp_path, graph(nodes, held, ("N", 5))))
    assert "same numbers" not in describe(check_file(found))


# --- the check can fail --------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["weight", "layer", "order of axes", "nothing"])
def test_the_check_finds_what_is_read_wrongly(what: str, tmp_path: Path) -> None:
    model = MODELS["lenet"]
    weights = {k: v.astype(np.float64) for k, v in initial_weights(model, 0).items()}
    file = in_precision(canonical_graph(model, weights), TensorProto.DOUBLE)
    axes, read = (0, 1, 2, 3), model
    if what == "weight":
        weights["fc1.weight"].flat[7] *= 1 + 1e-6
    if what == "order of axes":
        axes = (0, 1, 3, 2)
    if what == "layer":
        nodes = list(model.nodes)
        nodes[2] = msgspec.structs.replace(
            nodes[2], layer=W.AveragePool(kernel=(2, 2), stride=(2, 2))
        )
        read = msgspec.structs.replace(model, nodes=tuple(nodes))
    traced = trace(file)
    found = check.compare_with_file(
        check.truncate_at(file, "fc2", traced, {}),
        read,
        weights,
        axes,
        2,
        np.arange(10).reshape(2, 5),
    )
    assert found.equal == (what == "nothing")
