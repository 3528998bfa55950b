"""Updates, the loss, dropout, states and tied weights against their formulas; several models at once."""

import numpy as np
import pytest

from dlb_theano.plugin import adapter
from dlb_worker.contract import ADDED, DataRequest, StartRequest, UserModelRequest
from dlb_worker.errors import UnsupportedError
from dlb_worker.model import Input, Loss, Model, Optimizer, Workload
from test_layers import PLAIN, SMOOTH, build, layer, linear, loss_of, network, node_of, numbers

SGD = {"momentum": 0.0, "nesterov": False, "weight_decay": 0.0, "clip_norm": 0.0}
ADAM = {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "weight_decay": 0.0, "clip_norm": 0.0}
NORMED = layer(
    "batch_norm",
    None,
    (6,),
    None,
    dict.fromkeys(("scale", "bias", "mean", "variance"), (6,)),
    epsilon=1e-5,
    momentum=0.8,
)


def stepped(optimizer, weights, gradients, state, step, rate):
    """The formulas of docs/workloads.md, in float64."""
    options = optimizer.attributes
    if options["clip_norm"]:
        norm = np.sqrt(sum((each**2).sum() for each in gradients.values()))
        scale = options["clip_norm"] / max(norm, options["clip_norm"])
        gradients = {name: each * scale for name, each in gradients.items()}
    for name, g in gradients.items():
        g = g + options["weight_decay"] * weights[name]
        if optimizer.kind == "adam":
            m = options["beta1"] * state.get(f"{name}.m", 0) + (1 - options["beta1"]) * g
            v = options["beta2"] * state.get(f"{name}.v", 0) + (1 - options["beta2"]) * g * g
            state.update({f"{name}.m": m, f"{name}.v": v})
            m, v = m / (1 - options["beta1"] ** step), v / (1 - options["beta2"] ** step)
            change = m / (np.sqrt(v) + options["epsilon"])
        else:
            change = g
            if options["momentum"]:
                velocity = options["momentum"] * state.get(f"{name}.velocity", 0) + g
                state[f"{name}.velocity"] = velocity
                change = g + options["momentum"] * velocity if options["nesterov"] else velocity
        weights[name] = weights[name] - rate * change


@pytest.mark.parametrize(
    "dtype, tolerance",
    [("float64", 1e-12), pytest.param("float32", 1e-5, marks=pytest.mark.long)],
)
@pytest.mark.parametrize(
    "kind, changed",
    [
        ("sgd", {}),
        ("sgd", {"momentum": 0.9, "weight_decay": 0.01}),
        ("sgd", {"momentum": 0.9, "nesterov": True, "clip_norm": 0.1}),
        ("adam", {}),
        ("adam", {"weight_decay": 0.01, "clip_norm": 0.1}),
    ],
)
def test_steps_follow_the_formulas(kind, changed, dtype, tolerance):
    optimizer = Optimizer(kind, dict(ADAM if kind == "adam" else SGD, **changed))
    workload = network(NORMED, optimizer)
    weights, inputs, labels = numbers(workload)
    model, gradients_of = build(workload, weights, dtype), build(network(NORMED), weights)
    assert model.optimizer_state() == {}
    expected, state = {name: each.astype("float64") for name, each in weights.items()}, {}
    for step, rate in enumerate((0.1, 0.1, 0.01), 1):
        model.set_learning_rate(rate)
        gradients_of.load_weights(expected)
        found = gradients_of.gradients(inputs, labels)
        loss = model.train_step(inputs.astype(dtype), labels)
        assert float(loss) == pytest.approx(float(found.loss), rel=10 * tolerance)
        stepped(optimizer, expected, dict(found.parameters), state, step, rate)
        for role, batch in (("mean", inputs.mean(0)), ("variance", inputs.var(0))):
            kept = expected[f"layer.{role}"]
            expected[f"layer.{role}"] = 0.8 * kept + 0.2 * batch
    after, kept = model.weights(), model.optimizer_state()
    assert set(kept) == set(state)
    for found, wanted in ((after, expected), (kept, state)):
        for name, each in wanted.items():
            assert found[name].dtype == dtype
            error = np.linalg.norm(found[name] - each)
            assert error <= tolerance * max(np.linalg.norm(each), 1e-3), name


