"""Each layer's value and gradients in float64, compared with NumPy's truth and with differences."""

import numpy as np
import pytest

import models as M
from dlb_cntk.registry import LAYERS
from dlb_worker.errors import UnsupportedError
from numpy_truth import mean_loss, values

MAP, SEQUENCE = (4, 9, 8), (5, 6)


def on_map(kind, shape, **attributes):
    return [M.node("layer", kind, ["input"], [MAP], shape, **attributes)]


def on_sequence(kind, shape, parameters=None, **attributes):
    return [M.node("layer", kind, ["input"], [SEQUENCE], shape, parameters, **attributes)]


def two(kind, second=None, **attributes):
    """A layer of two inputs: a convolution's value and the input."""
    first = M.conv("first", "input", MAP, 4, (3, 3), pads=(1, 1, 1, 1))
    shape = attributes.pop("shape", MAP)
    extra = [second] if second else []
    sources = ["first", second.name if second else "input"]
    shapes = [MAP, second.shape if second else MAP]
    return [first] + extra + [M.node("layer", kind, sources, shapes, shape, **attributes)]


def norm(shape):
    own = {"scale": shape[:1], "bias": shape[:1]}
    states = {"mean": shape[:1], "variance": shape[:1]}
    return M.node(
        "layer", "batch_norm", ["input"], [shape], shape, own, states, epsilon=1e-3, momentum=0.8
    )


CASES = {
    "conv": [M.conv("layer", "input", MAP, 6, (3, 3))],
    "conv of equal size": [M.conv("layer", "input", MAP, 6, (5, 3), pads=(2, 1, 2, 1))],
    "conv of equal size, stride": [
        M.conv("layer", "input", MAP, 6, (3, 3), pads=(1, 1, 1, 1), stride=(2, 2))
    ],
    "conv, uneven pads": [
        M.conv("layer", "input", MAP, 6, (3, 2), pads=(0, 1, 2, 3), stride=(2, 1))
    ],
    "conv, groups": [M.conv("layer", "input", MAP, 6, (3, 3), groups=2, bias=False)],
    "conv, one channel a group": [
        M.conv("layer", "input", MAP, 4, (3, 3), groups=4, pads=(1, 1, 1, 1), stride=(2, 1))
    ],
    "linear": [M.linear("layer", "input", (6,), 7)],
    "linear of a sequence": [M.linear("layer", "input", SEQUENCE, 7, bias=False)],
    "batch_norm of a map": [norm(MAP)],
    "batch_norm": [norm((6,))],
    "layer_norm": on_sequence("layer_norm", SEQUENCE, {"scale": (6,), "bias": (6,)}, epsilon=1e-3),
    "lrn": on_map("lrn", MAP, size=3, alpha=0.3, beta=0.75, bias=2.0),
    "max_pool": [M.pool("layer", "max_pool", "input", MAP, (2, 2), (2, 2))],
    "max_pool, ceil": [M.pool("layer", "max_pool", "input", MAP, (3, 3), (2, 2), ceil_mode=True)],
    "max_pool, pads": [
        M.pool("layer", "max_pool", "input", MAP, (3, 3), (3, 3), pads=(1, 1, 1, 1))
    ],
    "max_pool, uneven": [
        M.pool("layer", "max_pool", "input", MAP, (3, 2), (2, 1), pads=(0, 1, 2, 0))
    ],
    "average_pool": [M.pool("layer", "average_pool", "input", MAP, (3, 3), (2, 2))],
    "average_pool, ceil": [
        M.pool("layer", "average_pool", "input", MAP, (3, 3), (2, 2), ceil_mode=True)
    ],
    "average_pool, pads": [
        M.pool("layer", "average_pool", "input", MAP, (3, 3), (2, 2), pads=(1, 0, 1, 2))
    ],
    "average_pool, pads counted": [
        M.pool(
            "layer",
            "average_pool",
            "input",
            MAP,
            (3, 3),
            (2, 2),
            pads=(1, 1, 1, 1),
            count_include_pad=True,
            ceil_mode=True,
        )
    ],
    "global_average_pool": on_map("global_average_pool", (4, 1, 1)),
    "relu": on_map("relu", MAP),
    "relu6": [
        M.linear("wide", "input", (6,), 40),
        M.node("three", "add", ["wide", "wide"], [(40,), (40,)], (40,)),
        M.node("six", "add", ["three", "three"], [(40,), (40,)], (40,)),
        M.node("layer", "relu6", ["six"], [(40,)], (40,)),
    ],
    "tanh": on_map("tanh", MAP),
    "sigmoid": on_map("sigmoid", MAP),
    "hard_sigmoid": two("hard_sigmoid")[:1]
    + [
        M.node("twice", "add", ["first", "first"], [MAP, MAP], MAP),
        M.node("layer", "hard_sigmoid", ["twice"], [MAP], MAP),
    ],
    "add": two("add"),
    "mul": two("mul"),
    "mul by channels": two(
        "mul", M.node("mean", "global_average_pool", ["input"], [MAP], (4, 1, 1))
    ),
    "concat of channels": two("concat", shape=(8, 9, 8), axis=1),
    "concat of rows": two("concat", shape=(4, 18, 8), axis=2),
    "flatten": on_map("flatten", (288,)),
    "reshape": [M.Node("layer", "reshape", {"shape": (4, 72)}, ("input",), (MAP,), (4, 72))],
    "transpose": on_sequence("transpose", (6, 5), axes=(2, 1)),
    "transpose of a map": on_map("transpose", (9, 8, 4), axes=(2, 3, 1)),
    "reduce_mean over time": on_sequence("reduce_mean", (6,), axis=1),
    "reduce_mean over features": on_sequence("reduce_mean", (5,), axis=2),
    "select": on_sequence("select", (6,), axis=1, index=-1),
    "select a feature": on_sequence("select", (5,), axis=2, index=2),
    "pad": on_map("pad", (5, 12, 8), pads=(0, 1, 0, 1, 2, 0), value=0.1),
    "slice": on_map("slice", (3, 4, 3), ranges=((1, 4, 1), (1, 8, 2), (0, 8, 3))),
    "position_embedding": on_sequence("position_embedding", SEQUENCE, {"weight": SEQUENCE}),
    "embedding": [
        M.node(
            "layer",
            "embedding",
            ["input"],
            [(5,)],
            SEQUENCE,
            {"weight": (9, 6)},
            entries=9,
            features=6,
        )
    ],
}


