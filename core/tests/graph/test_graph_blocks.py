"""Layers written out as operators: any way of writing them is read as the layer, nothing else is."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dlb_graph.structure.normal_form import operations
from dlb_graph.structure.structure import compare_structure
from dlb_graph.truth.canonical import canonical_graph
from dlb_graph.workload import (
    GELU,
    Attention,
    BatchNorm,
    Flatten,
    GroupNorm,
    Input,
    LayerNorm,
    Model,
    Node,
    Pad,
    PositionEmbedding,
    ReduceMean,
    RMSNorm,
    Select,
    Slice,
    Transpose,
)
from dlb_graph.workload.initial import initial_weights

FEATURES = 6


class Writer:
    """Nodes of a graph of one input "x" [N, 4, 6], of float32."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.held: list[onnx.TensorProto] = []

    def __call__(self, operator: str, *inputs: str | float | np.ndarray, **attributes) -> str:
        names = [each if isinstance(each, str) else self._hold(each) for each in inputs]
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, names, [name], name=name, **attributes))
        return name

    def _hold(self, number: float | np.ndarray) -> str:
        name = f"c{len(self.held)}"
        array = np.asarray(number)
        kind = {"f": np.float32, "b": np.bool_}.get(array.dtype.kind, np.int64)
        self.held.append(numpy_helper.from_array(array.astype(kind), name))
        return name

    def model(self) -> onnx.ModelProto:
        value = helper.make_tensor_value_info
        graph = helper.make_graph(
            self.nodes,
            "written",
            [value("x", TensorProto.FLOAT, ["N", 4, FEATURES])],
            [value(self.nodes[-1].output[0], TensorProto.FLOAT, None)],
            self.held,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def canonical(*layers) -> onnx.ModelProto:
    nodes = (Node(name=f"it{place or ''}", layer=layer) for place, layer in enumerate(layers))
    model = Model(input=Input(shape=(4, FEATURES)), nodes=tuple(nodes))
    return canonical_graph(model, initial_weights(model, 0))


SCALE, BIAS = np.linspace(0.5, 2, FEATURES), np.linspace(-1, 1, FEATURES)
TABLE = np.linspace(-2, 3, 4 * FEATURES).reshape(4, FEATURES) ** 2
HALF, ROOT = 0.5, math.sqrt(2)


def norm_by_root(w: Writer, epsilon: float = 1e-3) -> None:
    moved = w("Sub", "x", w("ReduceMean", "x", axes=[-1]))
    variance = w("ReduceMean", w("Pow", moved, 2.0), axes=[-1])
    normal = w("Div", moved, w("Sqrt", w("Add", variance, epsilon)))
    w("Add", w("Mul", normal, SCALE), BIAS)


def norm_by_reciprocal(w: Writer, epsilon: float = 1e-3, bias: np.ndarray = BIAS) -> None:
    """Scaled before it is moved, as Keras does."""
    mean = w("ReduceMean", "x", axes=[2])
    moved = w("Sub", "x", mean)
    variance = w("ReduceMean", w("Mul", moved, moved), axes=[2])
    inverse = w("Reciprocal", w("Sqrt", w("Add", epsilon, variance)))
    scale = w("Mul", inverse, SCALE)
    rest = w("Add", w("Mul", w("Neg", mean), scale), bias)
    w("Add", w("Mul", "x", scale), rest)


def norm_of_squares(w: Writer, epsilon: float = 1e-3) -> None:
    """The variance as the mean of squares less the square of the mean."""
    mean = w("ReduceMean", "x", axes=[2])
    squares = w("ReduceMean", w("Mul", "x", "x"), axes=[2])
    variance = w("Sub", squares, w("Mul", mean, mean))
    deviation = w("Sqrt", w("Add", variance, epsilon))
    w("Add", w("Mul", w("Div", w("Sub", "x", mean), deviation), SCALE), BIAS)


def norm_over_time(w: Writer, epsilon: float = 1e-3) -> None:
    """Of the wrong axis."""
    moved = w("Sub", "x", w("ReduceMean", "x", axes=[1]))
    variance = w("ReduceMean", w("Mul", moved, moved), axes=[1])
    normal = w("Div", moved, w("Sqrt", w("Add", variance, epsilon)))
    w("Add", w("Mul", normal, SCALE), BIAS)


def norm_with_epsilon_outside(w: Writer, epsilon: float = 1e-3) -> None:
    moved = w("Sub", "x", w("ReduceMean", "x", axes=[2]))
    variance = w("ReduceMean", w("Mul", moved, moved), axes=[2])
    normal = w("Div", moved, w("Add", w("Sqrt", variance), epsilon))
    w("Add", w("Mul", normal, SCALE), BIAS)


def norm_of_the_root_mean_square(w: Writer, epsilon: float = 1e-3) -> None:
    squares = w("ReduceMean", w("Mul", "x", "x"), axes=[2])
    w("Mul", w("Div", "x", w("Sqrt", w("Add", squares, epsilon))), SCALE)


def norm_and_its_input(w: Writer) -> None:
    norm_by_root(w)
    w("Add", w.nodes[-1].output[0], "x")


def gelu(w: Writer) -> None:
    w("Mul", w("Mul", "x", HALF), w("Add", w("Erf", w("Div", "x", ROOT)), 1.0))


def gelu_halved_last(w: Writer) -> None:
    w("Mul", w("Mul", "x", w("Add", w("Erf", w("Mul", "x", 1 / ROOT)), 1.0)), HALF)


def gelu_reshaped(w: Writer) -> None:
    flat = w("Flatten", "x")
    w("Mul", w("Mul", flat, HALF), w("Add", w("Erf", w("Div", flat, ROOT)), 1.0))


def gelu_by_tanh(w: Writer) -> None:
    cube = w("Pow", "x", 3.0)
    inside = w("Mul", w("Add", "x", w("Mul", cube, 0.044715)), math.sqrt(2 / math.pi))
    w("Mul", w("Mul", HALF, "x"), w("Add", 1.0, w("Tanh", inside)))


def gelu_of_another_scale(w: Writer) -> None:
    w("Mul", w("Mul", "x", HALF), w("Add", w("Erf", w("Div", "x", 1.414)), 1.0))


def gelu_by_another_cube(w: Writer) -> None:
    cube = w("Pow", "x", 3.0)
    inside = w("Mul", w("Add", "x", w("Mul", cube, 0.0447)), math.sqrt(2 / math.pi))
    w("Mul", w("Mul", HALF, "x"), w("Add", 1.0, w("Tanh", inside)))


def mean_of_a_sum(w: Writer) -> None:
    w("Mul", w("ReduceSum", "x", np.array([1]), keepdims=0), 0.25)


def mean_of_transposed(w: Writer) -> None:
    w("GlobalAveragePool", w("Transpose", "x", perm=[0, 2, 1]))


def sum_divided_by_another(w: Writer) -> None:
    w("Div", w("ReduceSum", "x", np.array([1]), keepdims=0), 6.0)


def last_by_slice(w: Writer) -> None:
    one = w("Slice", "x", np.array([-1]), np.array([100]), np.array([1]))
    w("Squeeze", one, np.array([1]))


def last_of_many_axes(w: Writer) -> None:
    whole = np.iinfo(np.int64).max
    one = w("Slice", "x", np.array([0, 3, 0]), np.array([whole, 4, whole]), np.array([0, 1, 2]))
    w("Squeeze", one, np.array([1]))


def part_by_one_slice(w: Writer) -> None:
    """Of both axes, the last one first, counted from the end."""
    w("Slice", "x", np.array([-5, 1]), np.array([-1, 4]), np.array([2, 1]), np.array([2, 1]))


def part_by_a_slice_and_a_gather(w: Writer, last: int = 3) -> None:
    rows = w("Slice", "x", np.array([1]), np.array([4]), np.array([1]))
    w("Gather", rows, np.array([1, last]), axis=2)


def part_of_the_transposed(w: Writer) -> None:
    turned = w("Transpose", w("Gather", "x", np.array([1, 2, 3]), axis=1), perm=[0, 2, 1])
    w("Slice", turned, np.array([1]), np.array([4]), np.array([1]), np.array([2]))


def part_by_other_places(w: Writer) -> None:
    part_by_a_slice_and_a_gather(w, last=2)


def padded(w: Writer) -> None:
    w("Pad", "x", np.array([0, 1, 0, 0, 0, 2]), 0.5)


def padded_and_turned(w: Writer) -> None:
    turned = w("Transpose", "x", perm=[0, 2, 1])
    w("Transpose", w("Pad", turned, np.array([0, 0, 1, 0, 2, 0]), 0.5), perm=[0, 2, 1])


def padded_with_another(w: Writer) -> None:
    w("Pad", "x", np.array([0, 1, 0, 0, 0, 2]), 0.25)


def padded_on_the_other_side(w: Writer) -> None:
    w("Pad", "x", np.array([0, 1, 2, 0, 0, 0]), 0.5)


def last_feature(w: Writer) -> None:
    w("Gather", "x", np.array(-1), axis=2)


def first(w: Writer) -> None:
    w("Gather", "x", np.array(0), axis=1)


def table(w: Writer) -> None:
    w("Add", np.arange(24.0).reshape(1, 4, FEATURES), "x")


def row(w: Writer) -> None:
    w("Add", "x", np.arange(6.0))


def attention(w: Writer, *, scale: float, causal: bool = False, count: int = 3) -> None:
    """Three heads of 2; the scale in two parts, the mask a choice."""
    size = FEATURES // count
    random = np.random.default_rng(0)

    def linear(x: str) -> str:
        return w("Add", w("MatMul", x, random.random((FEATURES, FEATURES))), BIAS)

    def heads(x: str, perm: tuple[int, ...]) -> str:
        return w("Transpose", w("Reshape", x, np.array([0, 4, count, size])), perm=perm)

    queries = w("Mul", heads(linear("x"), (0, 2, 1, 3)), math.sqrt(scale))
    keys = w("Mul", heads(linear("x"), (0, 2, 3, 1)), math.sqrt(scale))
    scores = w("MatMul", queries, keys)
    if causal:
        scores = w("Where", np.tri(4, dtype=bool), scores, -1e9)
    mixed = w("MatMul", w("Softmax", scores, axis=-1), heads(linear("x"), (0, 2, 1, 3)))
    joined = w("Reshape", w("Transpose", mixed, perm=(0, 2, 1, 3)), np.array([0, 4, FEATURES]))
    linear(joined)


def attention_to_the_past(w: Writer) -> None:
    attention(w, scale=1 / math.sqrt(2), causal=True)


def attention_to_all(w: Writer) -> None:
    attention(w, scale=1 / math.sqrt(2))


def attention_of_single_features(w: Writer) -> None:
    """Each scaled by one."""
    attention(w, scale=1.0, count=6)


def attention_that_is_not_scaled(w: Writer) -> None:
    attention(w, scale=1.0)


def attention_scaled_by_the_size(w: Writer) -> None:
    attention(w, scale=0.5)


def attention_of_features_that_lie_otherwise(w: Writer) -> None:
    """Queries are divided into heads as if the step came last."""
    random = np.random.default_rng(0)
    maps = [w("Add", w("MatMul", "x", random.random((6, 6))), BIAS) for _ in range(3)]
    parts = [
        w("Transpose", w("Reshape", each, np.array([0, 4, 3, 2])), perm=(0, 2, 1, 3))
        for each in maps
    ]
    odd = w("Transpose", w("Reshape", maps[0], np.array([0, 4, 2, 3])), perm=(0, 3, 1, 2))
    scores = w("MatMul", odd, w("Transpose", parts[1], perm=(0, 1, 3, 2)))
    shares = w("Softmax", w("Mul", scores, 1 / math.sqrt(2)), axis=-1)
    joined = w(
        "Reshape",
        w("Transpose", w("MatMul", shares, parts[2]), perm=(0, 2, 1, 3)),
        np.array([0, 4, 6]),
    )
    w("Add", w("MatMul", joined, random.random((6, 6))), BIAS)


SEES_ALL, SEES_THE_PAST = Attention(heads=3), Attention(heads=3, causal=True)
PART = Slice(starts=(1, 1), ends=(4, 5), steps=(1, 2))
PAD = Pad(pads=(1, 0, 0, 2), value=0.5)
NORM, ERF, TANH = LayerNorm(epsilon=1e-3), GELU(), GELU(approximate="tanh")
RMS = RMSNorm(epsilon=1e-3)


@pytest.mark.parametrize(
    ("write", "layer"),
    [
        (norm_by_root, NORM),
        (norm_by_reciprocal, NORM),
        (norm_of_squares, NORM),
        (norm_of_the_root_mean_square, RMS),
        (gelu, ERF),
        (gelu_halved_last, ERF),
        (gelu_reshaped, ERF),
        (gelu_by_tanh, TANH),
        (mean_of_a_sum, ReduceMean()),
        (mean_of_transposed, ReduceMean()),
        (last_by_slice, Select(index=-1)),
        (last_of_many_axes, Select(index=-1)),
        (part_by_one_slice, PART),
        (part_by_a_slice_and_a_gather, PART),
        (part_of_the_transposed, PART),
        (padded, PAD),
        (padded_and_turned, PAD),
        (table, PositionEmbedding()),
        (attention_to_all, SEES_ALL),
        (attention_to_the_past, SEES_THE_PAST),
        (attention_of_single_features, Attention(heads=6)),
    ],
)
def test_it_is_read_as_the_layer(write: Callable[[Writer], None], layer) -> None:
    writer = Writer()
    write(writer)
    found = compare_structure(canonical(layer), writer.model())
    assert found.equal, [str(each) for each in found.differences]
    assert len(operations(writer.model())) == (5 if isinstance(layer, Attention) else 1)


@pytest.mark.parametrize(
    ("write", "layer"),
    [
        (norm_over_time, NORM),
        (norm_with_epsilon_outside, NORM),
        (norm_of_the_root_mean_square, NORM),
        (norm_and_its_input, NORM),
        (norm_by_root, RMS),
        (norm_of_the_root_mean_square, RMSNorm()),
        (gelu_of_another_scale, ERF),
        (gelu_by_another_cube, TANH),
        (gelu_by_tanh, ERF),
        (gelu, TANH),
        (part_by_other_places, PART),
        (padded_with_another, PAD),
        (padded_on_the_other_side, PAD),
        (sum_divided_by_another, ReduceMean()),
        (mean_of_a_sum, ReduceMean(axis=2)),
        (last_feature, Select(index=-1)),
        (first, Select(index=-1)),
        (row, PositionEmbedding()),
        (attention_to_all, SEES_THE_PAST),
        (attention_to_all, Attention(heads=2)),
        (attention_to_the_past, SEES_ALL),
        (attention_that_is_not_scaled, SEES_ALL),
        (attention_scaled_by_the_size, SEES_ALL),
        (attention_of_features_that_lie_otherwise, SEES_ALL),
    ],
)
def test_something_else_is_not(write: Callable[[Writer], None], layer) -> None:
    writer = Writer()
    write(writer)
    assert not compare_structure(canonical(layer), writer.model()).equal


@pytest.mark.parametrize("write", [norm_by_root, norm_by_reciprocal, norm_of_squares])
def test_another_epsilon_is_named(write: Callable[[Writer, float], None]) -> None:
    writer = Writer()
    write(writer, 1e-5)
    (found,) = compare_structure(canonical(NORM), writer.model()).differences
    assert str(found).startswith("layer 'it': epsilon: expected 0.001, found 1e-05")


def norm_and_table(w: Writer, epsilon: float = 1e-3) -> None:
    """The bias and the table added up, as tf2onnx does."""
    norm_by_reciprocal(w, epsilon, BIAS + TABLE)


def norm_then_table(w: Writer, epsilon: float = 1e-3) -> None:
    norm_by_reciprocal(w, epsilon)
    w("Add", w.nodes[-1].output[0], TABLE)


def norm_and_a_number_each(w: Writer, epsilon: float = 1e-3) -> None:
    """What is added differs between samples, so it is no table."""
    norm_by_reciprocal(w, epsilon)
    w("Add", w.nodes[-1].output[0], w("Mul", "x", TABLE))


@pytest.mark.parametrize("write", [norm_and_table, norm_then_table])
@pytest.mark.parametrize("tables", [1, 2])
def test_tables_may_be_in_what_is_added_before(
    write: Callable[[Writer, float], None], tables: int
) -> None:
    writer = Writer()
    write(writer)
    wanted = canonical(NORM, *(PositionEmbedding(),) * tables)
    found = compare_structure(wanted, writer.model())
    assert found.equal, [str(each) for each in found.differences]
    assert [each.kind for each in operations(writer.model())] == [
        "LayerNormalization",
        "PositionEmbedding",
    ]


def test_a_table_that_is_not_there_or_not_wanted_is_a_difference() -> None:
    alone, both, others = Writer(), Writer(), Writer()
    norm_by_reciprocal(alone)
    norm_and_table(both)
    norm_and_a_number_each(others)
    table = PositionEmbedding()
    assert not compare_structure(canonical(NORM, table), alone.model()).equal
    assert not compare_structure(canonical(NORM), both.model()).equal
    assert not compare_structure(canonical(table, NORM), both.model()).equal
    assert not compare_structure(canonical(NORM, table), others.model()).equal
    different = Writer()
    norm_and_table(different, 1e-5)
    (found,) = compare_structure(canonical(NORM, table), different.model()).differences
    assert str(found).startswith("layer 'it': epsilon: expected 0.001, found 1e-05")


def test_a_normalisation_of_one_feature_is_its_bias() -> None:
    """Whatever is added to its variance: epsilon may be any number in it."""

    def one(feature: str | None = None) -> onnx.ModelProto:
        if feature is None:
            part = Slice(starts=(0, 2), ends=(4, 3))
            return canonical(part, NORM)
        w = Writer()
        x = w("Slice", "x", np.array([2]), np.array([3]), np.array([2]))
        moved = w("Sub", x, w("ReduceMean", x, axes=[2]))
        variance = w("ReduceMean", w("Mul", moved, moved), axes=[2])
        normal = w("Div", moved, w("Sqrt", w("Add", variance, 1e-3)))
        w("Add", w("Mul", normal, np.array([0.5])), np.array([1e-4]) if feature == "bias" else x)
        return w.model()

    assert compare_structure(one(), one("bias")).equal
    assert not compare_structure(one(), one("itself")).equal


def test_what_is_normalised_twice_is_two() -> None:
    """Of one feature the last one's bias is left, whatever the block is taken to begin at."""
    part = Slice(starts=(0, 2), ends=(4, 3))
    w = Writer()
    x = w("Slice", "x", np.array([2]), np.array([3]), np.array([2]))
    for epsilon in (1e-3, 1e-1):
        mean = w("ReduceMean", x, axes=[2])
        moved = w("Sub", x, mean)
        variance = w("ReduceMean", w("Mul", moved, moved), axes=[2])
        scale = w("Reciprocal", w("Sqrt", w("Add", variance, epsilon)))
        x = w("Add", w("Mul", x, scale), w("Mul", w("Neg", mean), scale))
    found = compare_structure(canonical(part, NORM, LayerNorm(epsilon=0.1)), w.model())
    assert found.equal, [str(each) for each in found.differences]


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_groups_that_are_not_trained_yet_are_those_of_their_channels(groups: int) -> None:
    """Their scales are ones, as those of the instances that they are written as."""
    nodes = (Node(name="norm", layer=GroupNorm(groups=groups)), Node(name="f", layer=Flatten()))
    model = Model(input=Input(shape=(4, 3, 2)), nodes=nodes)
    (found,) = operations(canonical_graph(model, initial_weights(model, 0)))
    kept = {"channels": 4, "groups": groups, "epsilon": 1e-5, "elements": 24}
    assert (found.kind, found.attributes) == ("GroupNormalization", kept)


def test_a_table_may_be_added_before_a_turn_or_after_it() -> None:
    turn, around = Transpose(axes=(2, 1)), PositionEmbedding()
    assert compare_structure(canonical(turn, around), canonical(around, turn)).equal
    part = Slice(starts=(0, 0), ends=(3, FEATURES))
    assert not compare_structure(canonical(part, around), canonical(around, part)).equal


def test_a_gelu_may_hold_the_scale_of_the_normalisation_after_it() -> None:
    def written(count: int) -> onnx.ModelProto:
        w = Writer()
        flat = w("Slice", w("Flatten", "x"), np.array([0]), np.array([6]), np.array([1]))
        half = w("Mul", flat, np.array([0.35, 1.5, -2.0, 0.5, 1.0, 0.1])[:count].repeat(6 // count))
        w("Mul", half, w("Add", w("Erf", w("Div", flat, ROOT)), 1.0))
        w("Add", w.nodes[-1].output[0], np.linspace(-1, 1, 6))
        return w.model()

    layers = Flatten(), Slice(starts=(0,), ends=(6,)), GELU()
    found = compare_structure(canonical(*layers, BatchNorm()), written(6))
    assert found.equal and found.unseen == ("it3",), [str(each) for each in found.differences]
    assert not compare_structure(canonical(*layers), written(6)).equal
    tanh = GELU(approximate="tanh")
    assert not compare_structure(canonical(*layers[:2], tanh, BatchNorm()), written(6)).equal
