"""The neutral evaluator against plain loops (float64) and ONNX Runtime (float32)."""

from __future__ import annotations

import math

import numpy as np
import onnxruntime
import operator_loops as loops
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from packaging.version import Version

from dlb.errors import ShapeError, WorkloadError
from dlb_graph.layers import Pass
from dlb_graph.truth.canonical import canonical_graph, loss_graph
from dlb_graph.truth.evaluate import evaluate
from dlb_graph.truth.runtime import run_model
from dlb_graph.workload import (
    GRU,
    LRN,
    LSTM,
    RNN,
    AveragePool,
    BatchNorm,
    Conv,
    ConvTranspose,
    GroupNorm,
    HardSigmoid,
    Input,
    Linear,
    MaxPool,
    Model,
    Node,
    Sigmoid,
    Softmax,
    SoftmaxCrossEntropy,
    infer_shapes,
    parameter_shapes,
)

often = settings(max_examples=60, suppress_health_check=list(HealthCheck))
small = st.integers(1, 3)
pair = st.tuples(small, small)
pad = st.integers(0, 2)
pads = st.tuples(pad, pad, pad, pad)
maps = st.tuples(st.integers(1, 4), st.integers(3, 8), st.integers(3, 8))


def single(layer, shape) -> Model:
    model = Model(input=Input(shape=shape), nodes=(Node(name="layer", layer=layer),))
    try:
        infer_shapes(model)
    except (ShapeError, WorkloadError):
        assume(False)
    return model


def drawn(model: Model, seed: int = 0, batch: int = 2):
    random = np.random.default_rng(seed)
    weights = {
        name: np.abs(random.normal(size=shape)) + 0.1
        if name.endswith("variance")
        else random.normal(size=shape)
        for name, shape in parameter_shapes(model).items()
    }
    return random.normal(size=(batch, *model.input.shape)), weights


def both(model: Model, expected, x, weights, runtime: bool = True) -> None:
    """The evaluator agrees with the loops to rounding, and so does ONNX Runtime in float32."""
    found = evaluate(canonical_graph(model, weights, dtype="float64"), {"input": x})["layer"]
    assert found.dtype == np.float64
    assert found.shape == (len(x), *infer_shapes(model)["layer"]) == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)
    if not runtime:
        return
    single_precision = canonical_graph(model, weights, dtype="float32").SerializeToString()
    (second,) = run_model(single_precision, {"input": x.astype(np.float32)}, threads=1)
    np.testing.assert_allclose(second, expected, rtol=1e-4, atol=1e-4)


@often
@given(st.data())
def test_conv(data):
    groups = data.draw(st.sampled_from([1, 2]))
    channels, height, width = data.draw(maps)
    layer = Conv(
        out_channels=groups * data.draw(small),
        kernel=data.draw(pair),
        stride=data.draw(pair),
        pads=data.draw(pads),
        dilation=data.draw(st.tuples(st.integers(1, 2), st.integers(1, 2))),
        groups=groups,
        bias=data.draw(st.booleans()),
    )
    model = single(layer, (channels * groups, height, width))
    x, w = drawn(model)
    expected = loops.conv(
        x, w["layer.weight"], w.get("layer.bias"), layer.stride, layer.pads, layer.dilation, groups
    )
    both(model, expected, x, w)


@often
@given(st.data())
def test_conv_transpose(data):
    groups = data.draw(st.sampled_from([1, 2]))
    channels, height, width = data.draw(maps)
    layer = ConvTranspose(
        out_channels=groups * data.draw(small),
        kernel=data.draw(pair),
        stride=data.draw(pair),
        pads=data.draw(pads),
        output_padding=data.draw(st.tuples(pad, pad)),
        dilation=data.draw(st.tuples(st.integers(1, 2), st.integers(1, 2))),
        groups=groups,
        bias=data.draw(st.booleans()),
    )
    model = single(layer, (channels * groups, height, width))
    x, w = drawn(model)
    size = list(infer_shapes(model)["layer"][1:])
    expected = loops.conv_transpose(
        x,
        w["layer.weight"],
        w.get("layer.bias"),
        layer.stride,
        layer.pads,
        layer.dilation,
        groups,
        size,
    )
    both(model, expected, x, w)


