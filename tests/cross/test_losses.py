"""Losses of targets of the outputs' shape, on all four adapters: proven, and trained to the same loss."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import ADAPTERS, ONE_THREAD, Dlb

WORKLOAD = """
name = "targets"
batch_size = 20
data = { name = "npz", path = "PATH" }
optimizer = { type = "sgd", learning_rate = 0.05, momentum = 0.9 }
loss = LOSS

[model]
input = { shape = [5] }
nodes = [
  { name = "hidden", layer = { type = "linear", out_features = 16 } },
  { name = "tanh", layer = { type = "tanh" } },
  { name = "out", layer = { type = "linear", out_features = 2 } },
]
"""
#: Each with the accuracy that a test has at least; None where there is none.
LOSSES: dict[str, float | None] = {
    '{ type = "huber", delta = 0.3 }': None,
    '{ type = "squared_error" }': None,
    '{ type = "absolute_error" }': None,
    '{ type = "binary_cross_entropy" }': 0.8,
}


def trained(dlb: Dlb, path: Path, steps: int) -> list[dict[str, Any]]:
    """What each adapter's training came to; all are proven."""
    on = [word for adapter in ADAPTERS for word in ("--on", adapter)]
    words = ("--steps", str(steps), "--out", str(path.parent / "out"), "--json")
    done = dlb("run", str(path), *on, *ONE_THREAD, *words)
    assert done.returncode == 0, done.stderr + done.stdout[-3000:]
    document = json.loads(done.stdout)
    assert document["proven"] is True
    qualities = [one["quality"] for one in document["records"]]
    assert len(qualities) == len(ADAPTERS)
    return qualities


@pytest.mark.parametrize(
    "loss",
    [pytest.param(each, marks=[pytest.mark.long] * (n > 0)) for n, each in enumerate(LOSSES)],
)
def test_a_loss_is_the_same_on_every_adapter(dlb: Dlb, tmp_path: Path, loss: str) -> None:
    random, accuracy = np.random.RandomState(0), LOSSES[loss]
    inputs = random.standard_normal((300, 5))
    targets = inputs[:, :2] - inputs[:, 2:4] ** 2 / 2
    if accuracy is not None:
        targets = (targets > 0).astype(float)
    np.savez(tmp_path / "mine.npz", inputs=inputs, labels=targets)
    path = tmp_path / "targets.toml"
    path.write_text(WORKLOAD.replace("PATH", str(tmp_path / "mine.npz")).replace("LOSS", loss))
    qualities = trained(dlb, path, steps=80)
    first = qualities[0]["test_loss"]
    for quality in qualities:
        assert quality["test_loss"] == pytest.approx(first, rel=1e-3)
        assert quality["test_loss"] < 0.7
        if accuracy is None:
            assert quality["test_accuracy"] is None
        else:
            assert quality["test_accuracy"] >= accuracy


#: A line of text: a class for each of twelve columns of an image, of whose parts batches are taken one by one.
TEXT = """
name = "text"
batch_size = 20
data = { name = "npz", path = "PATH" }
optimizer = { type = "adam", learning_rate = 0.02, clip_norm = 1.0, accumulate = 2 }
loss = { type = "ctc", most_labels = 4, blank = 5 }

[model]
input = { shape = [12, 6] }
nodes = [
  { name = "hidden", layer = { type = "linear", out_features = 24 } },
  { name = "tanh", layer = { type = "tanh" } },
  { name = "out", layer = { type = "linear", out_features = 6 } },
]
"""


def test_texts_are_learnt_on_every_adapter(dlb: Dlb, tmp_path: Path) -> None:
    """Each label is seen for one to three columns, and then nothing for one."""
    random = np.random.RandomState(0)
    labels = np.full((400, 4), -1)
    inputs = 0.1 * random.standard_normal((400, 12, 6))
    for sample, row in enumerate(labels):
        column, count = 0, random.randint(1, 5)
        row[:count] = random.randint(0, 5, count)
        for label in row[:count]:
            seen = random.randint(1, 3)
            inputs[sample, column : column + seen, label] += 1
            column += seen + 1
    np.savez(tmp_path / "mine.npz", inputs=inputs, labels=labels)
    path = tmp_path / "text.toml"
    path.write_text(TEXT.replace("PATH", str(tmp_path / "mine.npz")))
    qualities = trained(dlb, path, steps=100)
    for quality in qualities:
        assert quality["test_accuracy"] > 0.8
        assert quality["test_loss"] == pytest.approx(qualities[0]["test_loss"], rel=1e-2)
