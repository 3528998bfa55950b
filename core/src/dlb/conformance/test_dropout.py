"""Dropout: the identity in evaluation and at rate 0, its definition in training."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dlb import workload as W

from .closeness import FLOAT32, FLOAT64, assert_same_bits, distance
from .models import CLASSES, chain, random_weights
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
