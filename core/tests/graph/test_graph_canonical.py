"""The canonical graph: valid ONNX, shaped as the description says, found by layer names."""

from __future__ import annotations

import gc
import time
from functools import partial

import numpy as np
import onnx
import pytest
from exported_models import MODELS
from onnx.reference import ReferenceEvaluator

from dlb.errors import RequestError, UnsupportedError, WorkloadError
from dlb_conformance.layer_cases import BY_LAYER
from dlb_graph.layers import type_name
from dlb_graph.truth.canonical import canonical_graph, layers_graph, loss_graph
from dlb_graph.truth.evaluate import Evaluator, evaluate
from dlb_graph.workload import (
    GELU,
    GRU,
    LAYERS,
    RNN,
    Attention,
    BatchNorm,
    Binary,
    ConvTranspose,
    Elementwise,
    Embedding,
    Flatten,
    Gather,
    GatherElements,
    GroupNorm,
    HardSigmoid,
    Input,
    LayerNorm,
    Linear,
    Mask,
    MatMul,
    Model,
    Mul,
    Node,
    Pad,
    PositionEmbedding,
    PReLU,
    Reduce,
    ReduceMean,
    ReLU6,
    Reshape,
    Resize,
    RMSNorm,
    Scale,
    Select,
    Shift,
    Sigmoid,
    Slice,
    Softmax,
    SoftmaxCrossEntropy,
    TopK,
    Transpose,
    Where,
    infer_shapes,
    parameter_shapes,
)
from dlb_graph.workload.files import load
from dlb_graph.workload.initial import initial_weights

EXTRA = Model(
    input=Input(shape=(4,)),
    nodes=(
        Node(name="fc", layer=Linear(out_features=3)),
        Node(name="sigmoid", layer=Sigmoid()),
        Node(name="bn", layer=BatchNorm()),
        Node(name="ln", layer=LayerNorm()),
        Node(name="rms", layer=RMSNorm()),
        Node(name="gelu", layer=GELU()),
        Node(name="softplus", layer=Elementwise(function="softplus")),
        Node(name="by_tanh", layer=GELU(approximate="tanh")),
        Node(name="relu6", layer=ReLU6()),
        Node(name="hard", layer=HardSigmoid()),
        Node(name="product", layer=Mul(), inputs=("relu6", "fc")),
    ),
)
ENLARGED = Model(
    input=Input(shape=(4, 3, 2)),
    nodes=(
        Node(
            name="up",
            layer=ConvTranspose(
                out_channels=6,
                kernel=(3, 2),
                stride=(2, 3),
                pads=(0, 1, 1, 0),
                output_padding=(1, 0),
                dilation=(1, 2),
                groups=2,
            ),
        ),
        Node(name="groups", layer=GroupNorm(groups=3)),
        Node(name="instances", layer=GroupNorm(groups=6)),
        Node(name="slopes", layer=PReLU()),
        Node(name="flat", layer=Flatten()),
        Node(name="slope", layer=PReLU(shared=True)),
        Node(name="few", layer=GroupNorm(groups=2)),
        Node(name="logits", layer=Linear(out_features=3)),
    ),
)
PATCHES = Model(
    input=Input(shape=(2, 4, 4)),
    nodes=(
        Node(name="rows", layer=Reshape(shape=(4, 8))),
        Node(name="tokens", layer=Transpose(axes=(2, 1))),
        Node(name="placed", layer=PositionEmbedding()),
        Node(name="attention", layer=Attention(heads=2, causal=True)),
        Node(name="shares", layer=Softmax(axis=2)),
        Node(name="most", layer=Reduce(function="max", axes=(1,), keepdims=True)),
        Node(name="total", layer=Reduce(function="sum", axes=(1,), keepdims=True)),
        Node(name="less", layer=Binary(function="sub"), inputs=("shares", "most")),
        Node(name="turned", layer=Transpose(axes=(2, 1)), inputs=("less",)),
        Node(name="products", layer=MatMul(), inputs=("shares", "turned")),
        Node(name="masked", layer=Mask(sizes=(8, 1), kept="d9", value=-3.4028234663852886e38)),
        Node(name="shorter", layer=Resize(sizes=(4, 3), mode="cubic"), inputs=("products",)),
        Node(name="longer", layer=Resize(sizes=(6, 4), scales=(1.6, 1.5)), inputs=("shorter",)),
        Node(name="scaled", layer=Scale(sizes=(1, 8)), inputs=("products",)),
        Node(name="shifted", layer=Shift(sizes=(8, 1))),
        Node(name="whole", layer=Elementwise(function="round")),
        Node(name="chosen", layer=Where(), inputs=("whole", "shifted", "scaled")),
        Node(name="ranked", layer=TopK(axis=1, k=3), inputs=("scaled",)),
        Node(name="found", layer=GatherElements(axis=1), inputs=("chosen", "ranked")),
        Node(name="mean", layer=ReduceMean()),
        Node(name="last", layer=Select(index=-1), inputs=("placed",)),
    ),
)
TIED = Model(
    input=Input(shape=(5,), kind="index"),
    nodes=(
        Node(name="table", layer=Embedding(entries=50, features=4)),
        Node(name="padded", layer=Pad(pads=(1, 0, 2, 1), value=0.5)),
        Node(name="part", layer=Slice(starts=(0, -4), ends=(8, 5), steps=(2, 1))),
        Node(name="again", layer=Gather(indices=(2, 0, -1, 2))),
        Node(name="logits", layer=Linear(out_features=50, tied_to="table")),
    ),
)
STEPS = Model(
    input=Input(shape=(4, 3)),
    nodes=(
        Node(name="first", layer=GRU(hidden=5, linear_before_reset=False)),
        Node(name="between", layer=RNN(hidden=3, activation="relu")),
        Node(name="last", layer=GRU(hidden=2, linear_before_reset=True)),
    ),
)
ALL = {
    **MODELS,
    "extra": EXTRA,
    "enlarged": ENLARGED,
    "patches": PATCHES,
    "tied": TIED,
    "steps": STEPS,
}
_HAD = {type_name(node.layer) for model in ALL.values() for node in model.nodes}
ALL |= {kind: next(iter(cases.values())) for kind, cases in BY_LAYER.items() if kind not in _HAD}


