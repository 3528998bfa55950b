"""Data loading: exactly the rows asked for, in order, whichever way they come."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from dlb.data.augmentation import draw_crops
from dlb_graph import workload as W
from dlb_worker.arrays import map_arrays
from dlb_worker.crops import cut
from dlb_worker.native import BuiltModel

from . import truth
from .closeness import FLOAT32, FLOAT64, assert_same_bits
from .layer_cases import EVERY_LAYER
from .models import CLASSES, chain, random_batch, random_weights
from .subject import BATCH, Adapter
from .training import row_order

SAMPLES, STEPS = 23, 15
#: So small that no weight moves: the loss of every step is that of its rows alone.
STILL = W.SGD(learning_rate=1e-40)
MODELS = {
    "maps": EVERY_LAYER["maps"],
    "features": chain((6,), W.Linear(out_features=CLASSES)),
    "sequences": chain((4, 3), W.LSTM(hidden=CLASSES)),
    "indices": EVERY_LAYER["sequence"],
}
ORDERS = {
    "no-order-some-rows-twice": row_order(SAMPLES, STEPS),
    "each-row-once": np.random.default_rng(3).permutation(SAMPLES)[:21].reshape(7, BATCH),
    "the-rows-as-they-lie": np.arange(21).reshape(7, BATCH),
    "one-row-over-and-over": np.full((2, BATCH), SAMPLES - 1),
    "a-single-step": np.array([[4, 0, 22]]),
}
AUGMENTATIONS = {
    "crops": W.Augmentation(pad=2),
    "mirrored": W.Augmentation(flip=True),
    "both": W.Augmentation(pad=1, flip=True),
}
VIAS = ("pipeline", "memory")


Still = Callable[[str, str], BuiltModel]


@pytest.fixture(scope="module")
def still(adapter: Adapter) -> Still:
    """A model by name and dtype whose weights stay where they are, built once for all tests."""

    @cache
    def build(name: str, dtype: str) -> BuiltModel:
        model = MODELS[name]
        return adapter.build(model, random_weights(model), dtype, optimizer=STILL)

    return build


def _losses(
    adapter: Adapter,
    built: BuiltModel,
    inputs: np.ndarray,
    labels: np.ndarray,
    order: np.ndarray,
    via: str,
) -> list[float]:
    return [float(built.train_step(*each)) for each in adapter.load(inputs, labels, order, via)]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("via", VIAS)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", MODELS)
def test_steps_read_exactly_the_rows_of_the_order(
    adapter: Adapter, still: Still, name: str, order: str, via: str, dtype: str
) -> None:
    model = MODELS[name]
    adapter.require(model, dtype)
    inputs, labels = random_batch(model, dtype, samples=SAMPLES)
    found = _losses(adapter, still(name, dtype), inputs, labels, ORDERS[order], via)
    weights = random_weights(model)
    true = [truth.loss(model, weights, inputs[rows], labels[rows]) for rows in ORDERS[order]]
    bound = FLOAT64 if dtype == "float64" else FLOAT32
    np.testing.assert_allclose(found, true, rtol=bound)


@pytest.mark.parametrize("via", VIAS)
@pytest.mark.parametrize("name", MODELS)
def test_a_batch_reads_back_as_it_was(adapter: Adapter, still: Still, name: str, via: str) -> None:
    model, order = MODELS[name], ORDERS["no-order-some-rows-twice"]
    adapter.require(model, "float32")
    inputs, labels = random_batch(model, "float32", samples=SAMPLES)
    built = still(name, "float32")
    for rows, batch in zip(order, adapter.load(inputs, labels, order, via)):
        found, found_labels = built.read_batch(*batch)
        assert_same_bits(found.astype(inputs.dtype), inputs[rows], "inputs")
        assert_same_bits(found_labels.astype(labels.dtype), labels[rows], "labels")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("via", VIAS)
def test_targets_of_real_numbers_arrive_as_they_are(adapter: Adapter, via: str, dtype: str) -> None:
    model, by = MODELS["features"], W.SquaredError()
    adapter.require(model, dtype, loss=by)
    inputs, targets = random_batch(model, dtype, samples=SAMPLES, loss=by)
    built = adapter.build(model, random_weights(model), dtype, loss=by)
    order = ORDERS["no-order-some-rows-twice"]
    for rows, batch in zip(order, adapter.load(inputs, targets, order, via), strict=True):
        assert_same_bits(built.read_batch(*batch)[1], targets[rows], "targets")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", MODELS)
def test_pipeline_and_memory_train_alike_bit_for_bit(
    adapter: Adapter, name: str, dtype: str
) -> None:
    model = MODELS[name]
    adapter.require(model, dtype)
    inputs, labels = random_batch(model, dtype, samples=SAMPLES)
    runs = {}
    for via in VIAS:
        built = adapter.build(model, random_weights(model), dtype)
        batches = adapter.load(inputs, labels, ORDERS["no-order-some-rows-twice"], via)
        losses = np.array([float(built.train_step(*each)) for each in batches])
        runs[via] = {"losses": losses, **built.weights()}
    assert len(runs["memory"]["losses"]) == STEPS
    for key, value in runs["memory"].items():
        assert_same_bits(runs["pipeline"][key], value, key)


@pytest.mark.parametrize("via", VIAS)
@pytest.mark.parametrize("name", MODELS)
def test_samples_that_lie_in_a_file_are_read_as_those_in_memory(
    adapter: Adapter, still: Still, name: str, via: str, tmp_path: Path
) -> None:
    """As the core reads those that are too many for memory."""
    model = MODELS[name]
    adapter.require(model, "float64")
    inputs, labels = random_batch(model, samples=SAMPLES)
    np.savez(tmp_path / "samples.npz", inputs=inputs, labels=labels)
    mapped = map_arrays(tmp_path / "samples.npz")
    order = ORDERS["no-order-some-rows-twice"]
    arrays = mapped["inputs"], mapped["labels"]
    found = _losses(adapter, still(name, "float64"), *arrays, order, via)
    weights = random_weights(model)
    true = [truth.loss(model, weights, inputs[rows], labels[rows]) for rows in order]
    np.testing.assert_allclose(found, true, rtol=FLOAT64)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("augmentation", AUGMENTATIONS.values(), ids=list(AUGMENTATIONS))
def test_augmented_samples_are_the_cores_bit_for_bit(
    adapter: Adapter, augmentation: W.Augmentation, dtype: str
) -> None:
    """Training on what the pipeline cuts is training on what was cut before."""
    adapter.require_feature("augmentation")
    model = MODELS["maps"]
    adapter.require(model, dtype)
    inputs, labels = random_batch(model, dtype, samples=SAMPLES)
    order = ORDERS["no-order-some-rows-twice"]
    crops = draw_crops(order, SAMPLES, 0, augmentation)
    ready = np.concatenate([cut(inputs[rows], crop) for rows, crop in zip(order, crops)])
    given = {
        "cut before": (
            ready,
            labels[order].reshape(-1),
            np.arange(order.size).reshape(order.shape),
        ),
        "by the pipeline": (inputs, labels, order),
    }
    runs = {}
    for name, arrays in given.items():
        built = adapter.build(model, random_weights(model), dtype)
        of = crops if name == "by the pipeline" else None
        batches = adapter.load(*arrays, "pipeline", crops=of)
        losses = np.array([float(built.train_step(*each)) for each in batches])
        runs[name] = {"losses": losses, **built.weights()}
    for key, value in runs["cut before"].items():
        assert_same_bits(runs["by the pipeline"][key], value, key)


@pytest.mark.parametrize("via", VIAS)
@pytest.mark.parametrize("name", ["maps", "features"])
def test_the_arrays_given_may_be_read_only(
    adapter: Adapter, still: Still, name: str, via: str
) -> None:
    """As those of a data set are, which every framework is given."""
    model = MODELS[name]
    adapter.require(model, "float32")
    inputs, labels = random_batch(model, "float32", samples=SAMPLES)
    copies = inputs.copy(), labels.copy()
    for array in (inputs, labels):
        array.setflags(write=False)
    _losses(adapter, still(name, "float32"), inputs, labels, ORDERS["each-row-once"], via)
    assert_same_bits(inputs, copies[0], "inputs")
    assert_same_bits(labels, copies[1], "labels")


@pytest.mark.parametrize("via", VIAS)
def test_two_iterations_at_once_do_not_disturb_each_other(
    adapter: Adapter, still: Still, via: str
) -> None:
    model = MODELS["features"]
    adapter.require(model, "float64")
    inputs, labels = random_batch(model, samples=SAMPLES)
    order = ORDERS["each-row-once"]
    built = still("features", "float64")
    turned = np.ascontiguousarray(order[::-1])
    forth, back = (adapter.load(inputs, labels, each, via) for each in (order, turned))
    losses = [
        (float(built.train_step(*one)), float(built.train_step(*other)))
        for one, other in zip(forth, back)
    ]
    assert [one for one, _ in losses] == [other for _, other in losses][::-1]


@pytest.mark.parametrize("via", VIAS)
@pytest.mark.parametrize("name", ["maps", "features"])
def test_an_iteration_can_be_given_up(adapter: Adapter, name: str, via: str) -> None:
    model = MODELS[name]
    adapter.require(model, "float32")
    inputs, labels = random_batch(model, "float32", samples=SAMPLES)
    for _ in range(3):
        batches = adapter.load(inputs, labels, ORDERS["no-order-some-rows-twice"], via)
        next(batches)
        del batches