@often
@given(maps, st.integers(1, 4))
def test_group_norm(shape, groups):
    """By torch's definition: each group of a sample alone."""
    model = single(GroupNorm(groups=groups, epsilon=0.1), (shape[0] * 2, *shape[1:]))
    x, w = drawn(model)
    parts = np.split(x, groups, axis=1)
    normal = [
        (part - part.mean(axis=(1, 2, 3), keepdims=True))
        / np.sqrt(part.var(axis=(1, 2, 3), keepdims=True) + 0.1)
        for part in parts
    ]
    scale, bias = (w[f"layer.{role}"][:, None, None] for role in ("scale", "bias"))
    both(model, np.concatenate(normal, axis=1) * scale + bias, x, w)


@often
@given(maps, pair, pair, pads, st.booleans())
def test_max_pool(shape, kernel, stride, pads, ceil):
    model = single(MaxPool(kernel=kernel, stride=stride, pads=pads, ceil_mode=ceil), shape)
    x, w = drawn(model)
    both(model, loops.pool(x, kernel, stride, pads, ceil, False, False), x, w)


@often
@given(maps, pair, pair, pads, st.booleans(), st.booleans())
def test_average_pool(shape, kernel, stride, pads, ceil, include):
    layer = AveragePool(
        kernel=kernel, stride=stride, pads=pads, ceil_mode=ceil, count_include_pad=include
    )
    model = single(layer, shape)
    x, w = drawn(model)
    # The last release for Python 3.10 divides a last window that reaches outside by its whole size.
    wrong = ceil and include and Version(onnxruntime.__version__) < Version("1.31")
    expected = loops.pool(x, kernel, stride, pads, ceil, True, include)
    both(model, expected, x, w, runtime=not wrong)


@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3, 4, 5), (2, 3, 4, 5, 2)])
def test_the_largest_of_each_channel(shape):
    given, shown = (helper.make_tensor_value_info(name, TensorProto.DOUBLE, shape) for name in "xy")
    node = helper.make_node("GlobalMaxPool", ["x"], ["y"])
    x = np.random.default_rng(0).standard_normal(shape)
    graph = helper.make_model(helper.make_graph([node], "one", [given], [shown]))
    found = evaluate(graph, {"x": x})["y"]
    assert found.ravel().tolist() == [max(each.ravel()) for sample in x for each in sample]
    assert found.shape == (2, 3, *(1,) * (len(shape) - 2))


@often
@given(
    maps, st.sampled_from([1, 3, 5, 7]), st.sampled_from([1e-4, 0.5]), st.sampled_from([0.75, 0.5])
)
def test_lrn(shape, size, alpha, beta):
    model = single(LRN(size=size, alpha=alpha, beta=beta, bias=2.0), (shape[0] * 2, *shape[1:]))
    x, w = drawn(model, batch=3)
    both(model, loops.lrn(x, size, alpha, beta, 2.0), x, w)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("shape", [(5,), (3, 4, 2)])
