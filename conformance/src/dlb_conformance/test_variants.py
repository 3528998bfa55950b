"""Variants: however a model is built, it computes, differentiates and trains the same."""

from __future__ import annotations

import pytest

from dlb_graph import workload as W

from . import truth
from .closeness import FLOAT64, UPDATE, assert_near
from .gradient_checks import assert_gradients
from .layer_cases import CASES, EVERY_LAYER
from .models import CLASSES, chain, classifier, random_batch, random_weights
from .optimizer_formulas import Formula
from .subject import BATCH, Adapter
from .training import row_order, steps_of

STEPS = 3
MOMENTUM = W.SGD(learning_rate=0.05, momentum=0.9)

MODELS = {
    "conv": classifier(
        (3, 9, 8),
        W.Conv(out_channels=4, kernel=(3, 3), pads=(1, 1, 1, 1)),
        W.BatchNorm(),
        W.ReLU(),
        W.MaxPool(kernel=(2, 2), stride=(2, 2)),
        W.Conv(out_channels=6, kernel=(3, 2), pads=(0, 1, 1, 0), stride=(1, 2)),
        W.Tanh(),
    ),
    "lstm": chain(
        (3,),
        W.Embedding(entries=7, features=3),
        W.LSTM(hidden=4),
        W.GRU(hidden=3, linear_before_reset=False),
        W.Linear(out_features=CLASSES),
        kind="index",
    ),
    "films": CASES["films"],
    "shared-conv-of-two-branches": CASES["shared-conv-of-two-branches"],
    "parts": EVERY_LAYER["parts"],
}


def test_the_values_of_a_variant_are_words(adapter: Adapter) -> None:
    for name, values in adapter.described.variants.items():
        assert len(values) > 1, f"{name} is no choice"
        assert len(set(values)) == len(values), name
        for word in (name, *values):
            assert word.replace("_", "").replace("-", "").isalnum(), word


def test_the_default_may_be_asked_for(adapter: Adapter) -> None:
    variant = {name: values[0] for name, values in adapter.described.variants.items()}
    model = chain((6,), W.Linear(out_features=CLASSES))
    adapter.require(model)
    adapter.build(model, random_weights(model), adapter.described.dtypes[0], variant=variant)


@pytest.mark.parametrize("name", MODELS)
def test_a_variant_is_the_same_model(adapter: Adapter, name: str, variant: tuple[str, str]) -> None:
    model, chosen = MODELS[name], dict([variant])
    adapter.require(model, "float64", MOMENTUM)
    weights = random_weights(model)
    built = adapter.build(model, weights, optimizer=MOMENTUM, variant=chosen)
    inputs, labels = random_batch(model, samples=8)
    names = [node.name for node in model.nodes]
    # Compilers take long for each mode and each set of layers: evaluation follows, after training.
    true = truth.values(model, weights, inputs[:BATCH], training=True)
    found = built.forward(inputs[:BATCH], training=True, layers=names)
    for layer in names:
        assert_near(found[layer], true[layer], FLOAT64, "float64", layer)
    before = built.weights()
    gradients = built.gradients(inputs[:BATCH], labels[:BATCH])
    assert_gradients(gradients, model, weights, inputs[:BATCH], labels[:BATCH])
    for key, value in built.weights().items():
        assert (value == before[key]).all(), f"looking moved {key}"

    formula = Formula(MOMENTUM, {key: weights[key] for key in gradients.parameters})
    order = row_order(8, STEPS)
    steps = steps_of(
        adapter, built, MOMENTUM, W.Constant(), inputs, labels, order, "pipeline", chosen
    )
    for step, rate in steps:
        rows = order[step]
        formula.step(built.gradients(inputs[rows], labels[rows]).parameters, rate)
    after = built.weights()
    for key, expected in formula.weights.items():
        assert_near(after[key], expected, UPDATE, "float64", f"{key} after {STEPS} steps")
    state = built.optimizer_state()
    assert set(state) == set(formula.state)
    for key, expected in formula.state.items():
        assert_near(state[key], expected, UPDATE, "float64", f"{key} after {STEPS} steps")
    # Of another size than any before, with what was trained, running statistics among it.
    last = names[-1]
    logits = truth.values(model, after, inputs)[last]
    assert_near(built.forward(inputs)[last], logits, FLOAT64, "float64", "logits after training")
