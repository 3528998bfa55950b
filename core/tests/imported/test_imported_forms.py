"""ONNX files with truths, integers, and operators that ONNX defines by others: read as what they compute."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnxruntime import InferenceSession
from test_imported import CONV, before_head, conv, graph, head, kinds, node, real, saved

from dlb.errors import UnsupportedError
from dlb.proof.checks.file import check_file
from dlb_graph.comparing.read_facts import SharedLayers, StraightThrough
from dlb_graph.files.read import import_file
from dlb_graph.truth.canonical import canonical_graph
from dlb_graph.truth.evaluate import evaluate


def after_conv(*nodes: onnx.NodeProto, size: int = 120, **held: np.ndarray) -> onnx.ModelProto:
    """Nodes from the map ``c`` [4, 5, 6] to ``h``, of ``size`` numbers, and a linear layer after them."""
    return before_head([conv(), *nodes], {**CONV, **held}, size)


def compared(operator: str) -> onnx.ModelProto:
    """A comparison of a map with what each channel has at most, as a number."""
    most = node("ReduceMax", ["c"], ["most"], axes=[2, 3], keepdims=1)
    half = node("Mul", ["most", "half"], ["bound"])
    truth = node(operator, ["c", "bound"], ["truth"])
    number = node("Cast", ["truth"], ["h"], to=TensorProto.FLOAT)
    return after_conv(most, half, truth, number, half=np.float32(0.5))


def joined(operator: str) -> onnx.ModelProto:
    """Of two truths one."""
    first, second = (node("Greater", ["c", name], [f"{name}?"]) for name in ("low", "high"))
    both = node(operator, ["low?", "high?"], ["truth"])
    number = node("Cast", ["truth"], ["h"], to=TensorProto.FLOAT)
    return after_conv(first, second, both, number, low=np.float32(-0.2), high=np.float32(0.3))


def chosen(*values: str, **held: np.ndarray) -> onnx.ModelProto:
    """Of two values, by a third."""
    wave, test = node("Sin", ["c"], ["wave"]), node("Less", ["c", "wave"], ["truth"])
    return after_conv(wave, test, node("Where", ["truth", *values], ["h"]), **held)


SCALE, ZERO = np.float32(0.05), np.int8(3)
ROUNDED = [
    node("QuantizeLinear", ["c", "scale", "zero"], ["q"]),
    node("DequantizeLinear", ["q", "scale", "zero"], ["h"]),
]
SCALES, ZEROS = np.float32([0.1, 0.2, 0.05, 0.3]), np.int8([0, 1, -2, 5])
TOP = node("TopK", ["c", "k"], ["h", "places"], axis=2)
#: Of every sample the row with the largest sum, and the samples' numbers.
OF_SAMPLES = [
    node("Reshape", ["c", "of_six"], ["rows"]),
    node("ReduceSum", ["rows", "last"], ["sums"], keepdims=0),
    node("ArgMax", ["sums"], ["i"], axis=1, keepdims=0),
    *(node("Shape", ["c"], ["sizes"]), node("Gather", ["sizes", "zero"], ["count"])),
    node("Range", ["zero", "count", "one"], ["samples"]),
]
NUMBERS = {
    **{name: np.int64(number) for name, number in (("zero", 0), ("one", 1), ("twenty", 20))},
    **{"of_six": np.int64([0, 20, 6]), "all": np.int64([-1, 6]), "last": np.int64([-1])},
}
MOST = node("ArgMax", ["c"], ["i"], axis=1, keepdims=0)
REAL_MOST = node("Cast", ["i"], ["h"], to=TensorProto.FLOAT)
REAL_THREE = node("Cast", ["i3"], ["h"], to=TensorProto.FLOAT)
PLACES = np.random.default_rng(4).integers(0, 6, (1, 4, 5, 3))


def attention(**attributes: object) -> onnx.ModelProto:
    """ONNX's own operator of the rows of a map as steps, with two heads."""
    steps = np.array([-1, 20, 6])
    weights = {name: real(6, 6) for name in "qkv"}
    nodes = [
        node("Reshape", ["c", "steps"], ["s"]),
        *(node("MatMul", ["s", name], [name.upper()]) for name in weights),
        node("Attention", ["Q", "K", "V"], ["A"], q_num_heads=2, kv_num_heads=2, **attributes),
        node("MatMul", ["A", "o"], ["h"]),
    ]
    model = after_conv(*nodes, steps=steps, **weights, o=real(6, 6))
    model.opset_import[0].version = 23
    return model


