"""Dropout: the identity in evaluation and at rate 0, its definition in training, and with masks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dlb_graph import workload as W
from dlb_graph.workload.initial import proof_masks

from . import truth
from .closeness import FLOAT32, FLOAT64, assert_near, assert_same_bits, distance
from .gradient_checks import assert_gradients
from .models import CLASSES, chain, classifier, random_batch, random_weights
from .subject import Adapter

pytestmark = pytest.mark.layer(type="dropout")

SAMPLES, FEATURES = 64, 600
RATES = (0.5, 0.3, 0.9)
BOUND = {"float64": FLOAT64, "float32": FLOAT32}


def _model(rate: float) -> W.Model:
    return chain((FEATURES,), W.Dropout(rate=rate), W.Linear(out_features=CLASSES))


def _inputs(dtype: str) -> np.ndarray:
    """None of them zero, so that a zero is a dropped one."""
    return (1.0 + np.random.default_rng(0).random((SAMPLES, FEATURES))).astype(dtype)


def _dropped(adapter: Adapter, rate: float, dtype: str, passes: int) -> list[np.ndarray]:
    model = _model(rate)
    adapter.require(model, dtype)
    built = adapter.build(model, random_weights(model), dtype, batch_size=SAMPLES)
    name = model.nodes[0].name
    inputs = _inputs(dtype)
    return [built.forward(inputs, training=True, layers=[name])[name] for _ in range(passes)]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("rate", RATES)
def test_kept_elements_are_scaled_and_the_rest_are_zero(
    adapter: Adapter, rate: float, dtype: str
) -> None:
    (found,) = _dropped(adapter, rate, dtype, 1)
    kept = found != 0
    assert distance(found[kept], _inputs(dtype)[kept] / (1 - rate)) <= BOUND[dtype]


@pytest.mark.parametrize("rate", RATES)
def test_as_many_are_dropped_as_the_rate_says(adapter: Adapter, rate: float) -> None:
    found = np.stack(_dropped(adapter, rate, "float32", 4))
    count = found.size
    # Five standard deviations of a binomial: by chance, once in two million runs.
    slack = 5 * math.sqrt(rate * (1 - rate) / count)
    assert abs((found == 0).mean() - rate) <= slack
    # And so everywhere: in each sample, and of each feature, within what so few can show.
    for axis, trials in ((2, FEATURES), (1, SAMPLES)):
        shares = (found == 0).mean(axis=axis)
        assert np.abs(shares - rate).max() <= 6 * math.sqrt(rate * (1 - rate) / trials)


def test_every_pass_has_its_own_mask(adapter: Adapter) -> None:
    first, second = _dropped(adapter, 0.5, "float32", 2)
    # Two independent masks at rate 0.5 agree on half of the elements.
    agreement = ((first == 0) == (second == 0)).mean()
    assert abs(agreement - 0.5) <= 0.02


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    ("rate", "training"), [(0.5, False), (0.9, False), (0.0, True), (0.0, False)]
)
def test_it_is_the_identity(adapter: Adapter, rate: float, training: bool, dtype: str) -> None:
    model = _model(rate)
    adapter.require(model, dtype)
    built = adapter.build(model, random_weights(model), dtype, batch_size=SAMPLES)
    name, inputs = model.nodes[0].name, _inputs(dtype)
    found = built.forward(inputs, training=training, layers=[name])[name]
    assert_same_bits(found, inputs, "what dropout let through")


def test_no_gradient_passes_what_was_dropped(adapter: Adapter) -> None:
    rate = 0.3
    model = _model(rate)
    adapter.require(model, "float64")
    built = adapter.build(model, random_weights(model), batch_size=SAMPLES)
    found = built.gradients(_inputs("float64"), np.zeros(SAMPLES, np.int64))
    assert found.inputs is not None
    stopped = (found.inputs == 0).mean()
    assert abs(stopped - rate) <= 5 * math.sqrt(rate * (1 - rate) / found.inputs.size)


def test_training_steps_drop_too(adapter: Adapter) -> None:
    """With weights that stand still, steps on one batch differ only by their masks."""
    model = _model(0.5)
    adapter.require(model, "float64")
    still = W.SGD(learning_rate=1e-40)
    built = adapter.build(model, random_weights(model), batch_size=SAMPLES, optimizer=still)
    batch = adapter.native(_inputs("float64"), np.zeros(SAMPLES, np.int64))
    assert len({float(built.train_step(*batch)) for _ in range(4)}) == 4


def test_a_step_draws_the_masks_of_a_pass_again(adapter: Adapter) -> None:
    """With weights that stand still, the loss of a step is that of the masks that a pass drew."""
    model = MASKED["two-in-a-row"]
    adapter.require(model, "float64")
    adapter.require_feature("repeatable_dropout")
    still, weights = W.SGD(learning_rate=1e-40), random_weights(model)
    built = adapter.build(model, weights, batch_size=SAMPLES, optimizer=still)
    inputs, labels = random_batch(model, samples=SAMPLES)
    dropouts = [node.name for node in model.nodes if isinstance(node.layer, W.Dropout)]
    seen = set()
    for seed in (11, 12, 11):
        built.seed_dropout(seed)
        values = built.forward(inputs, training=True, layers=dropouts)
        masks = {name: (values[name] != 0).astype(np.float32) for name in dropouts}
        built.seed_dropout(seed)
        loss = float(built.train_step(*adapter.native(inputs, labels)))
        true = truth.loss(model, weights, inputs, labels, masks)
        assert loss == pytest.approx(true, rel=FLOAT64)
        seen.add(loss)
    assert len(seen) == 2


# --- by masks that are given -----------------------------------------------------------------

#: Dropouts where values lie in other ways: features, maps, what is flattened, a sequence, and the
#: input itself. No rate is 0.5, which is its own complement.
MASKED = {
    "features": chain((9,), W.Dropout(rate=0.3), W.Linear(out_features=CLASSES)),
    "maps": classifier(
        (2, 5, 4), W.Conv(out_channels=3, kernel=(2, 2)), W.Dropout(rate=0.2), W.Tanh()
    ),
    "flattened": chain(
        (2, 5, 4),
        W.Conv(out_channels=3, kernel=(2, 2)),
        W.Flatten(),
        W.Dropout(rate=0.4),
        W.Linear(out_features=CLASSES),
    ),
    "sequence": chain(
        (4, 3), W.LSTM(hidden=6), W.Dropout(rate=0.6), W.Linear(out_features=CLASSES)
    ),
    "two-in-a-row": chain(
        (9,), W.Dropout(rate=0.3), W.Tanh(), W.Dropout(rate=0.7), W.Linear(out_features=CLASSES)
    ),
}
#: Rows of the masks, and samples of batches: all of them, and fewer.
ROWS, BATCHES = 7, (7, 3)


def _masked(adapter: Adapter, name: str) -> tuple[W.Model, dict[str, np.ndarray], Any]:
    """A model, its weights and masks; skips where the adapter's contract has no masks."""
    model = MASKED[name]
    adapter.require(model, "float64")
    adapter.require_feature("masks")
    return model, random_weights(model), proof_masks(model, 5, ROWS)


