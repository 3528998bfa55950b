"""The losses: of classes with smoothed labels and with class weights, and of targets of the outputs' shape."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from dlb_graph import workload as W

from . import truth
from .closeness import FLOAT64, VALUES, assert_near
from .gradient_checks import assert_gradients
from .models import CLASSES, chain, random_batch, random_weights
from .subject import PLAIN, Adapter

SMOOTHED = W.SoftmaxCrossEntropy(label_smoothing=0.3)
#: Outputs of each form that a loss reads; what comes before them is the layers' own matter.
MODELS: dict[str, W.Model] = {
    "features": chain((6,), W.Linear(out_features=7), W.ReLU(), W.Linear(out_features=CLASSES)),
    "sequence": chain((5, 4), W.Linear(out_features=CLASSES)),
    "map": chain((3, 6, 4), W.Conv(out_channels=CLASSES, kernel=(3, 2))),
}
#: Texts of a few steps; the blank is the first class, the last, and one between.
TEXTS = {
    "text": chain((6, 4), W.Linear(out_features=5)),
    "text-of-features": chain((12,), W.Linear(out_features=30), W.Reshape(shape=(6, 5))),
}
BLANKS = (0, 2, 4)
SMOOTHINGS = (0.0, 0.3)
FACTORS = tuple(0.5 + label for label in range(CLASSES))
#: Losses of targets of the outputs' shape. Errors are on both sides of Huber's deltas, which no float32 is.
OF_NUMBERS: dict[str, W.Loss] = {
    "binary_cross_entropy": W.BinaryCrossEntropy(),
    "squared_error": W.SquaredError(),
    "absolute_error": W.AbsoluteError(),
    "huber": W.Huber(delta=0.7),
    "huber-mostly-linear": W.Huber(delta=0.1),
}
#: Labels that are ignored, and maps of classes: of which model, and in which dtype.
IGNORED: dict[str, tuple[str, W.SoftmaxCrossEntropy, str]] = {
    "features-ignored": ("features", W.SoftmaxCrossEntropy(ignore_index=255), "float64"),
    "sequence-ignored-smoothed": (
        "sequence",
        W.SoftmaxCrossEntropy(ignore_index=-100, label_smoothing=0.3),
        "float32",
    ),
    "map": ("map", W.SoftmaxCrossEntropy(), "float64"),
    "map-ignored-weighted": (
        "map",
        W.SoftmaxCrossEntropy(ignore_index=1, class_weights=FACTORS),
        "float64",
    ),
    "map-ignored-smoothed-weighted": (
        "map",
        W.SoftmaxCrossEntropy(ignore_index=-100, label_smoothing=0.3, class_weights=FACTORS),
        "float32",
    ),
}


def weighted(name: str, smoothing: float) -> W.SoftmaxCrossEntropy:
    """A weight for each class of a model's outputs; label 0 is ignored."""
    model = MODELS[name]
    classes = W.infer_shapes(model)[model.nodes[-1].name][-1]
    return W.SoftmaxCrossEntropy(
        label_smoothing=smoothing, class_weights=tuple(0.7 * label for label in range(classes))
    )


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", MODELS)
def test_smoothed_labels_give_the_loss_and_the_slopes_of_the_canonical_graph(
    adapter: Adapter, name: str, dtype: str
) -> None:
    model = MODELS[name]
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
@pytest.mark.parametrize("blank", BLANKS)
@pytest.mark.parametrize("name", TEXTS)
def test_sequences_of_labels(adapter: Adapter, name: str, blank: int, dtype: str) -> None:
    """Of every length from none to all, and repeated ones."""
    by = W.CTC(most_labels=3, blank=blank)
    adapter.require(TEXTS[name], dtype, loss=by)
    _assert_loss(adapter, TEXTS[name], by, dtype, seeds=range(3))


def test_sequences_of_labels_that_are_far_from_likely(adapter: Adapter) -> None:
    """Probabilities of large logits are 0 or 1; their logarithms are not."""
    model, by = TEXTS["text"], W.CTC(most_labels=3)
    adapter.require(model, "float64", loss=by)
    weights = {name: 1e3 * array for name, array in random_weights(model).items()}
    inputs, labels = random_batch(model, loss=by)
    found = adapter.build(model, weights, loss=by).gradients(inputs, labels)
    true = truth.loss(model, weights, inputs, labels, by=by)
    assert abs(float(found.loss) - true) <= FLOAT64 * abs(true)
    assert_gradients(found, model, weights, inputs, labels, "float64", by=by)