def model_of(case):
    return M.classifier(*CASES[case], kind="index" if case == "embedding" else "real")


def test_every_layer_has_a_case():
    seen = {node.kind for case in CASES for node in model_of(case).nodes}
    assert seen | {"dropout"} == set(LAYERS)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("case", sorted(CASES))
def test_a_layer_has_the_value_that_is_defined(case, training):
    model = model_of(case)
    weights = M.random_weights(model)
    inputs, _ = M.random_batch(model)
    names = [node.name for node in model.nodes]
    built = M.build(M.workload(model), weights)
    found = built.forward(inputs, training=training, layers=names)
    truth = values(
        model, {name: w.astype(np.float64) for name, w in weights.items()}, inputs, training
    )
    for name in names:
        assert found[name].dtype == np.float64
        assert found[name].shape == truth[name].shape
        assert M.distance(found[name], truth[name]) < 1e-13, name


@pytest.mark.parametrize("case", sorted(CASES))
def test_a_layer_has_the_gradients_that_differences_show(case):
    model = model_of(case)
    weights = {name: w.astype(np.float64) for name, w in M.random_weights(model).items()}
    inputs, labels = M.random_batch(model)
    built = M.build(M.workload(model), weights)
    found = built.gradients(inputs, labels)

    def loss(moved, moved_inputs):
        return mean_loss(values(model, moved, moved_inputs, training=True)[model.last], labels)

    assert abs(found.loss - loss(weights, inputs)) < 1e-13 * abs(found.loss)
    trained = [name for name, each in model.parameters.items() if each.trained]
    assert sorted(found.parameters) == sorted(trained)
    random, step = np.random.RandomState(5), 1e-6
    for name in trained:
        way = random.standard_normal(weights[name].shape)
        ends = [
            loss(dict(weights, **{name: weights[name] + s * way}), inputs) for s in (step, -step)
        ]
        expected = (ends[0] - ends[1]) / (2 * step)
        got = np.sum(found.parameters[name] * way)
        assert abs(got - expected) < 1e-7 * max(1.0, abs(expected)), name
    if model.input.kind == "index":
        assert found.inputs is None
        return
    way = random.standard_normal(inputs.shape)
    expected = (loss(weights, inputs + step * way) - loss(weights, inputs - step * way)) / (
        2 * step
    )
    assert abs(np.sum(found.inputs * way) - expected) < 1e-7 * max(1.0, abs(expected))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("sequence", [False, True])
