"""Running statistics: moved by training steps, by the biased variance, and by nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from dlb_graph import workload as W
from dlb_worker.parts import in_parts, mean_gradients

from . import truth
from .closeness import UPDATE, assert_near
from .models import CLASSES, chain, classifier, graph, random_batch, random_weights
from .subject import PLAIN, Adapter
from .training import row_order, steps_of

pytestmark = pytest.mark.layer(type="batch_norm")

_TWO = graph(
    (3, 5, 4),
    ("conv", W.Conv(out_channels=4, kernel=(2, 2)), ("input",)),
    ("first", W.BatchNorm(momentum=0.75), ("conv",)),
    ("relu", W.ReLU(), ("first",)),
    ("flat", W.Flatten(), ("relu",)),
    ("hidden", W.Linear(out_features=6), ("flat",)),
    ("second", W.BatchNorm(momentum=0.4, epsilon=0.1), ("hidden",)),
    ("logits", W.Linear(out_features=CLASSES), ("second",)),
)

MODELS = {
    "maps": classifier((3, 5, 4), W.BatchNorm()),
    "maps-momentum-0.73": classifier((3, 5, 4), W.BatchNorm(momentum=0.73)),
    "maps-of-one-pixel": classifier((3, 1, 1), W.BatchNorm(momentum=0.6)),
    "features": chain((6,), W.BatchNorm(), W.Linear(out_features=CLASSES)),
    "features-momentum-0.25": chain(
        (6,), W.BatchNorm(momentum=0.25, epsilon=0.3), W.Linear(out_features=CLASSES)
    ),
    "only-the-last-batch-counts": classifier((3, 5, 4), W.BatchNorm(momentum=0.0)),
    "statistics-never-move": classifier((3, 5, 4), W.BatchNorm(momentum=1.0)),
    "one-after-the-other": _TWO,
}


@pytest.mark.parametrize("name", MODELS)
def test_training_steps_move_running_statistics_as_defined(adapter: Adapter, name: str) -> None:
    model = MODELS[name]
    adapter.require(model, "float64")
    built = adapter.build(model, random_weights(model))
    inputs, labels = random_batch(model, samples=8)
    order = row_order(8, 4)
    states = W.state_names(model)
    true = {state: built.weights()[state] for state in states}
    for step, _ in steps_of(adapter, built, PLAIN, W.Constant(), inputs, labels, order):
        held = {**built.weights(), **true}
        moved = truth.values(model, held, inputs[order[step]], training=True)
        true = {state: moved[f"{state}/running"] for state in states}
    found = built.weights()
    for state in states:
        assert_near(found[state], true[state], UPDATE, "float64", state)


@pytest.mark.parametrize("name", ["maps", "features-momentum-0.25", "one-after-the-other"])
def test_each_part_of_a_batch_has_statistics_of_its_own(adapter: Adapter, name: str) -> None:
    """And moves the running ones, and gives its share of the gradient."""
    model, by = MODELS[name], W.SGD(learning_rate=0.05, accumulate=2)
    adapter.require(model, "float64", by)
    weights = random_weights(model)
    built = adapter.build(model, weights, batch_size=8, optimizer=by)
    inputs, labels = random_batch(model, samples=8)
    parts = list(in_parts(by.accumulate, inputs, labels))
    gradients = mean_gradients(built.gradients(*part).parameters for part in parts)
    true: dict[str, np.ndarray] = {}
    for part, _ in parts:
        moved = truth.values(model, {**weights, **true}, part, training=True)
        true = {state: moved[f"{state}/running"] for state in W.state_names(model)}
    for parameter, gradient in gradients.items():
        true[parameter] = weights[parameter] - by.learning_rate * gradient
    built.train_step(*adapter.native(inputs, labels))
    found = built.weights()
    for key, value in true.items():
        assert_near(found[key], value, UPDATE, "float64", key)


@pytest.mark.parametrize("name", ["maps-momentum-0.73", "features-momentum-0.25"])
def test_the_running_variance_is_of_the_biased_one(adapter: Adapter, name: str) -> None:
    """The definition, written out: dividing by n, where the unbiased variance divides by n - 1."""
    model = MODELS[name]
    adapter.require(model, "float64")
    weights = random_weights(model)
    built = adapter.build(model, weights)
    inputs, labels = random_batch(model)
    built.train_step(*adapter.native(inputs, labels))
    node = model.nodes[0]
    assert isinstance(node.layer, W.BatchNorm)
    momentum, axes = node.layer.momentum, (0, *range(2, inputs.ndim))
    batch = {
        "mean": inputs.mean(axes),
        "variance": ((inputs - inputs.mean(axes, keepdims=True)) ** 2).mean(axes),
    }
    for state, of_batch in batch.items():
        key = f"{node.name}.{state}"
        true = momentum * weights[key].astype(np.float64) + (1 - momentum) * of_batch
        assert_near(built.weights()[key], true, UPDATE, "float64", key)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_evaluation_uses_the_running_statistics_after_training(
    adapter: Adapter, dtype: str
) -> None:
    adapter.require(_TWO, dtype)
    built = adapter.build(_TWO, random_weights(_TWO), dtype)
    inputs, labels = random_batch(_TWO, dtype)
    built.train_step(*adapter.native(inputs, labels))
    true = truth.values(_TWO, built.weights(), inputs)
    found = built.forward(inputs, layers=[node.name for node in _TWO.nodes])
    for name, value in found.items():
        assert_near(value, true[name], {"float32": 1e-5, "float64": 1e-12}[dtype], dtype, name)