@pytest.mark.parametrize(("name", "by", "dtype"), IGNORED.values(), ids=[*IGNORED])
def test_classes_of_maps_and_ignored_labels(
    adapter: Adapter, name: str, by: W.SoftmaxCrossEntropy, dtype: str
) -> None:
    _assert_loss(adapter, MODELS[name], by, dtype)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("name", ["features", "sequence"])
def test_class_weights_multiply_the_loss_of_each_label(
    adapter: Adapter, name: str, smoothing: float, dtype: str
) -> None:
    model = MODELS[name]
    by = weighted(name, smoothing)
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


@pytest.mark.parametrize("name", MODELS)
def test_a_step_is_by_the_smoothed_loss(adapter: Adapter, name: str) -> None:
    model = MODELS[name]
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


@pytest.mark.parametrize(
    ("name", "dtype"), [("features", "float32"), ("sequence", "float64"), ("map", "float64")]
)
@pytest.mark.parametrize("loss", OF_NUMBERS)
def test_a_loss_of_targets_is_that_of_the_canonical_graph(
    adapter: Adapter, loss: str, name: str, dtype: str
) -> None:
    _assert_loss(adapter, MODELS[name], OF_NUMBERS[loss], dtype)


def _assert_loss(
    adapter: Adapter, model: W.Model, by: W.Loss, dtype: str, *, seeds: Sequence[int] = (1,)
) -> None:
    """Loss and gradients of each batch are the canonical graph's, and a step of the last has both."""
    adapter.require(model, dtype, loss=by)
    weights = random_weights(model)
    batches = [random_batch(model, dtype, seed=seed, loss=by) for seed in seeds]
    built = adapter.build(model, weights, dtype, batch_size=len(batches[0][1]), loss=by)
    for inputs, targets in batches:
        found = built.gradients(inputs, targets)
        true = np.asarray(truth.loss(model, weights, inputs, targets, by=by))
        assert_near(np.asarray(found.loss), true, VALUES[dtype], dtype, "the loss")
        assert_gradients(found, model, weights, inputs, targets, dtype, by=by)
    lost = np.asarray(float(built.train_step(*adapter.native(inputs, targets))), dtype)
    assert_near(lost, true, VALUES[dtype], dtype, "the loss of a step")
    for key, gradient in found.parameters.items():
        moved = weights[key] - np.multiply(PLAIN.learning_rate, gradient)
        assert_near(built.weights()[key], moved, VALUES[dtype], dtype, key)


@pytest.mark.parametrize("loss", OF_NUMBERS)
def test_an_output_of_0_has_the_slope_of_the_definition(adapter: Adapter, loss: str) -> None:
    """Where the loss of an error has a kink, and where a ReLU within binary cross-entropy would have one."""
    dtype = "float64"
    model, by = chain((6,), W.Linear(out_features=CLASSES)), OF_NUMBERS[loss]
    adapter.require(model, dtype, loss=by)
    weights = {name: np.zeros_like(array) for name, array in random_weights(model).items()}
    inputs, _ = random_batch(model, dtype)
    built = adapter.build(model, weights, dtype, loss=by)
    found = built.gradients(inputs, np.zeros((len(inputs), CLASSES), dtype)).parameters
    slope = 0.5 / CLASSES if loss == "binary_cross_entropy" else 0.0
    (bias,) = (array for name, array in found.items() if name.endswith(".bias"))
    assert_near(bias, np.full(CLASSES, slope), VALUES[dtype], dtype, "the gradient of the bias")


@pytest.mark.parametrize("loss", ["binary_cross_entropy", "squared_error", "huber"])
def test_large_outputs_neither_overflow_nor_lose_the_loss(adapter: Adapter, loss: str) -> None:
    dtype = "float32"
    model, by = chain((6,), W.Linear(out_features=CLASSES)), OF_NUMBERS[loss]
    adapter.require(model, dtype, loss=by)
    weights = {name: 100 * array for name, array in random_weights(model).items()}
    inputs, targets = random_batch(model, dtype, loss=by)
    found = adapter.build(model, weights, dtype, loss=by).gradients(inputs, targets)
    true = np.asarray(truth.loss(model, weights, inputs, targets, by=by))
    assert_near(np.asarray(found.loss), true, VALUES[dtype], dtype, "the loss")
    assert all(np.isfinite(array).all() for array in found.parameters.values())