def test_looking_changes_nothing():
    workload = network(NORMED)
    weights, inputs, labels = numbers(workload)
    model = build(workload, weights)
    before = model.weights()
    model.forward(inputs, training=True)
    model.gradients(inputs, labels)
    after = model.weights()
    assert all(np.array_equal(after[name], each) for name, each in before.items())
    assert model.optimizer_state() == {}


def test_models_of_one_workload_share_functions_and_nothing_else():
    workload = network(linear((6,), 4), Optimizer("sgd", dict(SGD, momentum=0.9)))
    weights, inputs, labels = numbers(workload)
    first, second = build(workload, weights), build(workload, weights)
    assert first.program is second.program
    first.set_learning_rate(0.1)
    second.set_learning_rate(0.1)
    first.train_step(inputs, labels)
    untouched = second.weights()
    assert all(np.array_equal(untouched[name], weights[name]) for name in weights)
    second.train_step(inputs, labels)
    first.train_step(inputs, labels)
    second.train_step(inputs, labels)
    ours, others = first.weights(), second.weights()
    assert all(np.array_equal(ours[name], others[name]) for name in weights)
    del second
    assert all(np.array_equal(first.weights()[name], ours[name]) for name in weights)
    shared = first.program
    del first
    assert not any(each.get_value().size for each in shared.initial if each.ndim)


def test_float32_and_float64_in_one_process():
    workload = network(linear((6,), 4))
    weights, inputs, labels = numbers(workload)
    models = {dtype: build(workload, weights, dtype) for dtype in ("float32", "float64")}
    for _ in range(2):
        for dtype, model in models.items():
            values = model.forward(inputs.astype(dtype), layers=["layer"])
            assert {each.dtype for each in values.values()} == {np.dtype(dtype)}
            found = model.gradients(inputs.astype(dtype), labels)
            arrays = [*found.parameters.values(), found.inputs, np.asarray(found.loss)]
            assert {each.dtype for each in arrays} == {np.dtype(dtype)}


def test_smoothed_labels():
    workload = network(linear((6,), 4), loss=Loss(SMOOTH.kind, {"label_smoothing": 0.1}))
    weights, inputs, labels = numbers(workload)
    model = build(workload, weights)
    wanted = loss_of(model, inputs, labels, 0.1)
    assert float(model.gradients(inputs, labels).loss) == pytest.approx(wanted, rel=1e-12)


DROPOUT = layer("dropout", None, (600,), rate=0.25)


def test_masks_are_multiplied_by():
    workload = network(DROPOUT)
    weights, inputs, labels = numbers(workload)
    mask = (np.random.RandomState(2).uniform(size=(5, 600)) > 0.25).astype("float32")
    model = build(workload, weights, masks={"layer": mask})
    values = model.forward(inputs, training=True, layers=["layer"])["layer"]
    np.testing.assert_allclose(values, inputs * mask[:3] / 0.75, 1e-15)
    assert np.array_equal(model.forward(inputs, layers=["layer"])["layer"], inputs)
    assert not model.gradients(inputs, labels).inputs[mask[:3] == 0].any()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_native_dropout(dtype):
    workload = network(DROPOUT)
    weights, inputs, _ = numbers(workload)
    inputs = inputs.astype(dtype)
    model = build(workload, weights, dtype, seed=7)
    drawn = [model.forward(inputs, training=True, layers=["layer"])["layer"] for _ in range(2)]
    for values in drawn:
        dropped = values == 0
        assert 0.2 < dropped.mean() < 0.3
        np.testing.assert_allclose(values[~dropped], (inputs / 0.75)[~dropped], 1e-6)
    assert not np.array_equal(*drawn)
    again = build(workload, weights, dtype, seed=7).forward(inputs, training=True, layers=["layer"])
    other = build(workload, weights, dtype, seed=8).forward(inputs, training=True, layers=["layer"])
    assert np.array_equal(again["layer"], drawn[0])
    assert not np.array_equal(other["layer"], drawn[0])