def given(model: Model, batch: int = 3):
    random = np.random.default_rng(0)
    if model.input.kind == "index":
        return {model.input.name: random.integers(0, 11, size=(batch, *model.input.shape))}
    return {model.input.name: random.normal(size=(batch, *model.input.shape))}


def test_these_models_have_every_layer_type():
    used = {type(node.layer) for model in ALL.values() for node in model.nodes}
    assert used == set(LAYERS.values())


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ALL)
def test_graph_is_valid_and_has_every_layers_value(name, dtype, training):
    model = ALL[name]
    weights = initial_weights(model, 0)
    graph = canonical_graph(model, weights, dtype=dtype, outputs="layers", training=training)
    onnx.checker.check_model(graph, full_check=True)
    assert (graph.ir_version, graph.opset_import[0].version) == (8, 17)
    nodes = {node.name for node in graph.graph.node}
    assert len(nodes) == len(graph.graph.node) and {node.name for node in model.nodes} <= nodes
    held = {each.name: tuple(each.dims) for each in graph.graph.initializer}
    shapes = parameter_shapes(model)
    assert {each: held[each] for each in shapes} == shapes
    assert all("/" in each for each in set(held) - set(shapes))
    found = evaluate(graph, given(model))
    expected = infer_shapes(model)
    layers = [node.name for node in model.nodes]
    assert list(found)[: len(layers)] == layers
    for layer in layers:
        assert found[layer].shape == (3, *expected[layer])
        assert found[layer].dtype == np.dtype(dtype)
    states = [each for each in found if each.endswith("/running")]
    norms = sum(isinstance(node.layer, BatchNorm) for node in model.nodes)
    assert len(states) == (2 * norms if training else 0)


@pytest.mark.parametrize("name", ALL)
def test_onnx_infers_the_shapes_that_dlb_does(name):
    model = ALL[name]
    graph = onnx.shape_inference.infer_shapes(
        canonical_graph(model, initial_weights(model, 0)), strict_mode=True, data_prop=True
    )
    values = [*graph.graph.value_info, *graph.graph.output]
    inferred = {
        each.name: [dim.dim_value for dim in each.type.tensor_type.shape.dim][1:] for each in values
    }
    for node in model.nodes:
        assert inferred[node.name] == list(infer_shapes(model)[node.name])


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_graph_is_valid(name, smoothing):
    model = ALL[name]
    by = SoftmaxCrossEntropy(label_smoothing=smoothing)
    graph = loss_graph(model, initial_weights(model, 0), training=True, loss=by)
    onnx.checker.check_model(graph, full_check=True)
    labels = np.zeros((3, *infer_shapes(model)[model.nodes[-1].name][:-1]), np.int64)
    found = evaluate(graph, {**given(model), "labels": labels})
    assert next(iter(found)) == "loss" and found["loss"].shape == ()


