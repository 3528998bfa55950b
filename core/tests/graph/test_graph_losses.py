"""The losses: values against the definition and against ONNX, gradients and differences without lost digits."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dlb.execution.periodic_tests import score
from dlb.samples import proof_labels, random_labels
from dlb_graph import workload as W
from dlb_graph.losses import classes_and_places
from dlb_graph.truth.canonical import loss_graph
from dlb_graph.truth.evaluate import evaluate

#: Outputs of features, of steps, and of maps, whose classes are the second axis.
SHAPES = [(5, 10), (3, 4, 7), (2, 7, 3, 4)]
LOSSES: dict[str, W.Loss] = {
    "softmax_cross_entropy": W.SoftmaxCrossEntropy(),
    "smoothed": W.SoftmaxCrossEntropy(label_smoothing=0.1),
    "without_a_class": W.SoftmaxCrossEntropy(ignore_index=2),
    "without_a_label": W.SoftmaxCrossEntropy(ignore_index=-100, label_smoothing=0.1),
    "binary_cross_entropy": W.BinaryCrossEntropy(),
    "squared_error": W.SquaredError(),
    "absolute_error": W.AbsoluteError(),
    "huber": W.Huber(delta=0.7),
}
OF_NUMBERS = [name for name, loss in LOSSES.items() if loss.targets != "class"]


def cross_entropy(
    logits: np.ndarray,
    labels: np.ndarray,
    smoothing: float = 0.0,
    weights: tuple[float, ...] = (),
    ignored: int | None = None,
) -> np.longdouble:
    """Softmax cross-entropy as it is defined, in extended precision."""
    wide = logits.astype(np.longdouble)
    if wide.ndim == 4:
        wide = wide.transpose(0, 2, 3, 1)
    counted = np.array([label != ignored for label in labels.flat]).reshape(labels.shape)
    labels = np.where(counted, labels, 0)
    logs = np.log(np.exp(wide - wide.max(-1, keepdims=True)).sum(-1)) + wide.max(-1)
    hit = np.take_along_axis(wide, labels[..., None], -1)[..., 0]
    factors = np.array(weights)[labels] if weights else 1.0
    losses = factors * (logs - (1 - smoothing) * hit - smoothing * wide.mean(-1))
    return (counted * losses).mean()


def of_numbers(outputs: np.ndarray, targets: np.ndarray, loss: W.Loss) -> np.longdouble:
    """The other losses as they are defined, a number at a time, in extended precision."""
    total = np.longdouble(0)
    for x, y in zip(outputs.astype(np.longdouble).flat, targets.astype(np.longdouble).flat):
        error = abs(x - y)
        if isinstance(loss, W.BinaryCrossEntropy):
            share = 1 / (1 + np.exp(-x))
            total -= y * np.log(share) + (1 - y) * np.log(1 - share)
        elif isinstance(loss, W.SquaredError):
            total += error**2
        elif isinstance(loss, W.AbsoluteError):
            total += error
        elif isinstance(loss, W.Huber):
            near = error <= loss.delta
            total += error**2 / 2 if near else loss.delta * (error - loss.delta / 2)
    return total / outputs.size


def defined(outputs: np.ndarray, targets: np.ndarray, loss: W.Loss) -> float:
    if isinstance(loss, W.SoftmaxCrossEntropy):
        by = (loss.label_smoothing, loss.class_weights, loss.ignore_index)
        return float(cross_entropy(outputs, targets, *by))
    return float(of_numbers(outputs, targets, loss))


def drawn(shape: tuple[int, ...], loss: W.Loss) -> tuple[np.ndarray, np.ndarray]:
    """Outputs, and targets of a loss; shares between 0 and 1, too."""
    generator = np.random.default_rng(7)
    outputs, kind = 2 * generator.standard_normal(shape), loss.targets
    if kind == "class":
        classes, places = classes_and_places(shape[1:])
        labels = generator.integers(0, classes, (shape[0], *places))
        if (ignored := getattr(loss, "ignore_index", None)) is not None:
            labels.flat[::3] = ignored
        return outputs, labels
    targets = generator.standard_normal(shape)
    return outputs, np.clip(targets, 0, 1) if kind == "share" else targets


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", LOSSES)
def test_value_and_gradient_are_those_of_the_definition(name: str, shape: tuple[int, ...]) -> None:
    loss = LOSSES[name]
    outputs, targets = drawn(shape, loss)
    value, gradient = loss.value_and_gradient(outputs, targets)
    assert value == pytest.approx(defined(outputs, targets, loss), rel=1e-13)
    assert gradient.shape == shape
    step = 1e-6
    for place in [(0,) * len(shape), tuple(each - 1 for each in shape)]:
        sides = []
        for sign in (1, -1):
            moved = outputs.astype(np.longdouble)
            moved[place] += sign * step
            sides.append(
                cross_entropy(
                    moved, targets, loss.label_smoothing, loss.class_weights, loss.ignore_index
                )
                if isinstance(loss, W.SoftmaxCrossEntropy)
                else of_numbers(moved, targets, loss)
            )
        slope = float((sides[0] - sides[1]) / (2 * step))
        assert gradient[place] == pytest.approx(slope, rel=1e-8, abs=1e-10)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", LOSSES)
def test_the_graph_computes_the_same(name: str, shape: tuple[int, ...]) -> None:
    loss, (_, *outputs) = LOSSES[name], shape
    nodes = (W.Node(name="out", layer=W.Shift(sizes=(1,) * len(outputs))),)
    model = W.Model(input=W.Input(shape=tuple(outputs)), nodes=nodes)
    x, targets = drawn(shape, loss)
    weights = {"out.bias": np.zeros([1] * len(outputs))}
    graph = loss_graph(model, weights, loss=loss)
    found = evaluate(graph, {"input": x, "labels": targets})
    assert list(found) == ["loss", "out"] and found["loss"].shape == ()
    assert float(found["loss"]) == pytest.approx(defined(x, targets, loss), rel=1e-13)


@pytest.mark.parametrize("name", LOSSES)
def test_what_is_computed_in_float32_stays_there(name: str) -> None:
    loss = LOSSES[name]
    outputs, targets = drawn((5, 10), loss)
    narrow = outputs.astype(np.float32)
    if targets.dtype.kind == "f":
        targets = targets.astype(np.float32)
    value, gradient = loss.value_and_gradient(narrow, targets)
    assert gradient.dtype == np.float32
    assert value == pytest.approx(defined(narrow, targets, loss), rel=1e-6)


@pytest.mark.parametrize("name", OF_NUMBERS)
def test_where_an_output_is_its_target_the_slope_is_0(name: str) -> None:
    loss, outputs = LOSSES[name], np.zeros((2, 3))
    targets = np.full((2, 3), 0.5 if name == "binary_cross_entropy" else 0.0)
    value, gradient = loss.value_and_gradient(outputs, targets)
    assert gradient.tolist() == np.zeros((2, 3)).tolist()
    assert value == pytest.approx(math.log(2) if name == "binary_cross_entropy" else 0.0)


@pytest.mark.parametrize("delta", [0.1, 1.0, 1e3])
def test_pieces_of_hubers_loss_meet(delta: float) -> None:
    errors = np.array([[-2 * delta, -delta, -delta / 2, 0.0, delta / 2, delta, 2 * delta]])
    value, gradient = W.Huber(delta=delta).value_and_gradient(errors, np.zeros((1, 7)))
    assert value == pytest.approx(delta**2 * (2 * 1.5 + 2 * 0.5 + 2 * 0.125) / 7)
    expected = delta * np.array([[-1, -1, -0.5, 0, 0.5, 1, 1]]) / 7
    assert gradient == pytest.approx(expected)


@pytest.mark.parametrize("size", [50.0, 1e4])
def test_large_logits_neither_overflow_nor_warn(
    size: float, recwarn: pytest.WarningsRecorder
) -> None:
    logits, targets = np.array([[-size, size, size]]), np.array([[0.0, 1.0, 0.0]])
    value, gradient = W.BinaryCrossEntropy().value_and_gradient(logits, targets)
    assert value == pytest.approx(size / 3) and gradient == pytest.approx(
        np.array([[0, 0, 1 / 3]]), abs=1e-20
    )
    assert not list(recwarn)


@pytest.mark.parametrize("name", LOSSES)
def test_a_nan_is_a_nan_in_the_loss_and_no_right_prediction(name: str) -> None:
    loss = LOSSES[name]
    outputs, targets = drawn((4, 6), loss)
    outputs[1, 2] = np.nan
    value, gradient = loss.value_and_gradient(outputs, targets)
    assert math.isnan(value) and np.isnan(gradient[1, 2])
    assert math.isnan(loss.difference(outputs, outputs, targets))
    accuracy = loss.accuracy(outputs, targets)
    assert accuracy is None or accuracy < 1


def test_accuracy_is_that_of_decisions() -> None:
    outputs = np.array([[2.0, -1.0], [-3.0, 0.5]])
    assert W.SoftmaxCrossEntropy().accuracy(outputs, np.array([0, 0])) == 0.5
    assert W.SoftmaxCrossEntropy(ignore_index=9).accuracy(outputs, np.array([0, 9])) == 1.0
    maps = outputs.T[None, :, :, None]
    assert W.SoftmaxCrossEntropy().accuracy(maps, np.array([[[0], [0]]])) == 0.5
    shares = np.array([[1.0, 0.0], [0.0, 0.0]])
    assert W.BinaryCrossEntropy().accuracy(outputs, shares) == 0.75
    for loss in (W.SquaredError(), W.AbsoluteError(), W.Huber()):
        assert loss.accuracy(outputs, shares) is None


def test_a_test_is_of_the_labels_that_count() -> None:
    outputs, labels = drawn((6, 4), W.SoftmaxCrossEntropy())
    ignoring = W.SoftmaxCrossEntropy(ignore_index=255, label_smoothing=0.1)
    half = np.where(np.arange(6) < 3, labels, 255)
    assert score(outputs, half, ignoring) == pytest.approx(
        score(outputs[:3], labels[:3], W.SoftmaxCrossEntropy())
    )
    assert score(outputs, np.full(6, 255), ignoring) == (None, None)


# --- differences -----------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES[:2])
@pytest.mark.parametrize("apart", [1.0, 1e-3, 1e-6])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
def test_it_is_the_difference_of_the_losses(
    shape: tuple[int, ...], apart: float, smoothing: float
) -> None:
    generator = np.random.default_rng(7)
    one = generator.standard_normal(shape)
    other = one + apart * generator.standard_normal(shape)
    labels = generator.integers(0, shape[-1], shape[:-1])
    expected = float(
        cross_entropy(one, labels, smoothing) - cross_entropy(other, labels, smoothing)
    )
    by = W.SoftmaxCrossEntropy(label_smoothing=smoothing)
    assert by.difference(one, other, labels) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("apart", [1.0, 1e-3, 1e-6])
@pytest.mark.parametrize("name", OF_NUMBERS)
def test_it_is_the_difference_of_the_other_losses(
    name: str, shape: tuple[int, ...], apart: float
) -> None:
    loss = LOSSES[name]
    one, targets = drawn(shape, loss)
    other = one + apart * np.random.default_rng(8).standard_normal(shape)
    expected = float(of_numbers(one, targets, loss) - of_numbers(other, targets, loss))
    assert loss.difference(one, other, targets) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_ignored_makes_no_difference(shape: tuple[int, ...]) -> None:
    by = W.SoftmaxCrossEntropy(label_smoothing=0.1, ignore_index=255)
    one, labels = drawn(shape, by)
    other = one + 0.1 * np.random.default_rng(8).standard_normal(shape)
    apart = [defined(each, labels, by) for each in (one, other)]
    assert by.difference(one, other, labels) == pytest.approx(apart[0] - apart[1])
    _, gradient = by.value_and_gradient(one, labels)
    places = gradient if gradient.ndim < 4 else gradient.transpose(0, 2, 3, 1)
    assert (places.any(axis=-1) == (labels != 255)).all()
    assert math.isfinite(by.cancellation(one, labels))
    everywhere = np.full_like(labels, 255)
    value, gradient = by.value_and_gradient(one, everywhere)
    assert value == 0 and not gradient.any() and by.accuracy(one, everywhere) is None


@pytest.mark.parametrize("shape", SHAPES[:2])
def test_class_weights_multiply_each_sample(shape: tuple[int, ...]) -> None:
    generator = np.random.default_rng(7)
    one, other = generator.standard_normal((2, *shape))
    labels = generator.integers(0, shape[-1], shape[:-1])
    by = W.SoftmaxCrossEntropy(
        label_smoothing=0.1, class_weights=(0.0, 2.0, *[0.5] * (shape[-1] - 2))
    )
    apart = [float(cross_entropy(each, labels, 0.1, by.class_weights)) for each in (one, other)]
    found = by.difference(one, other, labels)
    assert found == pytest.approx(apart[0] - apart[1], rel=1e-9)


def test_small_logits_keep_their_digits() -> None:
    """Two losses near log(10) that are 1e-16 apart cannot be subtracted in float64."""
    generator = np.random.default_rng(8)
    one = 1e-12 * generator.standard_normal((6, 10))
    other = one + 1e-16 * generator.standard_normal((6, 10))
    labels = generator.integers(0, 10, 6)
    apart = one - other
    # To first order, with equal shares: the mean of what is apart, less that of the label.
    expected = (apart.mean(-1) - np.take_along_axis(apart, labels[:, None], -1)[:, 0]).mean()
    found = W.SoftmaxCrossEntropy().difference(one, other, labels)
    assert found == pytest.approx(expected, rel=1e-6)


def test_large_errors_keep_the_digits_of_their_difference() -> None:
    """Losses near 1e6 that are 1e-9 apart cannot be subtracted in float64."""
    other, targets = np.full((2, 3), 1000.0), np.zeros((2, 3))
    apart = 2.0**-40
    for loss, slope in ((W.SquaredError(), 2000.0), (W.AbsoluteError(), 1.0), (W.Huber(), 1.0)):
        found = loss.difference(other + apart, other, targets)
        assert found == pytest.approx(slope * apart, rel=1e-9)


# --- targets ---------------------------------------------------------------------------------


@pytest.mark.parametrize("outputs", [(5,), (4, 3), (3, 2, 5)])
def test_labels_that_are_ignored_are_drawn_now_and_then(outputs: tuple[int, ...]) -> None:
    nodes = (W.Node(name="out", layer=W.Shift(sizes=(1,) * len(outputs))),)
    model = W.Model(input=W.Input(shape=outputs), nodes=nodes)
    classes, places = classes_and_places(outputs)
    for draw in (random_labels, proof_labels):
        labels = draw(model, 3, 64, W.SoftmaxCrossEntropy(ignore_index=-100))
        assert labels.shape == (64, *places)
        assert set(labels.flat) == {-100, *range(classes)}
        assert 8 * (labels == -100).sum() == labels.size
    few = proof_labels(model, 3, 2, W.SoftmaxCrossEntropy(ignore_index=-100))
    assert 0 < (few == -100).sum() < few.size


@pytest.mark.parametrize("outputs", [(5,), (4, 3)])
def test_targets_are_drawn_as_the_loss_reads_them(outputs: tuple[int, ...]) -> None:
    nodes = (W.Node(name="out", layer=W.Linear(out_features=outputs[-1])),)
    model = W.Model(input=W.Input(shape=outputs), nodes=nodes)
    for draw in (random_labels, proof_labels):
        classes = draw(model, 3, 64)
        assert classes.dtype == np.int64 and classes.shape == (64, *outputs[:-1])
        numbers = draw(model, 3, 64, W.Huber())
        assert numbers.dtype == np.float32 and numbers.shape == (64, *outputs)
        assert numbers.min() < -1 < 1 < numbers.max()
        assert (draw(model, 3, 64, W.Huber()) == numbers).all()
    assert set(random_labels(model, 3, 64, W.BinaryCrossEntropy()).flat) == {0, 1}
    shares = proof_labels(model, 3, 64, W.BinaryCrossEntropy())
    assert shares.dtype == np.float32 and set(shares.flat) == {0, 0.25, 0.5, 0.75, 1}