def test_the_loss_is_the_mean_over_samples_and_steps(smoothing, sequence):
    shape = SEQUENCE if sequence else (6,)
    model = M.classifier(M.linear("layer", "input", shape, 7))
    weights = M.random_weights(model)
    inputs, labels = M.random_batch(model)
    built = M.build(M.workload(model, smoothing), weights)
    logits = built.forward(inputs)[model.last]
    assert (
        M.distance(built.gradients(inputs, labels).loss, mean_loss(logits, labels, smoothing))
        < 1e-14
    )


def test_a_tied_layer_computes_with_the_embeddings_weight_and_adds_up_both_gradients():
    table = CASES["embedding"][0]
    tied = M.node(
        "logits",
        "linear",
        ["layer"],
        [SEQUENCE],
        (5, 9),
        {"bias": (9,)},
        out_features=9,
        bias=True,
        tied_to="layer",
    )
    model = M.Model(M.Input("input", (5,), "index"), (table, tied))
    weights = {name: w.astype(np.float64) for name, w in M.random_weights(model).items()}
    inputs, labels = M.random_batch(model)
    built = M.build(M.workload(model), weights)
    truth = values(model, weights, inputs)["logits"]
    assert M.distance(built.forward(inputs)["logits"], truth) < 1e-14
    way, step = np.random.RandomState(0).standard_normal((9, 6)), 1e-6
    ends = [
        mean_loss(
            values(
                model, dict(weights, **{"layer.weight": weights["layer.weight"] + s * way}), inputs
            )["logits"],
            labels,
        )
        for s in (step, -step)
    ]
    got = np.sum(built.gradients(inputs, labels).parameters["layer.weight"] * way)
    assert abs(got - (ends[0] - ends[1]) / (2 * step)) < 1e-7


def test_dropout_draws_in_training_and_takes_masks_that_are_given():
    drop = M.node("layer", "dropout", ["input"], [(400,)], (400,), rate=0.25)
    model = M.classifier(drop)
    weights, (inputs, _) = M.random_weights(model), M.random_batch(model)
    drawn = M.build(M.workload(model), weights)
    assert np.array_equal(drawn.forward(inputs, layers=["layer"])["layer"], inputs)
    first, second = (
        drawn.forward(inputs, training=True, layers=["layer"])["layer"] for _ in range(2)
    )
    assert not np.array_equal(first, second)
    kept = first != 0
    assert 0.68 < kept.mean() < 0.82
    assert M.distance(first[kept], inputs[kept] / 0.75) < 1e-7
    mask = (np.random.RandomState(3).random_sample((6, 400)) > 0.25).astype(np.float32)
    masked = M.build(M.workload(model), weights, masks={"layer": mask})
    assert np.array_equal(masked.forward(inputs, layers=["layer"])["layer"], inputs)
    found = masked.forward(inputs, training=True, layers=["layer"])["layer"]
    assert M.distance(found, inputs * mask[:4] / 0.75) < 1e-15


def test_a_dilated_convolution_is_refused_by_name():
    dilated = M.conv("wide", "input", MAP, 6, (3, 3))
    dilated = M.Node(
        "wide",
        "conv",
        dict(dilated.attributes, dilation=(2, 2)),
        ("input",),
        (MAP,),
        (6, 5, 4),
        dilated.parameters,
    )
    model = M.classifier(dilated)
    with pytest.raises(UnsupportedError, match="layer 'wide'"):
        M.build(M.workload(model), M.random_weights(model))