def _first(masks: dict[str, np.ndarray], samples: int) -> dict[str, np.ndarray]:
    return {name: mask[:samples] for name, mask in masks.items()}


@pytest.mark.parametrize("samples", BATCHES)
@pytest.mark.parametrize("name", MASKED)
def test_a_mask_decides_what_is_dropped(adapter: Adapter, name: str, samples: int) -> None:
    model, weights, masks = _masked(adapter, name)
    built = adapter.build(model, weights, batch_size=samples, masks=masks)
    inputs, _ = random_batch(model, samples=samples)
    layers = [node.name for node in model.nodes]
    true = truth.values(model, weights, inputs, training=True, masks=_first(masks, samples))
    for _ in range(2):
        found = built.forward(inputs, training=True, layers=layers)
        for layer in layers:
            assert_near(found[layer], true[layer], FLOAT64, "float64", layer)


@pytest.mark.parametrize("name", MASKED)
def test_a_mask_is_nothing_in_evaluation(adapter: Adapter, name: str) -> None:
    model, weights, masks = _masked(adapter, name)
    inputs, _ = random_batch(model, samples=ROWS)
    last = model.nodes[-1].name
    with_masks, without = (
        adapter.build(model, weights, batch_size=ROWS, masks=given).forward(inputs)[last]
        for given in (masks, None)
    )
    assert_same_bits(with_masks, without, last)


@pytest.mark.parametrize("samples", BATCHES)
@pytest.mark.parametrize("name", MASKED)
def test_gradients_pass_where_the_mask_lets_them(adapter: Adapter, name: str, samples: int) -> None:
    model, weights, masks = _masked(adapter, name)
    built = adapter.build(model, weights, batch_size=samples, masks=masks)
    inputs, labels = random_batch(model, samples=samples)
    found = built.gradients(inputs, labels)
    first = _first(masks, samples)
    assert_gradients(found, model, weights, inputs, labels, masks=first)
    loss = float(built.train_step(*adapter.native(inputs, labels)))
    assert loss == pytest.approx(truth.loss(model, weights, inputs, labels, first), rel=FLOAT64)


def test_a_layer_without_a_mask_draws(adapter: Adapter) -> None:
    model, weights, masks = _masked(adapter, "two-in-a-row")
    given, drawn = masks
    built = adapter.build(model, weights, batch_size=ROWS, masks={given: masks[given]})
    inputs, _ = random_batch(model, samples=ROWS)
    passes = [built.forward(inputs, training=True, layers=[given, drawn]) for _ in range(4)]
    assert len({each[given].tobytes() for each in passes}) == 1
    assert len({each[drawn].tobytes() for each in passes}) > 1


@pytest.mark.parametrize("name", MASKED)
def test_masks_can_be_replaced(adapter: Adapter, name: str) -> None:
    model, weights, masks = _masked(adapter, name)
    adapter.require_feature("repeatable_dropout")
    others = proof_masks(model, 6, ROWS)
    built = adapter.build(model, weights, batch_size=ROWS, masks=masks)
    inputs, labels = random_batch(model, samples=ROWS)
    built.gradients(inputs, labels)
    built.load_masks(others)
    assert_gradients(built.gradients(inputs, labels), model, weights, inputs, labels, masks=others)
