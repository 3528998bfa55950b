"""What a loss or a backward pass did otherwise is found, where one thing explains it."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from dlb_graph import workload as DLB
from dlb_graph.comparing.near_gradients import gradients_otherwise, loss_otherwise
from dlb_graph.comparing.near_misses import NARROWER
from dlb_graph.truth.backward import model_gradients
from dlb_graph.truth.canonical import canonical_graph
from dlb_graph.truth.evaluate import Evaluator
from dlb_graph.workload.initial import initial_weights

GENERATOR = np.random.default_rng(0)
SCORES, LABELS = GENERATOR.standard_normal((6, 4)), np.array([0, 1, 2, 3, 1, 0])
STEPS, STEP_LABELS = GENERATOR.standard_normal((6, 3, 4)), GENERATOR.integers(0, 4, (6, 3))
NUMBERS, TARGETS = GENERATOR.standard_normal((6, 4)), GENERATOR.standard_normal((6, 4))
CLASSES, HUBER = DLB.SoftmaxCrossEntropy(), DLB.Huber(delta=0.5)
SHARES = np.exp(SCORES) / np.exp(SCORES).sum(-1, keepdims=True)


def plain(outputs: Any = SCORES, labels: Any = LABELS, loss: Any = CLASSES) -> float:
    return float(loss.value_and_gradient(outputs, labels)[0])


#: A loss, its outputs and targets, what is computed in its place, and what is told.
LOSSES: dict[str, tuple[Any, Any, Any, float, Any]] = {
    "a sum": (CLASSES, SCORES, LABELS, 6 * plain(), {"loss": "times 6, the number of samples"}),
    "smoothing": (
        CLASSES,
        SCORES,
        LABELS,
        plain(loss=DLB.SoftmaxCrossEntropy(label_smoothing=0.1)),
        {"label_smoothing": 0.1},
    ),
    "one step": (
        CLASSES,
        STEPS,
        STEP_LABELS,
        plain(STEPS[:, :1], STEP_LABELS[:, :1]),
        {"loss": "of the first step alone"},
    ),
    "a label": (
        CLASSES,
        SCORES,
        LABELS,
        plain(SCORES[LABELS != 1], LABELS[LABELS != 1]),
        {"loss": "without label 1, which is ignored"},
    ),
    "delta": (
        HUBER,
        NUMBERS,
        TARGETS,
        plain(NUMBERS, TARGETS, HUBER) / 0.5,
        {"loss": "divided by its delta"},
    ),
    "rounded": (
        HUBER,
        NUMBERS,
        TARGETS,
        plain(NUMBERS, NARROWER["bfloat16"](TARGETS), HUBER),
        {"targets": "rounded to bfloat16"},
    ),
    "twice": (CLASSES, SCORES, LABELS, plain(SHARES), {"softmax": "taken twice"}),
    "overflow": (
        CLASSES,
        800 + SCORES,
        LABELS,
        float("inf"),
        {"softmax": "of exponents that overflow"},
    ),
    "another number": (CLASSES, SCORES, LABELS, 1.0123 * plain(), None),
}


@pytest.mark.parametrize(
    ("loss", "outputs", "targets", "actual", "told"), LOSSES.values(), ids=list(LOSSES)
)
def test_what_a_loss_did_otherwise(
    loss: Any, outputs: Any, targets: Any, actual: float, told: Any
) -> None:
    found = loss_otherwise(loss, outputs, targets, actual)
    assert found == ((told,) if told else ())


MODEL = DLB.Model(
    input=DLB.Input(shape=(2, 6, 6)),
    nodes=(
        DLB.Node(name="most", layer=DLB.MaxPool(kernel=(2, 2), stride=(2, 2))),
        DLB.Node(name="relu", layer=DLB.ReLU()),
        DLB.Node(name="flat", layer=DLB.Flatten()),
        DLB.Node(name="one", layer=DLB.Linear(out_features=5)),
        DLB.Node(name="sigmoid", layer=DLB.Sigmoid()),
        DLB.Node(name="two", layer=DLB.Linear(out_features=5)),
        DLB.Node(name="sum", layer=DLB.Add(), inputs=("two", "one")),
    ),
)


def gradients(altered: Any = None) -> dict[str, np.ndarray]:
    """The gradients of a model whose input has zeros and ties."""
    inputs = np.rint(np.random.default_rng(1).standard_normal((8, 2, 6, 6))) - 1
    weights = {name: array.astype(np.float64) for name, array in initial_weights(MODEL, 0).items()}
    graph = canonical_graph(MODEL, None, dtype="float64", training=True)
    names = [node.name for node in MODEL.nodes]
    values = Evaluator(graph).run({"input": inputs, **weights}, names)
    labels = np.arange(8) % 5
    return model_gradients(MODEL, weights, inputs, values, labels, CLASSES, {}, altered=altered)


def at(name: str, change: Any, node: Any, read: Any, cotangent: Any) -> Any:
    given = node.layer.gradients(read, cotangent)
    return change(read, cotangent, given) if node.name == name else given


def last_of_ties(read: Any, cotangent: Any, given: Any) -> Any:
    flipped = DLB.MaxPool(kernel=(2, 2), stride=(2, 2)).gradients(
        type(read)((np.flip(read.input, (2, 3)),), {}), np.flip(cotangent, (2, 3))
    )
    return (np.flip(flipped[0][0], (2, 3)),), {}


#: A layer, what its backward pass does in place of its own, and what is told.
BACKWARD: dict[str, tuple[str, Any, Any]] = {
    "stopped": (
        "sum",
        lambda read, cotangent, given: ((given[0][0], None), given[1]),
        {"gradient": "stopped before one, at sum"},
    ),
    "straight": (
        "sigmoid",
        lambda read, cotangent, given: ((cotangent,), {}),
        {"gradient": "passed on as it is by sigmoid"},
    ),
    "forgotten": (
        "two",
        lambda read, cotangent, given: (given[0], {}),
        {"gradient": "not added to the weights that it shares, of two"},
    ),
    "a kink": (
        "relu",
        lambda read, cotangent, given: ((cotangent * (read.input >= 0),), {}),
        {"gradient of relu": "at a kink the slope above it"},
    ),
    "the last": ("most", last_of_ties, {"gradient of most": "among ties that of the last"}),
    "nothing": ("relu", lambda read, cotangent, given: given, None),
    "a factor": (
        "relu",
        lambda read, cotangent, given: ((1.0123 * given[0][0],), {}),
        None,
    ),
}


@pytest.mark.parametrize(("name", "change", "told"), BACKWARD.values(), ids=list(BACKWARD))
def test_what_a_backward_pass_did_otherwise(name: str, change: Any, told: Any) -> None:
    actual = gradients(partial(at, name, change))
    found = gradients_otherwise(MODEL, actual, gradients)
    assert found == ((told,) if told else ())


def test_rows_that_have_no_gradient() -> None:
    actual = gradients()
    actual["two.weight"] = actual["two.weight"].copy()
    actual["two.weight"][[1, 3]] = 0.0
    (found,) = gradients_otherwise(MODEL, actual, gradients)
    assert found == {"gradient": "of two.weight left out in row 1, 3"}
