"""The same, run again, is the same; and a layer may be called anything."""

from __future__ import annotations

import numpy as np
import pytest

from dlb_graph import workload as W
from dlb_graph.workload.files import load
from dlb_graph.workload.initial import initial_weights

from . import truth
from .closeness import FLOAT64, assert_near, assert_same_bits
from .gradient_checks import assert_gradients
from .layer_cases import EVERY_LAYER
from .models import CLASSES, random_batch, random_weights
from .subject import Adapter

LENET = load("lenet5")

#: Names that some framework has for something of its own, or cannot spell.
NAMES = (
    *("double", "forward", "train", "call", "weight", "values", "children", "name", "params"),
    *("self", "class", "None", "1", "conv-1", "a_b", "_", "_private", "Conv", "conv:0"),
    *("data", "output"),
    pytest.param("two words", id="two-words"),
    pytest.param("größe", id="not-ascii"),
    pytest.param("x" * 80, id="80-letters"),
)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", [*EVERY_LAYER, "lenet5"])
def test_two_builds_of_equal_weights_lose_the_same(adapter: Adapter, name: str, dtype: str) -> None:
    if name == "lenet5":
        model, samples = LENET.model, 16
        weights = dict(initial_weights(model, seed=3))
    else:
        model, samples = EVERY_LAYER[name], 3
        weights = random_weights(model)
    adapter.require(model, dtype)
    inputs, labels = random_batch(model, dtype, samples=samples)
    batch = adapter.native(inputs, labels)
    losses = [
        float(adapter.build(model, weights, dtype, batch_size=samples).train_step(*batch))
        for _ in range(2)
    ]
    assert losses[0] == losses[1]


@pytest.mark.parametrize("name", ["maps", "features"])
def test_models_of_both_dtypes_live_side_by_side(adapter: Adapter, name: str) -> None:
    model = EVERY_LAYER[name]
    adapter.require(model, "float32")
    adapter.require(model, "float64")
    weights, last = random_weights(model), model.nodes[-1].name
    built = {dtype: adapter.build(model, weights, dtype) for dtype in ("float64", "float32")}
    alone = {}
    for dtype, each in built.items():
        inputs, _ = random_batch(model, dtype)
        alone[dtype] = each.forward(inputs)[last]
    for dtype in ("float32", "float64"):
        inputs, labels = random_batch(model, dtype)
        assert_same_bits(built[dtype].forward(inputs)[last], alone[dtype], last)
        built[dtype].train_step(*adapter.native(inputs, labels))
        assert built[dtype].weights()["logits.weight"].dtype == np.dtype(dtype)


@pytest.mark.parametrize("batch_size", [1, 2, 7])
def test_any_batch_size(adapter: Adapter, batch_size: int) -> None:
    model = LENET.model
    adapter.require(model, "float64")
    weights = random_weights(model)
    inputs, labels = random_batch(model, samples=batch_size)
    built = adapter.build(model, weights, batch_size=batch_size)
    last = model.nodes[-1].name
    true = truth.values(model, weights, inputs)[last]
    assert_near(built.forward(inputs)[last], true, FLOAT64, "float64", last)
    loss = float(built.train_step(*adapter.native(inputs, labels)))
    assert loss == pytest.approx(truth.loss(model, weights, inputs, labels), rel=FLOAT64)


@pytest.mark.parametrize("name", NAMES)
def test_a_layer_may_be_called(adapter: Adapter, name: str) -> None:
    model = W.Model(
        input=W.Input(shape=(2, 4, 3)),
        nodes=(
            W.Node(name=name, layer=W.Conv(out_channels=3, kernel=(2, 2))),
            W.Node(name="norm", layer=W.BatchNorm()),
            W.Node(name="flat", layer=W.Flatten()),
            W.Node(name="logits", layer=W.Linear(out_features=CLASSES)),
        ),
    )
    adapter.require(model, "float64")
    _check(adapter, model)


@pytest.mark.parametrize("name", ["x", "double", pytest.param("two words", id="two-words"), "data"])
def test_the_input_may_be_called(adapter: Adapter, name: str) -> None:
    model = W.Model(
        input=W.Input(shape=(6,), name=name),
        nodes=(
            W.Node(name="one", layer=W.Tanh()),
            W.Node(name="sum", layer=W.Add(), inputs=(name, "one")),
            W.Node(name="logits", layer=W.Linear(out_features=CLASSES)),
        ),
    )
    adapter.require(model, "float64")
    _check(adapter, model)


def _check(adapter: Adapter, model: W.Model) -> None:
    weights = random_weights(model)
    inputs, labels = random_batch(model)
    built = adapter.build(model, weights)
    names = [node.name for node in model.nodes]
    true = truth.values(model, weights, inputs)
    for name, value in built.forward(inputs, layers=names).items():
        assert_near(value, true[name], FLOAT64, "float64", name)
    found = built.gradients(inputs, labels)
    assert_gradients(found, model, weights, inputs, labels)
    built.train_step(*adapter.native(inputs, labels))
    assert set(built.weights()) == set(weights)