def test_batch_norm(shape, training):
    model = single(BatchNorm(epsilon=1e-3, momentum=0.8), shape)
    x, w = drawn(model, batch=4)
    expected, *running = loops.batch_norm(x, *w.values(), 1e-3, 0.8, training)
    if not training:
        return both(model, expected, x, w)
    graph = canonical_graph(model, w, dtype="float64", training=True)
    found = evaluate(graph, {"input": x})
    assert list(found) == ["layer", "layer.mean/running", "layer.variance/running"]
    for name, values in zip(found, (expected, *running)):
        np.testing.assert_allclose(found[name], values, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize(("steps", "features", "hidden"), [(1, 1, 1), (5, 3, 4)])
def test_lstm(steps, features, hidden):
    model = single(LSTM(hidden=hidden), (steps, features))
    x, w = drawn(model, batch=3)
    both(model, loops.lstm(x, *w.values()), x, w)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(("steps", "features", "hidden"), [(1, 1, 1), (5, 3, 4)])
def test_gru(steps, features, hidden, last):
    model = single(GRU(hidden=hidden, linear_before_reset=last), (steps, features))
    x, w = drawn(model, batch=3)
    both(model, loops.gru(x, *w.values(), last), x, w)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize(("steps", "features", "hidden"), [(1, 1, 1), (5, 3, 4)])
def test_rnn(steps, features, hidden, activation):
    model = single(RNN(hidden=hidden, activation=activation), (steps, features))
    x, w = drawn(model, batch=3)
    function = math.tanh if activation == "tanh" else lambda number: max(number, 0.0)
    both(model, loops.rnn(x, *w.values(), function), x, w)


@pytest.mark.parametrize("shape", [(4,), (3, 4)])
@pytest.mark.parametrize("bias", [True, False])
def test_linear(shape, bias):
    model = single(Linear(out_features=2, bias=bias), shape)
    x, w = drawn(model)
    added = w["layer.bias"] if bias else 0.0
    both(model, np.einsum("...i,oi->...o", x, w["layer.weight"]) + added, x, w)


def test_hard_sigmoid():
    """Of the slope 1/6, which no float32 is."""
    model = single(HardSigmoid(), (2, 9))
    x = 4 * np.random.default_rng(0).standard_normal((3, 2, 9))
    both(model, np.minimum(np.maximum(x + 3, 0), 6) / 6, x, {})


def test_sigmoid_of_large_numbers_neither_overflows_nor_warns(recwarn):
    model = single(Sigmoid(), (3,))
    graph = canonical_graph(model, {}, dtype="float64")
    found = evaluate(graph, {"input": np.array([[-1e4, 0.0, 1e4]])})["layer"]
    assert found.tolist() == [[0.0, 0.5, 1.0]]
    assert not [w for w in recwarn if issubclass(w.category, RuntimeWarning)]


@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize(("opset", "axis"), [(12, 1), (12, 2), (17, 1), (17, 2), (17, None)])
@pytest.mark.parametrize("spread", [1.0, 30.0])
def test_shares_and_their_logarithms(operator, opset, axis, spread):
    """A share of exp(-100) and less is 0 in float32, and its logarithm is finite."""
    attributes = {} if axis is None else {"axis": axis}
    node = helper.make_node(operator, ["x"], ["y"], **attributes)
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3, 4]) for name in "xy"]
    graph = helper.make_graph([node], "shares", ports[:1], ports[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    x = (spread * np.random.default_rng(0).standard_normal((2, 3, 4))).astype(np.float32)
    (expected,) = run_model(model.SerializeToString(), {"x": x}, threads=1)
    found = evaluate(model, {"x": x})["y"]
    assert np.isfinite(found).all() and np.allclose(found, expected, rtol=1e-5, atol=1e-7)


def test_the_logarithm_of_a_share_that_is_no_number_is_finite():
    layer = Softmax(axis=1, log=True)
    x = np.array([[0.0, 1000.0, -1000.0]])
    graph = canonical_graph(single(layer, (3,)), {}, dtype="float64")
    assert evaluate(graph, {"input": x})["layer"].tolist() == [[-1000.0, 0.0, -2000.0]]
    ((slope,), _) = layer.gradients(Pass((x,), {}), np.array([[1.0, 0.0, 2.0]]))
    assert slope.tolist() == [[1.0, -3.0, 2.0]]


@pytest.mark.parametrize("shape", [(7,), (3, 7)])
@pytest.mark.parametrize("spread", [1.0, 1e3])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
def test_loss(shape, spread, smoothing):
    """A spread of 1000 underflows a softmax, and must not make the loss infinite."""
    model = single(Linear(out_features=5), shape)
    x, w = drawn(model, batch=4)
    w["layer.weight"] *= spread
    labels = np.random.default_rng(1).integers(0, 5, size=(4, *shape[:-1]))
    graph = loss_graph(model, w, loss=SoftmaxCrossEntropy(label_smoothing=smoothing))
    found = evaluate(graph, {"input": x, "labels": labels})
    assert list(found) == ["loss", "layer"] and found["loss"].shape == ()
    expected = loops.cross_entropy(found["layer"], labels, smoothing)
    assert np.isclose(found["loss"], expected, rtol=1e-13, atol=0)
