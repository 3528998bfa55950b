"""Training steps: each optimizer moves weights and state by the formulas of the workload."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dlb_graph import workload as W
from dlb_graph.workload.shapes import trained_names
from dlb_worker.contract import PHASES
from dlb_worker.errors import UnsupportedError
from dlb_worker.native import BuiltModel
from dlb_worker.parts import in_parts, mean_gradients

from . import truth
from .closeness import FLOAT64, UPDATE, assert_near
from .layer_cases import EVERY_LAYER
from .models import CLASSES, chain, random_batch, random_weights
from .optimizer_formulas import Formula
from .subject import BATCH, Adapter
from .training import row_order, steps_of

STEPS = 5

#: 0.05 and 0.9 are not numbers of float32: a framework that keeps them in it is 1e-8 off.
OPTIMIZERS: dict[str, W.Optimizer] = {
    "sgd": W.SGD(learning_rate=0.05),
    "sgd-with-decay": W.SGD(learning_rate=0.05, weight_decay=0.03),
    "momentum": W.SGD(learning_rate=0.05, momentum=0.9),
    "momentum-with-decay": W.SGD(learning_rate=0.05, momentum=0.9, weight_decay=0.03),
    "nesterov": W.SGD(learning_rate=0.05, momentum=0.9, nesterov=True),
    "nesterov-with-decay": W.SGD(
        learning_rate=0.05, momentum=0.7, nesterov=True, weight_decay=0.03
    ),
    "adam": W.Adam(learning_rate=0.01),
    "adam-other-betas-large-epsilon": W.Adam(learning_rate=0.01, beta1=0.7, beta2=0.9, epsilon=0.1),
    "adam-with-decay": W.Adam(learning_rate=0.01, weight_decay=0.03),
    # No gradient of these models is so small, so that every step is clipped; and none so large.
    "clipped-with-decay": W.SGD(
        learning_rate=0.05, momentum=0.9, weight_decay=0.03, clip_norm=0.007
    ),
    "not-clipped": W.SGD(learning_rate=0.05, clip_norm=1e6),
}
#: Frameworks compute these by one formula for every layer: one model has all that matters.
FURTHER: dict[str, W.Optimizer] = {
    "adamw": W.AdamW(learning_rate=0.01, beta1=0.7, epsilon=0.1, weight_decay=0.03),
    # Second moments that forget at once fall again and again.
    "amsgrad": W.Adam(learning_rate=0.01, beta2=0.1, epsilon=0.1, weight_decay=0.03, amsgrad=True),
    "adamw-amsgrad": W.AdamW(learning_rate=0.01, beta2=0.1, epsilon=0.1, amsgrad=True),
    "rmsprop": W.RMSprop(learning_rate=0.01, rho=0.7, epsilon=0.1, weight_decay=0.03),
    "rmsprop-momentum": W.RMSprop(learning_rate=0.01, momentum=0.9, clip_norm=0.007),
    "rmsprop-inside": W.RMSprop(learning_rate=0.01, rho=0.7, epsilon=0.1, epsilon_place="inside"),
    "rmsprop-inside-momentum": W.RMSprop(
        learning_rate=0.01, momentum=0.9, epsilon=0.1, epsilon_place="inside", weight_decay=0.03
    ),
    "adagrad": W.Adagrad(
        learning_rate=0.05, initial_accumulator=0.1, epsilon=0.1, weight_decay=0.03
    ),
    "adagrad-inside": W.Adagrad(
        learning_rate=0.05, initial_accumulator=0.1, epsilon=0.1, epsilon_place="inside"
    ),
    "adadelta": W.Adadelta(learning_rate=0.3, rho=0.7, epsilon=0.1, weight_decay=0.03),
    "adamax": W.Adamax(learning_rate=0.01, beta1=0.7, epsilon=0.1, weight_decay=0.03),
    "adamax-inside": W.Adamax(
        learning_rate=0.01, beta1=0.7, beta2=0.9, epsilon=0.1, epsilon_place="inside"
    ),
    # Of these models' gradients, some elements are above it, and some below.
    "clipped-by-value": W.SGD(learning_rate=0.05, momentum=0.9, weight_decay=0.03, clip_value=0.01),
    # So for norms of these models' parameters.
    "clipped-by-variable": W.SGD(
        learning_rate=0.05,
        momentum=0.9,
        weight_decay=0.03,
        weight_decay_on="weights",
        clip_variable_norm=0.02,
    ),
    "decoupled-decay-of-weights": W.AdamW(
        learning_rate=0.01, epsilon=0.1, weight_decay=0.03, weight_decay_on="weights"
    ),
    # Clipped after the parts' gradients have come together, and not each by itself.
    "accumulated": W.SGD(learning_rate=0.05, momentum=0.9, clip_norm=0.007, accumulate=BATCH),
    "accumulated-in-adam": W.Adam(
        learning_rate=0.01, epsilon=0.1, weight_decay=0.03, accumulate=BATCH
    ),
    "composed-decay-of-weights": W.Adamax(
        learning_rate=0.01, epsilon=0.1, weight_decay=0.03, weight_decay_on="weights"
    ),
}
SCHEDULES: dict[str, W.Schedule] = {
    "constant": W.Constant(),
    "rate-falls-twice": W.Step(milestones=(2, 4), gamma=0.3),
}
MODELS = {
    **EVERY_LAYER,
    "embedding-with-unread-entries": chain(
        (2,), W.Embedding(entries=40, features=3), W.Linear(out_features=CLASSES), kind="index"
    ),
}


#: Every optimizer where a step is quick, and one of each kind for models of every layer type. A rate that falls
#: is a constant one at first, which one of each kind has to the end.
_QUICK = ("features", "embedding-with-unread-entries")
_OF_EACH_KIND = ("momentum-with-decay", "nesterov", "adam-with-decay", "clipped-with-decay")
UPDATES = [
    *itertools.product(_QUICK, OPTIMIZERS, ["rate-falls-twice"]),
    *itertools.product(_QUICK[1:], _OF_EACH_KIND, ["constant"]),
    *(
        (model, optimizer, "rate-falls-twice")
        for model in MODELS
        if model not in _QUICK
        for optimizer in _OF_EACH_KIND
    ),
]


@pytest.mark.parametrize(("model", "optimizer", "schedule"), UPDATES)
def test_steps_follow_the_formulas(
    adapter: Adapter, model: str, optimizer: str, schedule: str
) -> None:
    _assert_follows(adapter, MODELS[model], OPTIMIZERS[optimizer], SCHEDULES[schedule])


@pytest.mark.parametrize("optimizer", FURTHER)
def test_further_optimizers_follow_the_formulas(adapter: Adapter, optimizer: str) -> None:
    model, by = MODELS["embedding-with-unread-entries"], FURTHER[optimizer]
    _assert_follows(adapter, model, by, SCHEDULES["rate-falls-twice"])


@pytest.mark.parametrize("model", ["maps", "sequence", "patches"])
def test_each_parameter_is_clipped_and_decays_by_its_role(adapter: Adapter, model: str) -> None:
    """Also where a framework keeps several parameters in one."""
    rates = SCHEDULES["constant"]
    _assert_follows(adapter, MODELS[model], FURTHER["clipped-by-variable"], rates)


def _assert_follows(
    adapter: Adapter, described: W.Model, by: W.Optimizer, rates: W.Schedule
) -> None:
    adapter.require(described, "float64", by)
    weights = random_weights(described)
    built = adapter.build(described, weights, optimizer=by, schedule=rates)
    formula = Formula(by, {name: weights[name] for name in trained_names(described)})
    inputs, labels = random_batch(described, samples=8)
    order = row_order(8, STEPS)
    for step, rate in steps_of(adapter, built, by, rates, inputs, labels, order):
        parts = in_parts(by.accumulate, inputs[order[step]], labels[order[step]])
        formula.step(mean_gradients(built.gradients(*part).parameters for part in parts), rate)
    found = built.weights()
    for name, true in formula.weights.items():
        assert_near(found[name], true, UPDATE, "float64", f"{name} after {STEPS} steps")
    _assert_computes_with(built, described, inputs[:BATCH])
    state = built.optimizer_state()
    assert set(state) == set(formula.state)
    for name, true in formula.state.items():
        assert_near(state[name], true, UPDATE, "float64", f"{name} after {STEPS} steps")


def _assert_computes_with(built: BuiltModel, model: W.Model, inputs: np.ndarray) -> None:
    """What is trained is what it hands out: no other copy, no second bias has moved unseen."""
    last = model.nodes[-1].name
    true = truth.values(model, built.weights(), inputs)[last]
    assert_near(built.forward(inputs)[last], true, FLOAT64, "float64", "logits after training")


@pytest.mark.parametrize("optimizer", ["rmsprop-momentum", "adagrad"])
def test_before_the_first_step_further_optimizers_have_no_state(
    adapter: Adapter, optimizer: str
) -> None:
    model, by = MODELS["embedding-with-unread-entries"], FURTHER[optimizer]
    adapter.require(model, "float64", by)
    built = adapter.build(model, random_weights(model), optimizer=by)
    assert not any(value.any() for value in built.optimizer_state().values())


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", ["maps", "features"])
def test_before_the_first_step_the_state_is_empty_or_zero(
    adapter: Adapter, name: str, optimizer: str
) -> None:
    model, by = MODELS[name], OPTIMIZERS[optimizer]
    adapter.require(model, "float64", by)
    built = adapter.build(model, random_weights(model), optimizer=by)
    for key, value in built.optimizer_state().items():
        assert not value.any(), key


@pytest.mark.parametrize(
    ("model", "optimizer"),
    [
        *itertools.product(["sequence", "features"], ["momentum", "adam"]),
        *(
            ("embedding-with-unread-entries", name)
            for name in (
                *("adamw", "rmsprop", "rmsprop-inside", "adagrad", "adadelta", "adamax"),
                *("clipped-by-variable", "decoupled-decay-of-weights", "amsgrad"),
            )
        ),
    ],
)
def test_float32_steps_follow_the_formulas_as_far_as_float32_goes(
    adapter: Adapter, model: str, optimizer: str
) -> None:
    described, by = MODELS[model], {**OPTIMIZERS, **FURTHER}[optimizer]
    adapter.require(described, "float32", by)
    weights = random_weights(described)
    built = adapter.build(described, weights, "float32", optimizer=by)
    formula = Formula(by, {name: weights[name] for name in trained_names(described)})
    inputs, labels = random_batch(described, "float32", samples=8)
    order = row_order(8, STEPS)
    for step, rate in steps_of(adapter, built, by, W.Constant(), inputs, labels, order):
        rows = order[step]
        formula.step(built.gradients(inputs[rows], labels[rows]).parameters, rate)
    found = built.weights()
    for name, true in formula.weights.items():
        # Five roundings of each weight and its gradient, 6e-8 each.
        assert_near(found[name], true, 2e-6, "float32", f"{name} after {STEPS} steps")
    state = built.optimizer_state()
    assert set(state) == set(formula.state)
    for name, true in formula.state.items():
        assert_near(state[name], true, 2e-6, "float32", f"{name} after {STEPS} steps")


@pytest.mark.parametrize("via", ["pipeline", "memory"])
@pytest.mark.parametrize("name", MODELS)
def test_a_step_gives_the_loss_before_the_update(adapter: Adapter, name: str, via: str) -> None:
    model = MODELS[name]
    adapter.require(model, "float64")
    built = adapter.build(model, random_weights(model))
    inputs, labels = random_batch(model, samples=8)
    order = row_order(8, 3)
    for rows, batch in zip(order, adapter.load(inputs, labels, order, via)):
        true = truth.loss(model, built.weights(), inputs[rows], labels[rows])
        found = float(built.train_step(*batch))
        assert abs(found - true) <= FLOAT64 * abs(true)


def test_the_loss_of_parts_is_their_mean(adapter: Adapter) -> None:
    model, by = MODELS["maps"], W.SGD(learning_rate=0.05, accumulate=2)
    adapter.require(model, "float64", by)
    built = adapter.build(model, random_weights(model), batch_size=8, optimizer=by)
    inputs, labels = random_batch(model, samples=8)
    parts = in_parts(by.accumulate, inputs, labels)
    true = np.mean([truth.loss(model, built.weights(), *part) for part in parts])
    found = float(built.train_step(*adapter.native(inputs, labels)))
    assert abs(found - true) <= FLOAT64 * abs(true)


@pytest.mark.parametrize(
    ("name", "optimizer"),
    [
        *itertools.product(
            ["maps", "features", "sequence"], ["momentum-with-decay", "clipped-with-decay"]
        ),
        ("sequence", "accumulated-in-adam"),
    ],
)
def test_a_step_in_phases_is_a_step(adapter: Adapter, name: str, optimizer: str) -> None:
    model, by = MODELS[name], {**OPTIMIZERS, **FURTHER}[optimizer]
    adapter.require(model, "float32", by)
    weights = random_weights(model)
    inputs, labels = random_batch(model, "float32", samples=8)
    batches = list(adapter.load(inputs, labels, row_order(8, 2), "memory"))
    whole, divided = (adapter.build(model, weights, "float32", optimizer=by) for _ in range(2))
    for built in (whole, divided):
        built.set_learning_rate(by.learning_rate)
    for batch in batches:
        loss = float(whole.train_step(*batch))
        try:
            parts = [(phase, result) for phase, result in divided.step_phases(*batch)]
        except UnsupportedError as error:
            assert str(error), "a sentence says why a step is one piece"
            return
        phases = [*PHASES[:2] * by.accumulate, PHASES[2]]
        assert [phase for phase, _ in parts] == phases
        assert float(parts[-1][1]) == loss
    for key, array in whole.weights().items():
        np.testing.assert_array_equal(divided.weights()[key], array, err_msg=key)


@pytest.mark.parametrize("name", ["maps", "features"])
def test_a_rate_set_before_a_step_acts_in_that_step(adapter: Adapter, name: str) -> None:
    model = EVERY_LAYER[name]
    adapter.require(model, "float64")
    weights = random_weights(model)
    inputs, labels = random_batch(model)
    batch = adapter.native(inputs, labels)
    moved = {}
    for rate in (0.05, 0.1):
        built = adapter.build(model, weights)
        built.set_learning_rate(0.7)
        built.set_learning_rate(rate)
        built.train_step(*batch)
        after = built.weights()["logits.weight"]
        moved[rate] = after - weights["logits.weight"]
    np.testing.assert_allclose(moved[0.1], 2 * moved[0.05], rtol=1e-10, atol=1e-15)