def test_a_step_draws_the_masks_of_a_pass_again():
    workload = network(DROPOUT)
    weights, inputs, labels = numbers(workload)
    model = build(workload, weights, "float64")
    model.set_learning_rate(0.0)
    losses = []
    for seed in (3, 4, 3):
        model.seed_dropout(seed)
        kept = model.forward(inputs, training=True, layers=["layer"])["layer"] != 0
        model.seed_dropout(seed)
        losses.append(float(model.train_step(inputs, labels)))
        masked = build(workload, weights, masks={"layer": np.ones_like(kept, "float32")})
        masked.load_masks({"layer": kept.astype("float32")})
        np.testing.assert_allclose(masked.gradients(inputs, labels).loss, losses[-1], 1e-12)
    assert losses[0] == losses[2] != losses[1]


def tied(optimizer=PLAIN):
    table = layer("embedding", None, (4,), (4, 6), {"weight": (9, 6)}, entries=9, features=6)
    scores = layer("linear", None, (4, 6), (4, 9), out_features=9, bias=False, tied_to="table")
    nodes = (node_of("table", ("input",), table), node_of("logits", ("table",), scores))
    return Workload("tied", Model(Input("input", (4,), "index"), nodes), SMOOTH, optimizer)


def test_embedding_and_tied_weights(tmp_path):
    import onnx

    workload = tied()
    draw = np.random.RandomState(0)
    weights = {"table.weight": draw.standard_normal((9, 6)).astype("float32")}
    inputs, labels = draw.randint(0, 9, (3, 4)), draw.randint(0, 9, (3, 4))
    model = build(workload, weights)
    table = weights["table.weight"].astype("float64")
    values = model.forward(inputs, layers=["table"])
    np.testing.assert_array_equal(values["table"], table[inputs])
    np.testing.assert_allclose(values["logits"], table[inputs] @ table.T, 1e-12)
    found = model.gradients(inputs, labels)
    assert found.inputs is None
    shares = np.exp(values["logits"])
    shares /= shares.sum(-1, keepdims=True)
    scores = (shares - np.eye(9)[labels]) / labels.size
    wanted = np.einsum("ntk,ntf->kf", scores, table[inputs])
    np.add.at(wanted, inputs, scores @ table)
    np.testing.assert_allclose(found.parameters["table.weight"], wanted, 1e-10, 1e-14)
    adapter.export_onnx(model, tmp_path / "tied.onnx")
    onnx.checker.check_model(str(tmp_path / "tied.onnx"), full_check=True)
    session = onnx.reference.ReferenceEvaluator(str(tmp_path / "tied.onnx"))
    (logits,) = session.run(None, {"input": inputs})
    np.testing.assert_allclose(logits, values["logits"], 1e-12)


@pytest.mark.parametrize("input_mode", ["pipeline", "memory"])
def test_data(input_mode):
    inputs = np.arange(24.0).reshape(6, 4)
    order = np.array([[5, 0], [3, 3], [1, 2]])
    request = DataRequest(inputs, np.arange(6), order, input_mode, "cpu", "float64")
    batches = list(adapter.load_data(request))
    assert len(batches) == 3
    for (got, labels), row in zip(batches, order):
        np.testing.assert_array_equal(got, inputs[row])
        np.testing.assert_array_equal(labels, row)


def test_devices_that_are_not_there_are_refused():
    with pytest.raises(UnsupportedError, match="CPU only"):
        adapter.start(StartRequest(threads=1, device="cuda"))