FILES: dict[str, tuple[onnx.ModelProto, set[str]]] = {
    **{
        name: (compared(name), {"elementwise"})
        for name in ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
    },
    **{name: (joined(name), {"elementwise"}) for name in ("And", "Or", "Xor")},
    "Not": (
        after_conv(
            node("Greater", ["c", "low"], ["t"]),
            node("Not", ["t"], ["n"]),
            node("Cast", ["n"], ["h"], to=TensorProto.FLOAT),
            low=np.float32(0.1),
        ),
        {"elementwise"},
    ),
    "what is no number": (
        after_conv(
            node("Softmax", ["c"], ["p"], axis=-1),
            node("IsNaN", ["p"], ["t"]),
            node("Where", ["t", "zero", "p"], ["h"]),
            zero=np.float32(0),
        ),
        {"softmax", "where"},
    ),
    "of two values": (chosen("c", "wave"), {"where"}),
    "of a value and a number": (chosen("number", "wave", number=np.float32(0.25)), {"where"}),
    "of a number for each channel": (
        after_conv(
            node("ReduceMean", ["c"], ["mean"], axes=[2, 3], keepdims=1),
            node("Greater", ["c", "mean"], ["truth"]),
            node("Where", ["truth", "mean", "c"], ["h"]),
        ),
        {"where"},
    ),
    "a quotient where there is one": (
        after_conv(
            node("Floor", ["c"], ["whole"]),
            node("Equal", ["whole", "zero"], ["none"]),
            node("Div", ["c", "whole"], ["q"]),
            node("Where", ["none", "zero", "q"], ["h"]),
            zero=np.float32(0),
        ),
        {"where"},
    ),
    "quantised numbers": (after_conv(*ROUNDED, scale=SCALE, zero=ZERO), {"elementwise"}),
    "quantised channels": (
        after_conv(*ROUNDED, scale=SCALES, zero=ZEROS),
        {"elementwise"},
    ),
    "whole numbers": (
        after_conv(
            node("Cast", ["c"], ["i"], to=TensorProto.INT32),
            node("Mul", ["i", "three"], ["m"]),
            node("Div", ["m", "two"], ["d"]),
            node("Cast", ["d"], ["h"], to=TensorProto.FLOAT),
            three=np.int32(3),
            two=np.int32(2),
        ),
        {"elementwise"},
    ),
    "selected places": (
        before_head(
            [
                node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
                node("Expand", ["places", "sizes"], ["p"]),
                node("GatherElements", ["c", "p"], ["h"], axis=3),
            ],
            {**CONV, "places": PLACES, "sizes": np.array([2, 4, 5, 3])},
            60,
            shape=(2, 2, 5, 6),
        ),
        {"gather"},
    ),
    "slopes of single numbers": (
        after_conv(node("PRelu", ["c", "slopes"], ["h"]), slopes=real(4, 5, 6)),
        {"where", "scale"},
    ),
    "a root mean square of rows and columns": (
        after_conv(node("RMSNormalization", ["c", "scale"], ["h"], axis=2), scale=real(5, 6)),
        {"binary", "scale"},
    ),
    "attention as one operator": (attention(), {"attention"}),
    "attention as one operator, causal": (attention(is_causal=1), {"attention"}),
    "a value or constants": (
        after_conv(
            node("Less", ["c", "low"], ["t"]),
            node("Where", ["t", "low", "c"], ["h"]),
            low=np.float32([0, 0.1, -1, 0.5, 0, 1]),
        ),
        {"where"},
    ),
    "the two largest": (
        after_conv(TOP, size=4 * 2 * 6, k=np.int64([2])),
        {"top_k", "gather_elements"},
    ),
    "where the smallest are": (
        after_conv(
            node("TopK", ["c", "k"], ["v", "i"], axis=3, largest=0),
            node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
            node("Add", ["f", "v"], ["h"]),
            size=4 * 5 * 3,
            k=np.int64([3]),
        ),
        {"top_k", "gather_elements"},
    ),
    "where the largest is": (after_conv(MOST, REAL_MOST, size=5 * 6), {"top_k"}),
    "where the last smallest is": (
        after_conv(
            node("Floor", ["c"], ["whole"]),
            node("ArgMin", ["whole"], ["i"], axis=-1, select_last_index=1),
            REAL_MOST,
            size=4 * 5,
        ),
        {"top_k", "gather"},
    ),
    "another value where the largest is": (
        after_conv(
            node("ArgMax", ["c"], ["i"], axis=2),
            node("Sin", ["c"], ["s"]),
            node("GatherElements", ["s", "i"], ["h"], axis=2),
            size=4 * 6,
        ),
        {"top_k", "gather_elements"},
    ),
    "places that are computed": (
        after_conv(
            *(node("Abs", ["c"], ["size"]), node("Floor", ["size"], ["whole"])),
            node("Clip", ["whole", "none", "most"], ["within"]),
            node("Cast", ["within"], ["places"], to=TensorProto.INT64),
            node("GatherElements", ["c", "places"], ["h"], axis=3),
            none=np.float32(0),
            most=np.float32(5),
        ),
        {"gather_elements"},
    ),
    "places and values of few rows and channels, repeated": (
        after_conv(
            node("ReduceMean", ["c"], ["means"], axes=[2], keepdims=1),
            node("ReduceMax", ["c"], ["peaks"], axes=[1, 2], keepdims=1),
            node("TopK", ["peaks", "k"], ["v", "i"], axis=3),
            *(node("Expand", ["means", "rows"], ["e"]), node("Expand", ["i", "few"], ["j"])),
            node("GatherElements", ["e", "j"], ["h"], axis=3),
            size=4 * 3 * 2,
            k=np.int64([2]),
            rows=np.int64([1, 1, 3, 1]),
            few=np.int64([1, 4, 3, 1]),
        ),
        {"reduce", "top_k", "gather_elements"},
    ),
    "rows of repeated values": (
        after_conv(
            node("ReduceMean", ["c"], ["means"], axes=[1], keepdims=1),
            node("Expand", ["means", "sizes"], ["e"]),
            node("ArgMax", ["c"], ["i"], axis=2, keepdims=0),
            node("ReduceMax", ["i"], ["j"], axes=[2], keepdims=1),
            node("Unsqueeze", ["j", "last"], ["places"]),
            node("GatherND", ["e", "places"], ["h"], batch_dims=2),
            size=4 * 6,
            sizes=np.int64([1, 4, 1, 1]),
            last=np.int64([3]),
        ),
        {"reduce", "top_k", "gather_elements"},
    ),
    "rows of places that are computed": (
        after_conv(
            node("ArgMax", ["c"], ["i"], axis=2, keepdims=0),
            node("ReduceMax", ["i"], ["j"], axes=[2], keepdims=1),
            node("Unsqueeze", ["j", "last"], ["places"]),
            node("GatherND", ["c", "places"], ["h"], batch_dims=2),
            size=4 * 6,
            last=np.int64([3]),
        ),
        {"top_k", "gather_elements"},
    ),
    "integers of places": (
        after_conv(
            MOST, node("Mul", ["i", "three"], ["i3"]), REAL_THREE, size=30, three=np.int64(3)
        ),
        {"top_k", "elementwise"},
    ),
    "one of several channels": (
        after_conv(
            node("ArgMax", ["c"], ["i"], axis=2, keepdims=0),
            node("OneHot", ["i", "five", "values"], ["h"], axis=1),
            size=4 * 5 * 6,
            five=np.int64(5),
            values=np.float32([0.5, 2]),
        ),
        {"top_k", "elementwise"},
    ),
    "a codebook": (
        after_conv(
            *(MOST, node("Add", ["i", "one"], ["j"]), node("Gather", ["table", "j"], ["h"])),
            size=5 * 6 * 7,
            one=np.int64(1),
            table=real(6, 7),
        ),
        {"top_k", "linear"},
    ),
    "numbers put in computed places": (
        after_conv(
            node("TopK", ["c", "k"], ["v", "i"], axis=3),
            node("Softmax", ["v"], ["shares"], axis=-1),
            *(node("Shape", ["c"], ["sizes"]), node("ConstantOfShape", ["sizes"], ["zeros"])),
            node("ScatterElements", ["zeros", "i", "shares"], ["h"], axis=3),
            k=np.int64([2]),
        ),
        {"top_k", "reduce"},
    ),
    "an index for each sample, added to its place": (
        after_conv(
            *OF_SAMPLES,
            node("Mul", ["samples", "twenty"], ["before"]),
            node("Add", ["i", "before"], ["places"]),
            node("Reshape", ["rows", "all"], ["flat_rows"]),
            node("Gather", ["flat_rows", "places"], ["h"]),
            size=6,
            **NUMBERS,
        ),
        {"top_k", "gather_elements"},
    ),
    "an index for each sample, behind its number": (
        after_conv(
            *OF_SAMPLES,
            *(node("Unsqueeze", [name, "last"], [f"{name}1"]) for name in ("samples", "i")),
            node("Concat", ["samples1", "i1"], ["places"], axis=1),
            node("GatherND", ["rows", "places"], ["h"]),
            size=6,
            **NUMBERS,
        ),
        {"top_k", "gather_elements"},
    ),
    "shares of what is above the last of the largest": (
        after_conv(
            node("TopK", ["c", "k"], ["v", "i"], axis=3),
            node("Gather", ["v", "last"], ["bound"], axis=3),
            node("Less", ["c", "bound"], ["below"]),
            node("Where", ["below", "never", "c"], ["kept"]),
            node("Softmax", ["kept"], ["h"], axis=-1),
            k=np.int64([2]),
            last=np.int64([1]),
            never=np.float32(-np.inf),
        ),
        {"top_k", "where", "softmax"},
    ),
    "the largest of three": (
        after_conv(
            node("Sin", ["c"], ["s"]),
            node("Cos", ["c"], ["o"]),
            node("Max", ["c", "s", "o"], ["h"]),
        ),
        {"binary"},
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_the_layers_compute_what_the_operators_do(name: str, tmp_path: Path) -> None:
    model, wanted = FILES[name]
    if any(node.op_type == "RMSNormalization" for node in model.graph.node):
        model.opset_import[0].version = 23
    found = import_file(saved(tmp_path, model))
    assert wanted <= set(kinds(found.workload.model)), kinds(found.workload.model)
    _assert_same(model, found)


def _assert_same(model: onnx.ModelProto, found: object) -> None:
    """The layers have the values of the file as ONNX Runtime computes it."""
    (given,) = model.graph.input
    sizes = [size.dim_value or 2 for size in given.type.tensor_type.shape.dim]
    kind = helper.tensor_dtype_to_np_dtype(given.type.tensor_type.elem_type)
    inputs = (np.random.default_rng(5).standard_normal(sizes) * 2).astype(kind)
    session = InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {given.name: inputs})
    weights = {key: array.astype(np.float64) for key, array in found.weights.items()}  # type: ignore[attr-defined]
    canonical = canonical_graph(found.workload.model, weights, dtype="float64")  # type: ignore[attr-defined]
    real_inputs = inputs.astype(np.float64)
    (value,) = evaluate(canonical, {canonical.graph.input[0].name: real_inputs}).values()
    assert np.allclose(value, expected, rtol=1e-4, atol=1e-4)


def test_an_input_of_integers_that_looks_up_nothing_is_one_of_real_numbers(tmp_path: Path) -> None:
    nodes = [
        node("Cast", ["x"], ["f"], to=TensorProto.FLOAT),
        node("MatMul", ["f", "w"], ["y"]),
    ]
    model = graph(nodes, {"w": real(7, 3)}, ("N", 7), kind=TensorProto.INT64)
    found = import_file(saved(tmp_path, model))
    assert found.workload.model.input.kind == "real"
    _assert_same(model, found)


def test_what_is_named_is_the_files_own_node(tmp_path: Path) -> None:
    """Not one of the operators that stand for it."""
    nodes = [
        node("Greater", ["c", "low"], ["t"], name="greater"),
        node("Cast", ["t"], ["n"], to=TensorProto.FLOAT),
        node("Det", ["n"], ["h"], name="culprit"),
    ]
    ends, weights = head("h", 4)
    held = {**CONV, "low": np.float32(0), **weights}
    model = graph([conv(), *nodes, *ends], held, ("N", 2, 6, 6))
    with pytest.raises(UnsupportedError, match=r"node '(greater|culprit)'"):
        import_file(saved(tmp_path, model))


def test_what_is_compared_with_infinity_is_refused(tmp_path: Path) -> None:
    """Infinity less infinity is no number, so that the sign of the difference would say nothing."""
    model = after_conv(
        node("Equal", ["c", "low"], ["t"], name="culprit"),
        node("Cast", ["t"], ["h"], to=TensorProto.FLOAT),
        low=np.float32(-np.inf),
    )
    with pytest.raises(UnsupportedError, match="node 'culprit'"):
        import_file(saved(tmp_path, model))


@pytest.mark.parametrize("name", ["quantised numbers", "quantised channels"])
def test_a_quantised_file_is_trained_straight_through_its_roundings(
    name: str, tmp_path: Path
) -> None:
    path = saved(tmp_path, FILES[name][0])
    found = import_file(path)
    functions = [getattr(node.layer, "function", "") for node in found.workload.model.nodes]
    assert functions.count("straight_through_round") == 1
    assert StraightThrough(roundings=1) in [finding.cause for finding in check_file(found).findings]


def test_a_bound_of_all_rows_makes_them_one_sample(tmp_path: Path) -> None:
    """As decibels that are limited to those within 80 of the loudest."""
    nodes = [
        node("MatMul", ["x", "w"], ["m"]),
        node("ReduceMax", ["m"], ["top"], keepdims=0),
        node("Sub", ["top", "two"], ["low"]),
        node("Clip", ["m", "low", ""], ["y"]),
    ]
    model = graph(nodes, {"w": real(7, 3), "two": np.float32(2)}, ("N", 7))
    found = import_file(saved(tmp_path, model))
    assert found.workload.model.input.shape == (16, 7)
    assert {"reduce", "binary"} <= set(kinds(found.workload.model))
    assert any(chosen.one_sample for chosen in found.read_as)


def looped(*inside: onnx.NodeProto, **held: np.ndarray) -> onnx.ModelProto:
    """A loop over the five steps of an input [N, 5, 4], whose state of three numbers is its output."""
    kind = lambda name, *shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)  # noqa: E731
    other = [
        helper.make_tensor_value_info(name, element, ())
        for name, element in (
            ("i", TensorProto.INT64),
            ("go", TensorProto.BOOL),
            ("on", TensorProto.BOOL),
        )
    ]
    read = [node("Gather", ["t", "i"], ["step"]), node("Identity", ["go"], ["on"])]
    body = helper.make_graph(
        [*read, *inside], "body", [*other[:2], kind("s", "N", 3)], [other[2], kind("e", "N", 3)]
    )
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
        node("Shape", ["t"], ["shape"]),
        node("Gather", ["shape", "samples"], ["n"]),
        node("Concat", ["n", "three"], ["sizes"], axis=0),
        node("ConstantOfShape", ["sizes"], ["zeros"]),
        node("Loop", ["rounds", "", "zeros"], ["h"], body=body, name="loop"),
        node("MatMul", ["h", "w"], ["y"]),
    ]
    held |= {
        "w": real(3, 2),
        "samples": np.array([1]),
        "three": np.array([3]),
        "rounds": np.array(5),
    }
    return graph(nodes, held, ("N", 5, 4))


