"""Shapes that layers make, and what is said of those they cannot take."""

from __future__ import annotations

import math
import re

import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from workload_strategies import models

from dlb.catalogue import load_workload
from dlb.errors import ShapeError, WorkloadError
from dlb_conformance import random_models
from dlb_graph import workload as W
from dlb_graph.layers.windows import window_sizes
from dlb_graph.truth.canonical import canonical_graph
from dlb_graph.workload.initial import initial_weights
from dlb_graph.workload.model import without_defaults
from dlb_graph.workload.shapes import multiply_adds, trained_names

Shape = tuple[int, ...]

#: Layer, shape of its input, shape of its output, shapes of its parameters and states.
SHAPES: list[tuple[W.Layer, Shape, Shape, dict[str, Shape]]] = [
    (
        W.Conv(out_channels=6, kernel=(5, 5)),
        (1, 28, 28),
        (6, 24, 24),
        {"weight": (6, 1, 5, 5), "bias": (6,)},
    ),
    (
        W.Conv(out_channels=8, kernel=(3, 1), stride=(2, 1), pads=(1, 0, 0, 0), bias=False),
        (4, 9, 7),
        (8, 4, 7),
        {"weight": (8, 4, 3, 1)},
    ),
    (
        W.Conv(out_channels=4, kernel=(3, 3), dilation=(2, 2), groups=2),
        (2, 8, 8),
        (4, 4, 4),
        {"weight": (4, 1, 3, 3), "bias": (4,)},
    ),
    (
        W.ConvTranspose(
            out_channels=6,
            kernel=(3, 2),
            stride=(2, 3),
            pads=(0, 1, 1, 0),
            output_padding=(1, 2),
            dilation=(1, 2),
            groups=2,
        ),
        (4, 3, 2),
        (6, 7, 7),
        {"weight": (4, 3, 3, 2), "bias": (6,)},
    ),
    (
        W.ConvTranspose(out_channels=6, kernel=(3, 2, 1), stride=(2, 3, 1), groups=2, bias=False),
        (4, 3, 2, 5),
        (6, 7, 5, 5),
        {"weight": (4, 3, 3, 2, 1)},
    ),
    (
        W.Conv(
            out_channels=8, kernel=(3, 2, 1), stride=(2, 1, 1), pads=(1, 0, 0, 0, 1, 0), groups=2
        ),
        (4, 8, 5, 3),
        (8, 4, 5, 3),
        {"weight": (8, 2, 3, 2, 1), "bias": (8,)},
    ),
    (W.MaxPool(kernel=(2, 2, 2), stride=(2, 2, 1)), (3, 5, 7, 4), (3, 2, 3, 3), {}),
    (W.MaxPool(kernel=(2, 3), stride=(1, 2), dilation=(3, 2)), (3, 7, 9), (3, 4, 3), {}),
    (
        W.MaxPool(kernel=(2, 3), stride=(2, 2), dilation=(3, 2), pads=(1, 0, 0, 1), ceil_mode=True),
        (3, 7, 9),
        (3, 3, 4),
        {},
    ),
    (
        W.AveragePool(kernel=(2, 2, 2), stride=(2, 2, 2), pads=(1,) * 6, ceil_mode=True),
        (3, 3, 4, 5),
        (3, 2, 3, 3),
        {},
    ),
    (W.GlobalAveragePool(), (5, 2, 4, 3), (5, 1, 1, 1), {}),
    (
        W.BatchNorm(),
        (3, 2, 4, 4),
        (3, 2, 4, 4),
        dict.fromkeys(("scale", "bias", "mean", "variance"), (3,)),
    ),
    (W.GroupNorm(groups=2), (4, 3, 2, 2), (4, 3, 2, 2), {"scale": (4,), "bias": (4,)}),
    (W.PReLU(), (4, 3, 2, 2), (4, 3, 2, 2), {"slope": (4,)}),
    (W.GroupNorm(groups=2), (4, 3, 2), (4, 3, 2), {"scale": (4,), "bias": (4,)}),
    (W.RMSNorm(), (4, 3), (4, 3), {"scale": (3,)}),
    (W.PReLU(), (4, 3, 2), (4, 3, 2), {"slope": (4,)}),
    (W.PReLU(shared=True), (4, 3), (4, 3), {"slope": (1,)}),
    (W.MaxPool(kernel=(2, 2), stride=(2, 2)), (3, 7, 7), (3, 3, 3), {}),
    (W.MaxPool(kernel=(2, 2), stride=(2, 2), ceil_mode=True), (3, 7, 7), (3, 4, 4), {}),
    # The last window would lie in the padding alone.
    (
        W.AveragePool(kernel=(2, 2), stride=(2, 2), pads=(1, 1, 1, 1), ceil_mode=True),
        (3, 3, 3),
        (3, 2, 2),
        {},
    ),
    (W.GlobalAveragePool(), (5, 4, 3), (5, 1, 1), {}),
    (
        W.BatchNorm(),
        (3, 4, 4),
        (3, 4, 4),
        dict.fromkeys(("scale", "bias", "mean", "variance"), (3,)),
    ),
    (W.BatchNorm(), (7,), (7,), dict.fromkeys(("scale", "bias", "mean", "variance"), (7,))),
    (W.LRN(size=5), (8, 3, 3), (8, 3, 3), {}),
    (W.Flatten(), (2, 3, 4), (24,), {}),
    (W.Linear(out_features=10), (24,), (10,), {"weight": (10, 24), "bias": (10,)}),
    (W.Linear(out_features=10, bias=False), (5, 24), (5, 10), {"weight": (10, 24)}),
    (W.ReLU(), (3, 2, 2), (3, 2, 2), {}),
    (W.ReLU6(), (3, 2), (3, 2), {}),
    (W.Tanh(), (3,), (3,), {}),
    (W.Sigmoid(), (3,), (3,), {}),
    (W.HardSigmoid(), (3, 2), (3, 2), {}),
    (W.Dropout(rate=0.5), (3,), (3,), {}),
    (W.Pad(pads=(0, 1, 2, 3, 0, 4), value=-1.5), (2, 3, 4), (5, 4, 10), {}),
    (W.Slice(starts=(1, -3), ends=(6, -1), steps=(2, 1)), (6, 4), (3, 2), {}),
    (W.Slice(starts=(0,), ends=(3,)), (3,), (3,), {}),
    (W.Gather(axis=2, indices=(2, 0, -1, 2)), (5, 3), (5, 4), {}),
    (W.Mask(sizes=(1, 3), kept="a0", value=-1e30), (5, 3), (5, 3), {}),
    (W.Resize(sizes=(2, 8, 3)), (2, 4, 6), (2, 8, 3), {}),
    (W.Resize(sizes=(7, 4), mode="cubic", scales=(1.5, 1.0)), (5, 4), (7, 4), {}),
    # 6 times 5/6, rounded to float32, is 5 there, and less in float64.
    (W.Resize(sizes=(5,), scales=(0.8333333,)), (6,), (5,), {}),
    (
        W.LSTM(hidden=6),
        (9, 4),
        (9, 6),
        {"input_weight": (24, 4), "recurrent_weight": (24, 6), "bias": (24,)},
    ),
    (
        W.GRU(hidden=6, linear_before_reset=False),
        (9, 4),
        (9, 6),
        {"input_weight": (18, 4), "recurrent_weight": (18, 6), "bias": (18,)},
    ),
    (
        W.GRU(hidden=6, linear_before_reset=True),
        (9, 4),
        (9, 6),
        {"input_weight": (18, 4), "recurrent_weight": (18, 6), "bias": (2, 18)},
    ),
    (
        W.RNN(hidden=6),
        (9, 4),
        (9, 6),
        {"input_weight": (6, 4), "recurrent_weight": (6, 6), "bias": (6,)},
    ),
]


