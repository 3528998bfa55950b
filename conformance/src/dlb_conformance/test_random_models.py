"""Whatever model holds together is built as described: random graphs of the described layers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlb_graph import workload as W

from . import truth
from .closeness import FLOAT64, UPDATE, assert_near
from .gradient_checks import assert_gradients
from .models import random_batch, random_weights
from .random_models import models
from .subject import PLAIN, Adapter

#: Ten more layers than in the table of single ones: another digit.
_BOUND = 10 * FLOAT64


@pytest.fixture(scope="session")
def checked(adapter: Adapter) -> Callable[[W.Model, int], None]:
    """Builds a model and checks its values, its gradients and one step of training."""

    def check(model: W.Model, seed: int) -> None:
        weights = random_weights(model, seed)
        inputs, labels = random_batch(model, seed=seed + 1)
        built = adapter.build(model, weights)
        names = [node.name for node in model.nodes]
        for training in (False, True):
            true = truth.values(model, weights, inputs, training=training)
            found = built.forward(inputs, training=training, layers=names)
            for name in names:
                assert_near(found[name], true[name], _BOUND, "float64", name)
        gradients = built.gradients(inputs, labels)
        assert_gradients(gradients, model, weights, inputs, labels)
        loss = float(built.train_step(*adapter.native(inputs, labels)))
        assert loss == pytest.approx(float(gradients.loss), rel=FLOAT64)
        after = built.weights()
        for name, gradient in gradients.parameters.items():
            moved = weights[name] - PLAIN.learning_rate * gradient.astype(np.float64)
            assert_near(after[name], moved, UPDATE, "float64", name)
        if "float32" in adapter.described.dtypes:
            # Other operators than in float64, as fast ones are: they must take what is before them.
            rounded = adapter.build(model, weights, "float32")
            inputs, labels = random_batch(model, "float32", seed=seed + 1)
            assert np.isfinite(float(rounded.train_step(*adapter.native(inputs, labels))))

    return check


def test_random_models(
    adapter: Adapter, checked: Callable[[W.Model, int], None], pytestconfig: pytest.Config
) -> None:
    many = pytestconfig.getoption("--long", default=False)
    types = frozenset(adapter.described.layers)
    shared = "shared_layers" in adapter.described.features
    adapter.require(dtype="float64")

    @settings(
        max_examples=500 if many else 25,
        derandomize=not many,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(model=models(types, shared=shared), seed=st.integers(0, 2**16))
    def run(model: W.Model, seed: int) -> None:
        checked(model, seed)

    run()