PRODUCTS = [
    node("MatMul", ["step", "wx"], ["a"]),
    node("MatMul", ["s", "ws"], ["b"]),
    node("Add", ["a", "b"], ["c"]),
]


def test_a_loop_that_is_a_recurrent_layer_is_one(tmp_path: Path) -> None:
    model = looped(*PRODUCTS, node("Tanh", ["c"], ["e"]), wx=real(4, 3), ws=real(3, 3))
    imported = import_file(saved(tmp_path, model))
    assert kinds(imported.workload.model) == ["rnn", "select", "linear"]
    assert check_file(imported).verdict == "passed"


def test_a_loop_that_is_none_is_its_rounds_whose_layers_are_shared(tmp_path: Path) -> None:
    model = looped(*PRODUCTS, node("Sin", ["c"], ["e"]), wx=real(4, 3), ws=real(3, 3))
    imported = import_file(saved(tmp_path, model))
    assert kinds(imported.workload.model).count("elementwise") == 5
    told = [f.cause for f in check_file(imported).findings if isinstance(f.cause, SharedLayers)]
    assert [len(cause.layers) for cause in told] == [4, 3]
    assert len(imported.weights) == 3


def test_a_loop_whose_rounds_the_input_decides_is_refused(tmp_path: Path) -> None:
    model = looped(*PRODUCTS, node("Tanh", ["c"], ["e"]), wx=real(4, 3), ws=real(3, 3))
    model.graph.node.insert(5, node("ReduceMax", ["x"], ["most"], keepdims=0))
    model.graph.node.insert(6, node("Cast", ["most"], ["rounds_of_x"], to=TensorProto.INT64))
    next(one for one in model.graph.node if one.op_type == "Loop").input[0] = "rounds_of_x"
    with pytest.raises(UnsupportedError, match="'loop' \\(Loop\\): how often it runs depends"):
        import_file(saved(tmp_path, model))