def image():
    """A user's network: Theano's own convolution turns its filters, and W is [in, out]."""
    import theano
    import theano.tensor as T

    def shared(name, *shape):
        draw = np.random.RandomState(len(name))
        array = (draw.standard_normal(shape) / 3).astype(theano.config.floatX)
        return theano.shared(array, name=name)

    class Network:
        pass

    x = T.tensor4("x")
    filters, bias = shared("conv.W", 4, 2, 3, 3), shared("conv.b", 4)
    weight, last = shared("dense.W", 64, 5), shared("dense.b", 5)
    mean = shared("norm.mean", 4)
    h = T.nnet.conv2d(x, filters) + bias.dimshuffle("x", 0, "x", "x")
    h.name = "conv"
    batch = h.mean(axis=(0, 2, 3))
    network = Network()
    network.inputs, network.params = x, [filters, bias, weight, last]

    def scores(centre):
        moved = T.tanh(h - centre.dimshuffle("x", 0, "x", "x"))
        moved.name = "activation"
        return T.dot(moved.flatten(2), weight) + last

    network.outputs, network.training_outputs = scores(mean), scores(batch)
    network.updates = {mean: 0.9 * mean + 0.1 * batch}
    return network


def test_user_model():
    model = adapter.load_user_model(UserModelRequest(image, None, "float64", "cpu"))
    described = {each.name: each for each in model.describe_parameters()}
    assert [(each.name, each.layer, each.role, each.trained) for each in described.values()] == [
        ("conv.W", "conv", "weight", True),
        ("conv.b", "conv", "bias", True),
        ("dense.W", "dense", "weight", True),
        ("dense.b", "dense", "bias", True),
        ("norm.mean", "norm", "", False),
    ]
    assert described["dense.W"].shape == (5, 64)
    kinds = {each.name: each.kind for each in model.layers()}
    assert kinds[""] == "" and kinds["conv"] == "conv" and kinds["dense"] == "linear"
    draw = np.random.RandomState(0)
    inputs, cotangent = draw.standard_normal((3, 2, 6, 6)), draw.standard_normal((3, 5))
    weights = model.weights()

    from test_layers import convolved

    attributes = {"pads": (0,) * 4, "dilation": (1, 1), "stride": (1, 1), "groups": 1, "bias": True}
    from types import SimpleNamespace

    maps = convolved(
        inputs,
        SimpleNamespace(**attributes),
        {"weight": weights["conv.W"], "bias": weights["conv.b"]},
    )
    found = model.forward(inputs, layers=["conv"])
    calls = {call.layer: call.output for call in found.calls}
    np.testing.assert_allclose(calls["conv"], maps, 1e-10)
    assert calls["activation"] is None
    centred = np.tanh(maps - weights["norm.mean"][:, None, None]).reshape(3, -1)
    wanted = centred @ weights["dense.W"].T + weights["dense.b"]
    np.testing.assert_allclose(found.outputs[0], wanted, 1e-10)

    pulled = model.vjp(inputs, [cotangent], training=True)
    trained = model.forward(inputs, training=True).outputs[0]
    assert float(pulled.loss) == pytest.approx((trained * cotangent).sum())
    np.testing.assert_allclose(
        pulled.states["norm.mean"], 0.9 * weights["norm.mean"] + 0.1 * maps.mean((0, 2, 3))
    )
    assert np.array_equal(model.weights()["norm.mean"], weights["norm.mean"])
    for name in pulled.parameters:
        direction = draw.standard_normal(weights[name].shape)
        ends = []
        for sign in (1, -1):
            model.load_weights({name: weights[name] + sign * 1e-6 * direction})
            ends.append((model.forward(inputs, training=True).outputs[0] * cotangent).sum())
        model.load_weights(weights)
        assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(
            (pulled.parameters[name] * direction).sum(), rel=1e-5, abs=1e-7
        )


def test_user_models_that_are_none_are_refused():
    with pytest.raises(UnsupportedError, match="without inputs, outputs, params"):
        adapter.load_user_model(UserModelRequest(object, None, "float64", "cpu"))


def test_it_declares_the_contract_that_it_uses():
    from dlb_theano.model import TheanoModel

    used = set(adapter.features) | set(vars(TheanoModel)) | set(vars(type(adapter)))
    for version, names in ADDED.items():
        assert adapter.contract >= version or not used & names