def test_dropout_is_the_identity_and_at_rate_0_in_training():
    model = MODELS["branches"]
    for training, rate in ((False, 0.4), (True, 0.0)):
        weights = initial_weights(model, 0)
        graph = canonical_graph(
            model, weights, dtype="float64", outputs="layers", training=training
        )
        (held,) = (t for t in graph.graph.initializer if t.name == "dropout/rate")
        assert onnx.numpy_helper.to_array(held) == rate
        found = evaluate(graph, given(model))
        assert np.array_equal(found["dropout"], found["concat"])


@pytest.mark.parametrize("alone", [False, True])
def test_dropout_multiplies_by_its_mask_in_training_alone(alone: bool):
    model, inputs = MODELS["branches"], given(MODELS["branches"])
    weights = initial_weights(model, 0)
    mask = np.random.default_rng(1).integers(0, 2, (3, *infer_shapes(model)["dropout"])) * 1.0
    for training in (False, True):
        options = {"dtype": "float64", "training": training, "masks": {"dropout": mask}}
        if alone:
            graph = layers_graph(model, weights, **options)
            values = evaluate(
                canonical_graph(model, weights, dtype="float64", outputs="layers"), inputs
            )
            read = [value.name for value in graph.graph.input]
            found = evaluate(
                graph, {n: {**inputs, **values}[n.removeprefix("given/")] for n in read}
            )
            before = values["concat"]
        else:
            graph = canonical_graph(model, weights, outputs="layers", **options)
            found = evaluate(graph, inputs)
            before = found["concat"]
        onnx.checker.check_model(graph, full_check=True)
        expected = before * mask / (1 - 0.4) if training else before
        assert np.array_equal(found["dropout"], expected)


def test_a_changed_initialiser_can_be_fed_and_is_worth_a_changed_weight():
    """What finite differences do, for the parameters that reach their operator by others too."""
    for name, parameter in (
        ("tokens", "lstm.bias"),
        ("tokens", "fc.weight"),
        ("steps", "last.bias"),
        ("lenet", "fc1.bias"),
        ("tied", "table.weight"),
    ):
        model = ALL[name]
        weights = initial_weights(model, 0)
        moved = {**weights, parameter: weights[parameter] + 0.25}
        runner = Evaluator(canonical_graph(model, weights, dtype="float64"))
        expected = evaluate(canonical_graph(model, moved, dtype="float64"), given(model))
        found = runner.run({**given(model), parameter: moved[parameter]})
        last = model.nodes[-1].name
        assert np.array_equal(found[last], expected[last])
        assert not np.array_equal(runner.run(given(model))[last], expected[last])


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", ALL)
def test_a_graph_that_is_given_its_weights_computes_the_same(name, training):
    """Every layer, every layer alone, and the loss; nothing of the weights is in the graph."""
    model = ALL[name]
    weights, inputs = initial_weights(model, 0), given(model)
    options = {"dtype": "float64", "training": training}
    shapes = infer_shapes(model)
    labels = np.zeros((3, *shapes[model.nodes[-1].name][:-1]), np.int64)
    values = evaluate(canonical_graph(model, weights, outputs="layers", **options), inputs)
    fed = {**{f"given/{key}": one for key, one in {**values, **inputs}.items()}, **inputs}
    fed |= {"labels": labels}
    for make in (
        partial(canonical_graph, outputs="layers"),
        partial(loss_graph, outputs="layers"),
        layers_graph,
    ):
        held, bare = make(model, weights, **options), make(model, None, **options)
        names = [value.name for value in held.graph.input]
        assert [value.name for value in bare.graph.input] == [*names, *weights]
        assert not {each.name for each in bare.graph.initializer} & set(weights)
        wanted = evaluate(held, {key: fed[key] for key in names})
        found = evaluate(bare, {**{key: fed[key] for key in names}, **weights})
        assert list(found) == list(wanted)
        for key, value in wanted.items():
            assert np.array_equal(found[key], value), key


