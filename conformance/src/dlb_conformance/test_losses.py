"""The loss with smoothed labels and with class weights, of images and of sequences."""

from __future__ import annotations

import numpy as np
import pytest

from dlb import workload as W

from . import truth
from .closeness import FLOAT64, VALUES, assert_near
from .gradient_checks import assert_gradients
from .layer_cases import EVERY_LAYER
from .models import random_batch, random_weights
from .subject import PLAIN, Adapter

SMOOTHED = W.SoftmaxCrossEntropy(label_smoothing=0.3)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", EVERY_LAYER)
def test_smoothed_labels_give_the_loss_and_the_slopes_of_the_canonical_graph(
    adapter: Adapter, name: str, dtype: str
) -> None:
    model = EVERY_LAYER[name]
    adapter.require(model, dtype, loss=SMOOTHED)
    weights = random_weights(model)
    inputs, labels = random_batch(model, dtype)
    found = adapter.build(model, weights, dtype, loss=SMOOTHED).gradients(inputs, labels)
    true = truth.loss(model, weights, inputs, labels, by=SMOOTHED)
    plain = truth.loss(model, weights, inputs, labels)
    assert abs(true - plain) > 1e-4 * abs(true)  # or a loss that is not smoothed would pass
    assert_near(np.asarray(found.loss), np.asarray(true), VALUES[dtype], dtype, "the loss")
    assert_gradients(found, model, weights, inputs, labels, dtype, by=SMOOTHED)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("name", ["features", "sequence"])
def test_class_weights_multiply_the_loss_of_each_label(
    adapter: Adapter, name: str, smoothing: float, dtype: str
) -> None:
    model = EVERY_LAYER[name]
    classes = W.infer_shapes(model)[model.nodes[-1].name][-1]
    # Label 0 is ignored.
    by = W.SoftmaxCrossEntropy(
        label_smoothing=smoothing, class_weights=tuple(0.7 * label for label in range(classes))
    )
    adapter.require(model, dtype, loss=by)
    weights = random_weights(model)
    inputs, labels = random_batch(model, dtype)
    built = adapter.build(model, weights, dtype, batch_size=len(labels), loss=by)
    found = built.gradients(inputs, labels)
    true = truth.loss(model, weights, inputs, labels, by=by)
    assert_near(np.asarray(found.loss), np.asarray(true), VALUES[dtype], dtype, "the loss")
    assert_gradients(found, model, weights, inputs, labels, dtype, by=by)
    lost = np.asarray(float(built.train_step(*adapter.native(inputs, labels))), dtype)
    assert_near(lost, np.asarray(true), VALUES[dtype], dtype, "the loss of a step")


@pytest.mark.parametrize("name", EVERY_LAYER)
def test_a_step_is_by_the_smoothed_loss(adapter: Adapter, name: str) -> None:
    model = EVERY_LAYER[name]
    adapter.require(model, "float64", loss=SMOOTHED)
    weights = random_weights(model)
    inputs, labels = random_batch(model)
    built = adapter.build(model, weights, batch_size=len(labels), loss=SMOOTHED)
    gradients = built.gradients(inputs, labels).parameters
    lost = float(built.train_step(*adapter.native(inputs, labels)))
    true = truth.loss(model, weights, inputs, labels, by=SMOOTHED)
    assert abs(lost - true) <= FLOAT64 * abs(true)
    moved = built.weights()
    for key, gradient in gradients.items():
        assert_near(
            moved[key],
            weights[key] - np.multiply(PLAIN.learning_rate, gradient),
            FLOAT64,
            "float64",
            key,
        )
