"""Weights cross the canonical layout unharmed, and stand still unless trained or set."""

from __future__ import annotations

import numpy as np
import pytest

from dlb_graph import workload as W
from dlb_worker.native import BuiltModel

from .closeness import assert_same_bits
from .layer_cases import CASES, EVERY_LAYER, SHARED
from .models import random_batch, random_weights
from .subject import Adapter

MOMENTUM = W.SGD(learning_rate=0.05, momentum=0.9)
DTYPES = ("float32", "float64")
MODELS = {
    **EVERY_LAYER,
    # The last bits of long recurrences may depend on where memory lies, as MXNet's do.
    **{name: model for name, model in SHARED.items() if name != "shared-recurrences"},
    **{
        name: CASES[name]
        for name in (
            "two-lstms",
            "conv-depthwise-with-multiplier",
            "conv-without-bias",
            "films",
            "linear-of-a-sequence",
            "flatten-relu-linear",
            "two-flattens-joined",
            "two-readers-of-one-flatten",
        )
    },
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", MODELS)
def test_weights_come_back_bit_for_bit(adapter: Adapter, name: str, dtype: str) -> None:
    model = MODELS[name]
    adapter.require(model, dtype)
    weights = random_weights(model)
    found = adapter.build(model, weights, dtype).weights()
    assert set(found) == set(weights)
    for key, value in weights.items():
        assert_same_bits(found[key], value.astype(dtype), key)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", MODELS)
def test_load_weights_replaces_every_one(adapter: Adapter, name: str, dtype: str) -> None:
    model = MODELS[name]
    adapter.require(model, dtype)
    built = adapter.build(model, random_weights(model), dtype)
    others = {
        key: value.astype(dtype) * np.asarray(1 / 3, dtype) + np.asarray(0.1, dtype)
        for key, value in random_weights(model, seed=7).items()
    }
    built.load_weights(others)
    found = built.weights()
    for key, value in others.items():
        assert_same_bits(found[key], value, key)
    inputs, _ = random_batch(model, dtype)
    last = model.nodes[-1].name
    rebuilt = adapter.build(model, random_weights(model), dtype)
    rebuilt.load_weights(found)
    logits = rebuilt.forward(inputs)[last]
    assert_same_bits(built.forward(inputs)[last], logits, "logits of a second model")
    # A library may keep weights in a layout of its own after a pass.
    built.load_weights(random_weights(model))
    built.load_weights(others)
    assert_same_bits(built.forward(inputs)[last], logits, "logits of weights loaded after a pass")


@pytest.mark.parametrize("name", ["maps", "features"])
def test_load_weights_keeps_the_optimizer_state(adapter: Adapter, name: str) -> None:
    model = EVERY_LAYER[name]
    adapter.require(model, "float64")
    built = adapter.build(model, random_weights(model), optimizer=MOMENTUM)
    inputs, labels = random_batch(model)
    built.train_step(*adapter.native(inputs, labels))
    before = built.optimizer_state()
    built.load_weights(random_weights(model, seed=7))
    after = built.optimizer_state()
    assert set(after) == set(before) != set()
    for key, value in before.items():
        assert_same_bits(after[key], value, key)


@pytest.mark.parametrize("name", ["maps", "features"])
def test_what_was_handed_out_does_not_change_by_training(adapter: Adapter, name: str) -> None:
    model = EVERY_LAYER[name]
    adapter.require(model, "float64")
    built = adapter.build(model, random_weights(model), optimizer=MOMENTUM)
    inputs, labels = random_batch(model)
    batch = adapter.native(inputs, labels)
    built.train_step(*batch)
    handed = {**built.weights(), **built.optimizer_state()}
    handed.update(built.forward(inputs, layers=["relu"]))
    handed.update({f"gradient of {k}": v for k, v in _gradients(built, inputs, labels).items()})
    copies = {key: value.copy() for key, value in handed.items()}
    built.train_step(*batch)
    built.forward(inputs + 1)
    for key, value in copies.items():
        assert_same_bits(handed[key], value, key)


@pytest.mark.parametrize("name", ["maps", "features"])
def test_weights_given_may_be_read_only(adapter: Adapter, name: str) -> None:
    model = EVERY_LAYER[name]
    adapter.require(model, "float32")
    weights = random_weights(model)
    copies = {key: value.copy() for key, value in weights.items()}
    for value in weights.values():
        value.setflags(write=False)
    built = adapter.build(model, weights, "float32")
    inputs, labels = random_batch(model, "float32")
    built.train_step(*adapter.native(inputs, labels))
    built.load_weights(weights)
    built.train_step(*adapter.native(inputs, labels))
    for key, value in copies.items():
        assert_same_bits(weights[key], value, key)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", EVERY_LAYER)
def test_looking_changes_nothing(adapter: Adapter, name: str, dtype: str) -> None:
    """Values in either mode and gradients leave weights, statistics and optimizer as they were,
    and the next step is what it would have been without them."""
    model = EVERY_LAYER[name]
    adapter.require(model, dtype)
    inputs, labels = random_batch(model, dtype)
    batch = adapter.native(inputs, labels)
    looked, left = (
        adapter.build(model, random_weights(model), dtype, optimizer=MOMENTUM) for _ in range(2)
    )
    for built in (looked, left):
        built.train_step(*batch)
    before = {**looked.weights(), **looked.optimizer_state()}
    layers = [node.name for node in model.nodes]
    for training in (True, False):
        looked.forward(inputs, training=training, layers=layers)
        looked.gradients(inputs, labels)
    after = {**looked.weights(), **looked.optimizer_state()}
    assert set(after) == set(before)
    for key, value in before.items():
        assert_same_bits(after[key], value, key)
    assert float(looked.train_step(*batch)) == float(left.train_step(*batch))
    others = left.weights()
    for key, value in looked.weights().items():
        assert_same_bits(value, others[key], f"{key} after the next step")


def _gradients(built: BuiltModel, inputs: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    found = built.gradients(inputs, labels)
    assert found.inputs is not None
    return {**found.parameters, "input": found.inputs}
