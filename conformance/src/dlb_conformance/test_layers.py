"""Each layer type, over a table of odd attributes: values and gradients are the canonical ones."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pytest

from dlb_graph import workload as W
from dlb_graph.workload.shapes import trained_names
from dlb_worker.contract import Gradients
from dlb_worker.native import BuiltModel

from . import truth
from .closeness import VALUES, assert_near
from .gradient_checks import assert_gradients, assert_slopes, by_name
from .layer_cases import BY_LAYER, CASES, EVERY_LAYER
from .models import CLASSES, chain, random_batch, random_weights
from .subject import Adapter
from .window_cases import FILMS

MODELS = {**CASES, **{f"every-layer-{name}": model for name, model in EVERY_LAYER.items()}}
#: What each is about, beside the models that are about no one layer.
ABOUT = {name: pytest.mark.layer(type=kind) for kind, models in BY_LAYER.items() for name in models}
#: Float64 shows every formula. Float32, which adapters may build otherwise, is tried twice for each layer type.
IN_FLOAT32 = {name for models in BY_LAYER.values() for name in [*models][:2]}
IN_FLOAT32 |= (MODELS.keys() - CASES.keys()) | FILMS.keys()
IN_FLOAT32 |= {"max_pool-of-films", "average_pool-of-films", "max_pool-dilation"}
#: The first of each layer type: of a call without layers, whose answer is that with layers in all else, and of
#: slopes by differences, which the core's tests compare with its own backward pass in every case.
FIRST = [next(iter(models)) for models in BY_LAYER.values()]


@dataclass(frozen=True)
class Case:
    """A model of the table as the adapter built it, its weights, and a batch of its dtype."""

    model: W.Model
    dtype: str
    weights: dict[str, np.ndarray]
    inputs: np.ndarray
    labels: np.ndarray
    built: BuiltModel

    def true_values(self, training: bool) -> dict[str, np.ndarray]:
        return self._training_values if training else self._evaluation_values

    @cached_property
    def gradients(self) -> Gradients:
        """What the adapter differentiates, computed once for all tests of the case."""
        return self.built.gradients(self.inputs, self.labels)

    @cached_property
    def _evaluation_values(self) -> dict[str, np.ndarray]:
        return truth.values(self.model, self.weights, self.inputs)

    @cached_property
    def _training_values(self) -> dict[str, np.ndarray]:
        return truth.values(self.model, self.weights, self.inputs, training=True)


def _param(name: str, dtype: str) -> Any:
    return pytest.param((name, dtype), id=f"{name}-{dtype}", marks=ABOUT.get(name, ()))


@pytest.fixture(
    scope="module",
    params=[
        _param(name, dtype)
        for name in MODELS
        for dtype in ("float64", *(["float32"] if name in IN_FLOAT32 else []))
    ],
)
def case(adapter: Adapter, request: pytest.FixtureRequest) -> Case:
    name, dtype = request.param
    model = MODELS[name]
    adapter.require(model, dtype)
    weights = random_weights(model)
    inputs, labels = random_batch(model, dtype)
    return Case(model, dtype, weights, inputs, labels, adapter.build(model, weights, dtype))


@pytest.mark.parametrize("training", [False, True], ids=["evaluation", "training"])
@pytest.mark.parametrize("case", [_param(name, "float64") for name in FIRST], indirect=True)
def test_the_logits_are_the_canonical_ones(case: Case, training: bool) -> None:
    found = case.built.forward(case.inputs, training=training)
    last = case.model.nodes[-1].name
    assert list(found) == [last]
    true = case.true_values(training)[last]
    assert_near(found[last], true, VALUES[case.dtype], case.dtype, last)


@pytest.mark.parametrize("training", [False, True], ids=["evaluation", "training"])
def test_every_layer_value_is_the_canonical_one(case: Case, training: bool) -> None:
    names = [node.name for node in case.model.nodes]
    found = case.built.forward(case.inputs, training=training, layers=names)
    assert set(found) == set(names)
    for name in names:
        true = case.true_values(training)[name]
        assert_near(found[name], true, VALUES[case.dtype], case.dtype, name)


def test_the_loss_is_the_mean_over_the_batch(case: Case) -> None:
    true = truth.loss(case.model, case.weights, case.inputs, case.labels)
    found = case.gradients.loss
    assert_near(np.asarray(found), np.asarray(true), VALUES[case.dtype], case.dtype, "the loss")


def test_gradients_are_of_every_trained_parameter_and_the_input(case: Case) -> None:
    found = case.gradients
    shapes = W.parameter_shapes(case.model)
    assert set(found.parameters) == set(trained_names(case.model))
    for name, gradient in found.parameters.items():
        assert gradient.shape == shapes[name], name
        assert gradient.dtype == np.dtype(case.dtype), name
    if case.model.input.kind == "index":
        assert found.inputs is None
    else:
        assert found.inputs is not None
        assert found.inputs.shape == case.inputs.shape
        assert found.inputs.dtype == np.dtype(case.dtype)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("layer", [W.ReLU(), W.ReLU6()], ids=W.type_name)
def test_nothing_flows_back_through_a_kink_at_zero(
    adapter: Adapter, layer: W.Layer, dtype: str
) -> None:
    """No slope tells it, and whole regions of an image may be zeros."""
    model = chain((6,), layer, W.Linear(out_features=CLASSES))
    adapter.require(model, dtype)
    _, labels = random_batch(model, dtype)
    inputs = np.zeros((len(labels), 6), dtype)
    inputs[:, 3:] = 2.0
    found = adapter.build(model, random_weights(model), dtype).gradients(inputs, labels)
    assert found.inputs is not None
    assert not found.inputs[:, :3].any() and found.inputs[:, 3:].all()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("shared", [False, True])
def test_the_gradient_of_a_prelu_at_zero_is_its_slope(
    adapter: Adapter, shared: bool, dtype: str
) -> None:
    """Frameworks have 0 or 1 there too. Just below zero it is the slope for sure."""
    model = chain((6,), W.PReLU(shared=shared), W.Linear(out_features=CLASSES))
    adapter.require(model, dtype)
    _, labels = random_batch(model, dtype)
    built = adapter.build(model, random_weights(model), dtype)
    at_zero, below = (
        built.gradients(np.full((len(labels), 6), x, dtype), labels).inputs for x in (0.0, -1e-20)
    )
    assert at_zero is not None and below is not None
    assert at_zero.any() and np.array_equal(at_zero, below)


def test_gradients_are_those_of_the_canonical_loss(case: Case) -> None:
    found = case.gradients
    assert_gradients(found, case.model, case.weights, case.inputs, case.labels, case.dtype)


@pytest.mark.parametrize("case", [_param(name, "float64") for name in FIRST], indirect=True)
def test_gradients_are_the_slopes_of_the_canonical_loss(case: Case) -> None:
    """By differences, which no formula of the core enters."""
    found = by_name(case.gradients, case.model)
    assert_slopes(found, case.model, case.weights, case.inputs, case.labels)