def model(layer: W.Layer, shape: Shape, kind: str = "real") -> W.Model:
    source = W.Input(shape=shape, kind=kind)  # type: ignore[arg-type]
    return W.Model(input=source, nodes=(W.Node(name="one", layer=layer),))


@pytest.mark.parametrize(("layer", "given_shape", "made", "parameters"), SHAPES)
def test_shapes(
    layer: W.Layer, given_shape: Shape, made: Shape, parameters: dict[str, Shape]
) -> None:
    single = model(layer, given_shape)
    assert W.infer_shapes(single) == {"input": given_shape, "one": made}
    assert W.parameter_shapes(single) == {
        f"one.{name}": shape for name, shape in parameters.items()
    }


def test_embedding() -> None:
    single = model(W.Embedding(entries=100, features=8), (20,), "index")
    assert W.infer_shapes(single)["one"] == (20, 8)
    assert W.parameter_shapes(single) == {"one.weight": (100, 8)}


def tied(out_features: int, features: int = 8, to: str = "table") -> W.Model:
    """A language model of 100 words, whose last layer is tied."""
    return W.Model(
        input=W.Input(shape=(20,), kind="index"),
        nodes=(
            W.Node(name="table", layer=W.Embedding(entries=100, features=8)),
            W.Node(name="hidden", layer=W.Linear(out_features=features)),
            W.Node(name="one", layer=W.Linear(out_features=out_features, tied_to=to)),
        ),
    )


