"""Connectionist temporal classification: next to all paths, one by one, and in ONNX."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pytest

from dlb.samples import ctc_steps
from dlb_graph.truth.canonical import loss_graph
from dlb_graph.truth.evaluate import evaluate
from dlb_graph.workload import CTC, Input, Linear, Model, Node
from dlb_graph.workload.initial import initial_weights

STEPS, CLASSES = 6, 4
#: None, one, several, repeated, and as many as there are steps for.
LABELS = [[-1] * 4, [1, -1, -1, -1], [3, 1, -1, -1], [2, 2, -1, -1], [1, 1, 2, 2], [3, 2, 1, 3]]

Array = npt.NDArray[np.float64]


def outputs(seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=(len(LABELS), STEPS, CLASSES))


def labels_for(blank: int) -> npt.NDArray[np.int64]:
    """The same labels, with the blank's number for 0 and the reverse."""
    labels = np.array(LABELS)
    return np.where(labels == blank, 0, labels) if blank else labels


def by_paths(logits: Array, labels: npt.NDArray[np.int64], blank: int) -> Array:
    """Each sample's loss, of all paths that become its labels."""
    shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    totals = np.zeros(len(logits))
    for path in itertools.product(range(CLASSES), repeat=STEPS):
        kept = [label for label, _ in itertools.groupby(path) if label != blank]
        for sample, row in enumerate(labels):
            if kept == row[row >= 0].tolist():
                totals[sample] += np.prod(shares[sample, np.arange(STEPS), path])
    return -np.log(totals)


@pytest.mark.parametrize("blank", [0, 2, 3])
def test_the_loss_is_that_of_all_paths(blank: int) -> None:
    logits, labels = outputs(), labels_for(blank)
    value, _ = CTC(most_labels=4, blank=blank).value_and_gradient(logits, labels)
    assert value == pytest.approx(by_paths(logits, labels, blank).mean(), rel=1e-13)


@pytest.mark.parametrize("blank", [0, 2])
def test_the_gradient_is_the_slope(blank: int) -> None:
    logits, labels = outputs(), labels_for(blank)
    by = CTC(most_labels=4, blank=blank)
    _, gradient = by.value_and_gradient(logits, labels)
    for seed in range(5):
        direction = 1e-4 * outputs(seed + 1)
        slope = by.difference(logits + direction, logits - direction, labels)
        assert slope == pytest.approx(2 * float((gradient * direction).sum()), rel=1e-6)


def test_large_outputs_do_not_overflow() -> None:
    logits, labels = 1e4 * outputs(), labels_for(0)
    value, gradient = CTC(most_labels=4).value_and_gradient(logits, labels)
    assert np.isfinite(value) and np.isfinite(gradient).all()
    # A path that is the labels, as sure as can be: nothing is left to learn.
    sure = np.full((1, STEPS, CLASSES), -1e3)
    sure[0, np.arange(STEPS), [0, 3, 3, 0, 1, 0]] = 1e3
    row = np.array([[3, 1, -1, -1]])
    value, gradient = CTC(most_labels=4).value_and_gradient(sure, row)
    assert value == 0 and not gradient.any()
    assert CTC(most_labels=4).accuracy(sure, row) == 1.0


def test_labels_without_a_path_lose_everything() -> None:
    row = np.array([[1, 1, 1, 1]])  # seven steps
    with np.errstate(invalid="ignore"):
        value, _ = CTC(most_labels=4).value_and_gradient(outputs()[:1], row)
    assert value == np.inf


@pytest.mark.parametrize("blank", [0, 2])
def test_onnx_computes_the_same(blank: int) -> None:
    model = Model(
        input=Input(shape=(STEPS, 3)),
        nodes=(Node(name="logits", layer=Linear(out_features=CLASSES)),),
    )
    loss = CTC(most_labels=4, blank=blank)
    graph = loss_graph(model, initial_weights(model, 0), loss=loss)
    inputs = np.random.default_rng(3).normal(size=(len(LABELS), STEPS, 3))
    found = evaluate(graph, {"input": inputs, "labels": labels_for(blank)})
    value, _ = loss.value_and_gradient(found["logits"], labels_for(blank))
    assert float(found["loss"]) == pytest.approx(value, rel=1e-13)


def test_the_most_probable_classes_are_read() -> None:
    by = CTC(most_labels=4)
    logits = np.zeros((3, STEPS, CLASSES))
    for sample, path in enumerate(([1, 1, 0, 1, 2, 2], [0, 0, 0, 0, 0, 0], [1, 2, 3, 1, 2, 3])):
        logits[sample, np.arange(STEPS), path] = 1.0
    labels = np.array([[1, 1, 2, -1], [-1, -1, -1, -1], [1, 2, 3, 1]])
    assert by.accuracy(logits, labels) == pytest.approx(2 / 3)
    logits[0, 0, 0] = np.inf
    assert by.accuracy(logits, labels) == pytest.approx(1 / 3)


def test_two_equal_labels_take_a_blank_between_them() -> None:
    assert ctc_steps(np.array(LABELS)).tolist() == [0, 1, 2, 3, 6, 4]


@pytest.mark.parametrize(
    ("loss", "shape", "fault"),
    [
        (CTC(most_labels=3, blank=4), (6, 4), "loss.blank = 4"),
        (CTC(most_labels=3, blank=-1), (6, 4), "loss.blank = -1"),
        (CTC(most_labels=7), (6, 4), "loss.most_labels = 7"),
        (CTC(most_labels=0), (6, 4), "loss.most_labels = 0"),
        (CTC(most_labels=3), (24,), "ctc reads [T, classes]"),
        (CTC(most_labels=3), (6, 1), "one class"),
        (CTC(most_labels=6), (6, 4), ""),
    ],
)
def test_what_outputs_it_reads(loss: CTC, shape: tuple[int, ...], fault: str) -> None:
    found = loss.fault(shape)
    assert fault in found and bool(fault) == bool(found)