def test_padded_cut_and_gathered_in_numpys_words():
    weights = initial_weights(TIED, 0)
    graph = canonical_graph(TIED, weights, dtype="float64", outputs="layers")
    found = evaluate(graph, given(TIED))
    around = ((0, 0), (1, 2), (0, 1))
    padded = np.pad(found["table"], around, constant_values=0.5)
    assert np.array_equal(found["padded"], padded)
    assert np.array_equal(found["part"], padded[:, 0:8:2, -4:5])
    assert np.array_equal(found["again"], found["part"][:, [2, 0, -1, 2]])
    table = weights["table.weight"].astype(np.float64)
    assert np.allclose(found["logits"], found["again"] @ table.T + weights["logits.bias"])


def test_real_attributes_are_the_decimals_that_were_written():
    """epsilon = 1e-5 as float32 is 9.99999974e-06, which float64 would show."""
    model = Model(input=Input(shape=(1,)), nodes=(Node(name="bn", layer=BatchNorm()),))
    weights = {"bn.scale": [1.0], "bn.bias": [0.0], "bn.mean": [0.0], "bn.variance": [0.0]}
    graph = canonical_graph(model, weights, dtype="float64")
    found = evaluate(graph, {"input": np.ones((1, 1))})["bn"]
    assert found[0, 0] == 1 / np.sqrt(1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop("fc.bias"), r"missing \['fc.bias'\]"),
        (lambda w: w.update({"fc.gain": 1}), r"unknown \['fc.gain'\]"),
        (lambda w: w.update({"fc.bias": np.zeros(4)}), r"'fc.bias' has shape \[4\]"),
    ],
)
def test_weights_of_another_model_are_refused(change, message):
    weights = initial_weights(EXTRA, 0)
    change(weights)
    with pytest.raises(WorkloadError, match=message):
        canonical_graph(EXTRA, weights)


def test_digits_that_onnx_would_lose_are_refused():
    layer = BatchNorm(epsilon=0.123456789012)
    model = Model(input=Input(shape=(1,)), nodes=(Node(name="bn", layer=layer),))
    with pytest.raises(WorkloadError, match=r"layer 'bn': epsilon = 0.123456789012 .* 0.12345679"):
        canonical_graph(model, initial_weights(model, 0))


def test_a_layer_called_loss_is_refused():
    taken = Model(input=Input(shape=(2, 3, 3)), nodes=(Node(name="loss", layer=Flatten()),))
    with pytest.raises(WorkloadError, match="'loss' is a reserved name of the loss"):
        loss_graph(taken, {})


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "missing: input"),
        ({"input": np.zeros((2, 4)), "other": 1}, "unknown: other"),
        ({"input": np.zeros((2, 5))}, r"shape \[2, 5\]; the graph reads \['N', 4\]"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(inputs, message):
    with pytest.raises(RequestError, match=message):
        evaluate(canonical_graph(EXTRA, initial_weights(EXTRA, 0)), inputs)


def test_an_operator_without_a_reference_is_named():
    graph = canonical_graph(EXTRA, initial_weights(EXTRA, 0))
    graph.graph.node[1].op_type = "Sigmoide"
    with pytest.raises(UnsupportedError, match="Sigmoide"):
        evaluate(graph, given(EXTRA))


def test_a_graph_that_was_evaluated_goes_at_once():
    """Not when Python comes to look for circles: it may hold gigabytes."""
    graph = canonical_graph(EXTRA, initial_weights(EXTRA, 0))

    def runners():
        return sum(isinstance(each, ReferenceEvaluator) for each in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = runners()
        evaluate(graph, given(EXTRA))
        assert runners() == before
    finally:
        gc.enable()


def test_lenet5_is_evaluated_within_a_second():
    model = load("lenet5").model
    runner = Evaluator(loss_graph(model, initial_weights(model, 0), outputs="layers"))
    inputs = {**given(model, 16), "labels": np.arange(16) % 10}
    runner.run(inputs)
    taken = []
    for _ in range(3):
        start = time.perf_counter()
        runner.run(inputs)
        taken.append(time.perf_counter() - start)
    assert min(taken) < 1
