"""A variant ``precision=bfloat16``: matrix products in bfloat16, weights and the update in float32."""

from __future__ import annotations

import numpy as np
import pytest

from dlb.errors import UnsupportedError
from dlb.proof.rounding import BFLOAT16
from dlb_graph import workload as W
from dlb_graph.comparing.distance import relative_l2
from dlb_worker.contract import PRECISION

from . import truth
from .models import CLASSES, classifier, random_batch, random_weights
from .subject import BATCH, Adapter

MODEL = classifier(
    (3, 9, 8),
    W.Conv(out_channels=4, kernel=(3, 3), pads=(1, 1, 1, 1)),
    W.BatchNorm(),
    W.ReLU(),
)
OPTIMIZER = W.SGD(learning_rate=0.05, momentum=0.9)
LAST = MODEL.nodes[-1].name
CHOSEN = {PRECISION: "bfloat16"}


@pytest.fixture
def mixed(adapter: Adapter) -> Adapter:
    if "bfloat16" not in adapter.described.variants.get(PRECISION, ()):
        pytest.skip(f"adapter '{adapter.name}' offers no {PRECISION}=bfloat16")
    adapter.require(MODEL, "float32", OPTIMIZER)
    return adapter


def test_values_and_gradients_are_rounded_and_weights_are_not(mixed: Adapter) -> None:
    weights = random_weights(MODEL)
    built = mixed.build(MODEL, weights, "float32", optimizer=OPTIMIZER, variant=CHOSEN)
    plain = mixed.build(MODEL, weights, "float32", optimizer=OPTIMIZER)
    inputs, labels = random_batch(MODEL, "float32")
    true = truth.values(MODEL, weights, inputs)[LAST]
    found, full = built.forward(inputs)[LAST], plain.forward(inputs)[LAST]
    assert found.dtype == np.float32 and found.shape == (BATCH, CLASSES)
    # Rounding shows, and it is some roundings of bfloat16.
    assert relative_l2(full, true) < 1e-5 < relative_l2(found, true) < 10 * BFLOAT16.least
    gradients, others = (each.gradients(inputs, labels) for each in (built, plain))
    for key, gradient in gradients.parameters.items():
        assert gradient.dtype == np.float32, key
    assert not (gradients.parameters[f"{LAST}.weight"] == others.parameters[f"{LAST}.weight"]).all()
    for key, value in built.weights().items():
        assert value.dtype == np.float32 and (value == weights[key]).all(), key


def test_a_step_adds_what_bfloat16_does_not_hold(mixed: Adapter) -> None:
    """A change of a thousandth of a unit of bfloat16 is lost where weights are kept in it."""
    weights = random_weights(MODEL)
    slow = W.SGD(learning_rate=1e-5)
    built = mixed.build(MODEL, weights, "float32", optimizer=slow, variant=CHOSEN)
    batch = mixed.native(*random_batch(MODEL, "float32"))
    float(built.train_step(*batch))
    moved = [key for key, value in built.weights().items() if (value != weights[key]).any()]
    assert {f"{LAST}.weight", f"{LAST}.bias"} <= set(moved)


def test_it_is_refused_in_float64(mixed: Adapter) -> None:
    with pytest.raises(UnsupportedError, match="float32"):
        mixed.build(MODEL, random_weights(MODEL), "float64", variant=CHOSEN)