def test_a_tied_weight_is_there_once() -> None:
    shapes = W.parameter_shapes(tied(100))
    assert [name for name in shapes if not name.startswith("hidden")] == [
        "table.weight",
        "one.bias",
    ]
    assert multiply_adds(tied(100)) == {"hidden": 20 * 8 * 8, "one": 20 * 100 * 8}
    assert initial_weights(tied(100), 0).keys() == shapes.keys()


def test_a_layer_is_tied_to_an_embedding_of_its_own_shape() -> None:
    with pytest.raises(ShapeError, match=re.escape("'one' (linear) needs a weight [99, 8], and")):
        W.infer_shapes(tied(99))
    with pytest.raises(ShapeError, match=re.escape("that of 'table', to which it is tied, is")):
        W.infer_shapes(tied(100, features=7))
    for name in ("elsewhere", "hidden", "one"):
        with pytest.raises(WorkloadError, match=f"'one': tied_to = '{name}' is not an embedding"):
            W.infer_shapes(tied(100, to=name))


def shared(*nodes: W.Node) -> W.Model:
    """A linear layer of eight features, and what is after it."""
    first = W.Node(name="one", layer=W.Linear(out_features=8))
    return W.Model(input=W.Input(shape=(8,)), nodes=(first, *nodes))


def test_the_parameters_of_a_shared_layer_are_there_once() -> None:
    again = W.Node(name="again", layer=W.Linear(out_features=8), weights_of="one")
    model = shared(again)
    assert W.parameter_shapes(model) == {"one.weight": (8, 8), "one.bias": (8,)}
    assert multiply_adds(model) == {"one": 64, "again": 64}
    assert initial_weights(model, 0).keys() == W.parameter_shapes(model).keys()


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (
            W.Node(name="two", layer=W.Linear(out_features=8), weights_of="three"),
            "not a layer before",
        ),
        (
            W.Node(name="two", layer=W.Linear(out_features=8), weights_of="two"),
            "not a layer before",
        ),
        (W.Node(name="two", layer=W.Linear(out_features=9), weights_of="one"), "another layer"),
        (
            W.Node(name="two", layer=W.Linear(out_features=8), inputs=("half",), weights_of="one"),
            "shape",
        ),
        (
            W.Node(name="two", layer=W.Linear(out_features=8), weights_of="again"),
            "of another itself",
        ),
        (W.Node(name="two", layer=W.Tanh(), weights_of="tanh"), "no parameters"),
        (W.Node(name="two", layer=W.BatchNorm(), weights_of="norm"), "running statistics"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_layer_is_shared_with_one_that_is_the_same(node: W.Node, reason: str) -> None:
    before = (
        W.Node(name="again", layer=W.Linear(out_features=8), weights_of="one"),
        W.Node(name="half", layer=W.Slice(starts=(0,), ends=(4,))),
        W.Node(name="tanh", layer=W.Tanh(), inputs=("again",)),
        W.Node(name="norm", layer=W.BatchNorm()),
    )
    with pytest.raises(WorkloadError, match=f"layer 'two': weights_of = .*{reason}"):
        W.infer_shapes(shared(*before, node))


def test_a_field_of_1_4_leaves_hashes_as_they_were() -> None:
    written = without_defaults(W.Linear(out_features=3))
    assert written == {"type": "linear", "out_features": 3}


@pytest.mark.parametrize("axes", [2, 3])
def test_sizes_that_are_left_out_are_those_of_the_kernels_axes(axes: int) -> None:
    left_out = W.Conv(out_channels=3, kernel=(2,) * axes)
    ones = W.Conv(
        out_channels=3,
        kernel=(2,) * axes,
        stride=(1,) * axes,
        pads=(0,) * 2 * axes,
        dilation=(1,) * axes,
    )
    assert left_out == ones
    written = without_defaults(ones)
    assert written == {"type": "conv", "out_channels": 3, "kernel": [2] * axes}


def test_a_dilation_that_is_left_out_leaves_hashes_of_poolings_as_they_were() -> None:
    layer = W.MaxPool(kernel=(2, 2), stride=(2, 2), dilation=(1, 1))
    assert without_defaults(layer) == {"type": "max_pool", "kernel": [2, 2], "stride": [2, 2]}


def test_multiply_adds_of_a_film() -> None:
    film = model(W.Conv(out_channels=6, kernel=(3, 2, 1), groups=2), (4, 5, 4, 3))
    assert multiply_adds(film) == {"one": 6 * (3 * 3 * 3) * 2 * (3 * 2 * 1)}


def test_states_are_not_trained() -> None:
    single = model(W.BatchNorm(), (3, 4, 4))
    assert W.state_names(single) == ("one.mean", "one.variance")
    assert trained_names(single) == ("one.scale", "one.bias")


def test_concat() -> None:
    branches = W.Model(
        input=W.Input(shape=(2, 4, 4)),
        nodes=(
            W.Node(name="a", layer=W.Conv(out_channels=3, kernel=(1, 1))),
            W.Node(name="b", layer=W.ReLU(), inputs=("input",)),
            W.Node(name="c", layer=W.Concat(axis=1), inputs=("a", "b")),
        ),
    )
    assert W.infer_shapes(branches)["c"] == (5, 4, 4)


#: Layer, shape, and what the message must say; each names the layer, its type and the shape.
MISFITS: list[tuple[W.Layer, Shape, str]] = [
    (W.Conv(out_channels=6, kernel=(5, 5)), (4, 4), "needs 3 axes besides the batch, not 2"),
    (W.Conv(out_channels=6, kernel=(5, 5)), (1, 4, 4), "kernel is larger than the padded input"),
    (W.Conv(out_channels=6, kernel=(3, 3), groups=4), (6, 8, 8), "groups = 4 must divide 6 input"),
    (W.Linear(out_features=10), (1, 28, 28), "put a flatten before it"),
    (W.ConvTranspose(out_channels=6, kernel=(3, 3)), (4, 4), "needs 3 axes besides the batch"),
    (W.ConvTranspose(out_channels=6, kernel=(3, 3), groups=4), (4, 2, 2), "6 output channels"),
    (
        W.ConvTranspose(out_channels=6, kernel=(1, 1), pads=(1, 0, 1, 0)),
        (4, 2, 2),
        "the pads leave out all",
    ),
    (W.MaxPool(kernel=(2, 2), stride=(2, 2)), (10,), "needs 3 axes"),
    (W.Conv(out_channels=6, kernel=(3, 3, 3)), (4, 8, 8), "needs 4 axes besides the batch, not 3"),
    (W.Conv(out_channels=6, kernel=(3, 3)), (4, 8, 8, 8), "needs 3 axes besides the batch, not 4"),
    (W.AveragePool(kernel=(2, 2, 2), stride=(2, 2, 2)), (4, 8, 8), "needs 4 axes"),
    (
        W.MaxPool(kernel=(2, 2), stride=(1, 1), pads=(1, 0, 1, 0), dilation=(2, 1)),
        (4, 1, 8),
        "a window would read nothing but padding",
    ),
    (
        W.MaxPool(kernel=(2, 2), stride=(4, 1), dilation=(3, 1), ceil_mode=True),
        (4, 6, 8),
        "its last window would reach 2 places past the end, which must be fewer than the kernel's 2",
    ),
    (W.BatchNorm(), (5, 4), "needs 1 or 3 or 4 axes"),
    (W.LayerNorm(), (5, 4, 4), "needs 1 or 2 axes"),
    (W.RMSNorm(), (5, 4, 4), "needs 1 or 2 axes"),
    (W.PReLU(), (5, 4), "a slope for each channel is of features or a map"),
    (W.GroupNorm(groups=2), (6, 4), "needs 1 or 3 or 4 axes"),
    (W.GroupNorm(groups=4), (6, 2, 2), "groups = 4 must divide 6 channels"),
    (W.GroupNorm(groups=6), (6,), "each of 6 groups has one number"),
    (W.GroupNorm(groups=6), (6, 1, 1), "each of 6 groups has one number"),
    (W.Reshape(shape=(2, 4)), (3, 2), "holds 8 numbers, not 6"),
    (W.Reshape(shape=(1, 2, 3, 1, 1, 1)), (3, 2), "at most 5 axes besides the batch"),
    (W.Transpose(axes=(1, 2)), (3, 4, 5), "must be 1 (the batch is 0) to 3, each once"),
    (W.Transpose(axes=(0, 1)), (3, 4), "must be 1 (the batch is 0) to 2, each once"),
    (W.ReduceMean(axis=0), (3, 4), "must be 1 (the batch is 0) or 2"),
    (W.ReduceMean(), (3, 4, 5), "needs 2 axes"),
    (W.Select(index=3), (3, 4), "index = 3 is not one of 3 along axis 1"),
    (W.Select(axis=2, index=-5), (3, 4), "index = -5 is not one of 4 along axis 2"),
    (W.PositionEmbedding(), (3,), "needs 2 axes"),
    (W.Pad(pads=(1, 1)), (3, 4), "needs 4 numbers: before each of 2 axes, then after each"),
    (W.Slice(starts=(0,), ends=(3, 4)), (3, 4), "starts = (0,) needs 2 numbers, one per axis"),
    (W.Slice(starts=(0,), ends=(3,), steps=(1, 1)), (3,), "steps = (1, 1) needs 1 numbers"),
    (
        W.Slice(starts=(2,), ends=(2,)),
        (3,),
        "from 2 to 2 is not a range in axis 1, which has size 3",
    ),
    (
        W.Slice(starts=(0, 1), ends=(3, 5)),
        (3, 4),
        "from 1 to 5 is not a range in axis 2, which has size 4",
    ),
    (
        W.Slice(starts=(-4,), ends=(3,)),
        (3,),
        "from -4 to 3 is not a range in axis 1, which has size 3",
    ),
    (W.Gather(axis=3, indices=(0,)), (3, 4), "axis = 3 must be from 1 (the batch is 0) to 2"),
    (W.Gather(indices=(0, 3)), (3, 4), "index 3 is not one of 3 along axis 1"),
    (W.Gather(axis=2, indices=(-5,)), (3, 4), "index -5 is not one of 4 along axis 2"),
    (
        W.Mask(sizes=(2, 4), kept="f0", value=0.0),
        (3, 4),
        "sizes = [2, 4] needs, for each axis of a sample, its size or 1",
    ),
    (W.Resize(sizes=(8,)), (3, 4), "sizes = [8] needs 2 sizes, one for each axis of a sample"),
    (W.Resize(sizes=(3, 4)), (3, 4), "it has these sizes already"),
    (
        W.Resize(sizes=(3, 8), scales=(1.0, 1.5)),
        (3, 4),
        "scales = [1.0, 1.5] makes sizes [3, 6], not [3, 8]",
    ),
    (W.Attention(heads=4), (3, 6), "heads = 4 must divide 6 features"),
    (W.Attention(heads=2), (6,), "needs 2 axes"),
    (W.LSTM(hidden=4), (10,), "needs 2 axes"),
    (W.GRU(hidden=4, linear_before_reset=True), (3, 4, 4), "needs 2 axes"),
    (W.RNN(hidden=4), (10,), "needs 2 axes"),
    (W.Add(), (3,), "needs two inputs of one shape"),
    (W.Mul(), (3,), "needs two inputs of one shape, or a map"),
    (W.Concat(axis=1), (3,), "needs two inputs or more"),
    (W.Embedding(entries=5, features=2), (3, 4), "needs 1 axes"),
    (W.Linear(out_features=2**31), (3,), "no size may be above"),
]


@pytest.mark.parametrize(("layer", "shape", "says"), MISFITS)
def test_misfits_name_layer_and_shape(layer: W.Layer, shape: Shape, says: str) -> None:
    with pytest.raises(ShapeError) as raised:
        W.infer_shapes(model(layer, shape))
    told = str(raised.value)
    assert f"layer 'one' ({W.type_name(layer)})" in told
    assert str(list(shape)) in told or "no size" in told
    assert says in told


#: Attributes that are out of range whatever the shape.
ATTRIBUTES: list[tuple[W.Layer, str]] = [
    (W.Conv(out_channels=0, kernel=(1, 1)), "out_channels = 0 must be at least 1"),
    (W.Conv(out_channels=1, kernel=(1, 0)), "kernel = (1, 0) must be at least 1"),
    (W.Conv(out_channels=1, kernel=(1, 1), pads=(0, 0, -1, 0)), "must not be negative"),
    (W.MaxPool(kernel=(2, 2), stride=(2, 2), pads=(2, 0, 0, 0)), "smaller than kernel"),
    (
        W.ConvTranspose(out_channels=1, kernel=(1, 1), output_padding=(0, 1)),
        "output_padding = (0, 1) must be at least 0 and below stride = (1, 1)",
    ),
    (W.GRU(hidden=0, linear_before_reset=True), "hidden = 0 must be at least 1"),
    (W.Conv(out_channels=1, kernel=(3,)), "kernel = (3,) must have 2 or 3 numbers"),
    (W.ConvTranspose(out_channels=1, kernel=(3,) * 4), "must have 2 or 3 numbers"),
    (W.Conv(out_channels=1, kernel=(3,) * 3, stride=(1, 1)), "stride = (1, 1) needs 3 numbers"),
    (W.Conv(out_channels=1, kernel=(3,) * 3, pads=(1,) * 4), "pads = (1, 1, 1, 1) needs 6 numbers"),
    (W.MaxPool(kernel=(2, 2), stride=(2, 2), dilation=(2,)), "dilation = (2,) needs 2 numbers"),
    (
        W.MaxPool(kernel=(2, 2), stride=(2, 2), dilation=(1, 0)),
        "dilation = (1, 0) must be at least 1",
    ),
    (W.GroupNorm(groups=0), "groups = 0 must be at least 1"),
    (W.GroupNorm(groups=1, epsilon=0.0), "epsilon = 0.0 must be above 0"),
    (W.RMSNorm(epsilon=-1e-5), "epsilon = -1e-05 must be above 0"),
    (W.PReLU(init=float("inf")), "init = inf must be finite"),
    (W.Reshape(shape=()), "shape is empty"),
    (W.Reshape(shape=(64, 0)), "must be at least 1"),
    (W.Transpose(axes=()), "axes is empty"),
    (W.Pad(pads=()), "pads is empty"),
    (W.Pad(pads=(0, -1)), "pads = (0, -1) must not be negative"),
    (W.Pad(pads=(0, 1), value=float("inf")), "value = inf must be finite"),
    (W.Slice(starts=(), ends=()), "starts is empty"),
    (W.Slice(starts=(3,), ends=(0,), steps=(-1,)), "steps = (-1,) must be at least 1"),
    (W.Gather(indices=()), "indices is empty"),
    (W.Mask(sizes=(3,), kept="zz", value=0.0), "kept must be hexadecimal text"),
    (W.Mask(sizes=(3,), kept="a00", value=0.0), "kept must be hexadecimal text"),
    (
        W.Mask(sizes=(9,), kept="a0", value=0.0),
        "kept has 8 bits; sizes = [9] needs 9, and zeros up to a multiple of eight",
    ),
    (
        W.Mask(sizes=(3,), kept="a1", value=0.0),
        "kept has 8 bits; sizes = [3] needs 3, and zeros up to a multiple of eight",
    ),
    (W.Mask(sizes=(3,), kept="e0", value=0.0), "kept keeps every number; leave the layer out"),
    (W.Mask(sizes=(3,), kept="00", value=0.0), "kept keeps no number; leave the layer out"),
    (W.Mask(sizes=(3,), kept="a0", value=float("-inf")), "value = -inf must be finite"),
    (W.Mask(sizes=(3,), kept="a0", value=-1e39), "value = -1e+39 must be finite in float32"),
    (W.Resize(sizes=()), "sizes = [] needs a size of at least 1 for each axis of a sample"),
    (W.Resize(sizes=(1, 0, 8)), "sizes = [1, 0, 8] needs a size of at least 1"),
    (
        W.Resize(sizes=(2,), scales=(1.0, 2.0)),
        "scales = [1.0, 2.0] needs a number for each of 1 axes",
    ),
    (W.Resize(sizes=(2,), scales=(-1.0,)), "scales = [-1.0] must be finite and above 0"),
    (W.Resize(sizes=(2,), exclude_outside=True), "exclude_outside is of mode 'cubic'"),
    (W.Attention(heads=0), "heads = 0 must be at least 1"),
    (W.LRN(size=4), "size = 4 must be odd"),
    (W.Dropout(rate=1.0), "rate = 1.0 must be in [0, 1)"),
    (W.BatchNorm(momentum=1.5), "momentum = 1.5 must be in [0, 1]"),
    (W.BatchNorm(epsilon=float("nan")), "epsilon = nan must be finite"),
]


@pytest.mark.parametrize(("layer", "says"), ATTRIBUTES)
def test_attributes_out_of_range(layer: W.Layer, says: str) -> None:
    with pytest.raises(WorkloadError, match=re.escape(says)):
        W.infer_shapes(model(layer, (1, 8, 8)))


#: Graphs that hang together wrongly.
GRAPHS = {
    "no layer": ((), "no layers"),
    "twice": (
        (W.Node(name="a", layer=W.ReLU()), W.Node(name="a", layer=W.ReLU())),
        "layer 'a': a name must be unique",
    ),
    "the input's name": ((W.Node(name="input", layer=W.ReLU()),), "layer 'input'"),
    "a dot": ((W.Node(name="a.b", layer=W.ReLU()),), "layer 'a.b'"),
    "forward": (
        (
            W.Node(name="a", layer=W.ReLU(), inputs=("b",)),
            W.Node(name="b", layer=W.ReLU()),
        ),
        "its input 'b' is not a layer before it; before it are input",
    ),
    "itself": ((W.Node(name="a", layer=W.ReLU(), inputs=("a",)),), "its input 'a'"),
    "two inputs": (
        (W.Node(name="a", layer=W.ReLU(), inputs=("input", "input")),),
        "takes one input, not 2",
    ),
}


@pytest.mark.parametrize(("nodes", "says"), GRAPHS.values(), ids=list(GRAPHS))
def test_graphs(nodes: tuple[W.Node, ...], says: str) -> None:
    with pytest.raises(WorkloadError, match=re.escape(says)):
        W.infer_shapes(W.Model(input=W.Input(shape=(4,)), nodes=nodes))


def test_integers_need_an_embedding() -> None:
    with pytest.raises(ShapeError, match="put an embedding between them"):
        W.infer_shapes(model(W.ReLU(), (5,), "index"))


@given(st.data())
@settings(max_examples=200)
def test_windows_are_those_that_can_be_counted(data: st.DataObject) -> None:
    """The size is the number of starts whose window, and none beyond, lies in the padded input."""
    size, kernel, stride, dilation = (data.draw(st.integers(1, n)) for n in (12, 4, 4, 3))
    before, after = (data.draw(st.integers(0, kernel - 1)) for _ in range(2))
    ceil = data.draw(st.booleans())
    span = dilation * (kernel - 1) + 1
    starts = range(0, size + before + after, stride)
    if span > size + before + after:
        counted = 0
    elif ceil:
        # Each start is either reached by a whole window, or is the one after the last such.
        whole = [start for start in starts if start + span <= size + before + after]
        left = size + before + after - (whole[-1] + span)
        extra = left > 0 and whole[-1] + stride < size + before
        counted = len(whole) + extra
        if whole[-1] >= size + before:
            counted -= 1
    else:
        counted = sum(start + span <= size + before + after for start in starts)
    found = window_sizes(
        (size, 1), (kernel, 1), (stride, 1), (before, 0, after, 0), (dilation, 1), ceil
    )
    assert found[0] == counted


@given(models())
@settings(max_examples=50)
def test_every_layer_has_a_shape(drawn: W.Model) -> None:
    shapes = W.infer_shapes(drawn)
    assert list(shapes) == [drawn.input.name, *(node.name for node in drawn.nodes)]
    assert all(size > 0 for shape in shapes.values() for size in shape)


def test_multiply_adds_of_a_known_network() -> None:
    """LeNet-5 by hand: places times weights."""
    assert multiply_adds(load_workload("lenet5").model) == {
        "conv1": 28 * 28 * 32 * 25,
        "conv2": 14 * 14 * 64 * 32 * 25,
        "fc1": 3136 * 512,
        "fc2": 512 * 10,
    }


# Without average pooling: where it rounds up on one axis, leaves a window out on the other and counts
# its padding, onnx infers another size than its own operator makes.
@given(random_models.models(frozenset(W.LAYERS) - {"average_pool"}))
@settings(max_examples=60)
def test_multiply_adds_are_those_of_the_graph(model: W.Model) -> None:
    """Counted again from the ONNX graph: its initialisers, and what shape inference says."""
    graph = onnx.shape_inference.infer_shapes(
        canonical_graph(model, initial_weights(model, 0)), strict_mode=True, data_prop=True
    ).graph
    shapes = {
        one.name: [size.dim_value for size in one.type.tensor_type.shape.dim]
        for one in (*graph.value_info, *graph.output, *graph.input)
    }
    # Weights of some layers are turned first.
    sizes = {**shapes, **{one.name: list(one.dims) for one in graph.initializer}}
    total = 0
    for node in graph.node:
        if node.op_type == "Conv":
            total += math.prod(shapes[node.output[0]][2:]) * math.prod(sizes[node.input[1]])
        elif node.op_type == "ConvTranspose":
            total += math.prod(shapes[node.input[0]][2:]) * math.prod(sizes[node.input[1]])
        elif node.op_type in ("Gemm", "MatMul"):
            total += math.prod(shapes[node.output[0]][1:]) * sizes[node.input[0]][-1]
        elif node.op_type in ("LSTM", "GRU", "RNN"):
            steps = shapes[node.output[0]][0]
            total += steps * sum(math.prod(sizes[name]) for name in node.input[1:3])
    assert total == sum(multiply_adds(model).values())
