"""Runs with losses of targets of the outputs' shape: proven, without an accuracy where there is none."""

from __future__ import annotations

import numpy as np
import pytest
from dlb_process import TESTS, Dlb

REGRESSION = TESTS / "workloads" / "regression.toml"
LOSSES = (
    "{type='huber', delta=0.7}",
    pytest.param("{type='binary_cross_entropy'}", marks=pytest.mark.long),
    pytest.param("{type='absolute_error'}", marks=pytest.mark.long),
)


def test_a_regression_is_proven_and_has_a_loss_alone(dlb: Dlb) -> None:
    ended = dlb.run("--test-every", 10, workload=REGRESSION)
    assert ended.status == 0, ended.err
    assert "Loss of the test at the end: example " in ended.out
    (record,) = dlb.records().values()
    assert record["proof"] == "proven" and not record["failure"]
    quality = record["quality"]
    assert quality["test_accuracy"] is None and 0 < quality["test_loss"] < 3
    assert [test["accuracy"] for test in quality["tests"]] == [None, None]
    assert quality["tests"][-1]["loss"] == quality["test_loss"]
    shown = dlb("results", "show", "last", "--in", dlb.out)
    assert shown.status == 0 and "test loss" in shown.out, shown.err
    for target in (("--loss", 100), ("--accuracy", "1%")):
        reached = dlb("results", "target", *target, "--in", dlb.out)
        assert reached.status == 0, reached.err
    report = dlb("report", dlb.out, "--output", "report.html")
    assert report.status == 0, report.err
    assert "test loss at the end" in (dlb.folder / "report.html").read_text()


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_is_proven(dlb: Dlb, loss: str) -> None:
    ended = dlb("verify", REGRESSION, "--on", "example", "--set", f"loss={loss}", "--json")
    assert ended.status == 0, ended.out + ended.err


def test_targets_of_the_user_are_trained_on(dlb: Dlb) -> None:
    """One output that is a line of the inputs is learnt."""
    random = np.random.RandomState(0)
    inputs = random.standard_normal((200, 6))
    np.savez(dlb.folder / "mine.npz", inputs=inputs, labels=inputs[:, 0] - inputs[:, 1] / 2)
    words = ("--data", "npz:mine.npz", "--set", "model.nodes.fc2.layer.out_features=1")
    ended = dlb.run(*words, "--steps", 80, "--json", workload=REGRESSION)
    assert ended.status == 0, ended.err
    (record,) = dlb.records().values()
    assert record["proof"] == "proven"
    assert record["quality"]["test_loss"] < 0.2 < record["quality"]["losses"][0]


@pytest.mark.parametrize(
    "fault", ["wrong-gradient", pytest.param("nan-loss", marks=pytest.mark.long)]
)
def test_a_wrong_adapter_deviates_with_another_loss(dlb: Dlb, fault: str) -> None:
    ended = dlb.run("--on", "faulty", "--json", workload=REGRESSION, fault=fault)
    assert ended.status == 1
    (record,) = dlb.records().values()
    assert record["proof"] == "deviates"
