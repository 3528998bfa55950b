"""Dropout in the ladder: proven with masks and as drawn, and what is said where it is not."""

from __future__ import annotations

from typing import Any

import pytest
from dlb_process import TESTS, Dlb

DROPOUT = TESTS / "workloads" / "dropout.toml"
TIED = """
name = "tied"
batch_size = 4
data = { name = "synthetic" }
optimizer = { type = "sgd", learning_rate = 0.1 }
[model]
input = { shape = [3], kind = "index" }
nodes = [
  { name = "table", layer = { type = "embedding", entries = 9, features = 4 } },
  { name = "logits", layer = { type = "linear", out_features = 9, tied_to = "table" } },
]
"""
FEW = ("forward", "layers", "gradients", "update")


def verify(dlb: Dlb, *words: object, fault: str = "") -> Any:
    levels = [word for level in FEW for word in ("--level", level)]
    return dlb("verify", DROPOUT, "--threads", 1, "--json", *levels, *words, fault=fault)


def rungs(document: Any, adapter: str = "faulty") -> dict[str, dict[str, Any]]:
    found = document["certificate"]["rungs"]
    return {rung["name"]: rung for rung in found if rung["adapter"] == adapter}


def test_a_workload_with_dropout_is_proven(dlb: Dlb) -> None:
    ended = dlb("verify", DROPOUT, "--on", "example", "--on", "faulty", "--threads", 1, "--json")
    assert ended.status == 0, ended.err
    for adapter in ("example", "faulty"):
        found = rungs(ended.document, adapter)
        assert {rung["verdict"] for rung in found.values()} == {"passed"}
        assert {one["tensor"] for one in found["dropout"]["figures"]} == {"early", "late"}
        assert "dropout masks" not in found


def test_workers_with_dropout_equal_one(dlb: Dlb) -> None:
    """Each worker's masks are those of its share of the samples."""
    words = ("--workers", 2, "--strategy", "example_sync", "--steps", 12, "--batch-size", 64)
    ended = dlb(
        *("run", DROPOUT, "--on", "example", "--threads", 1, "--warmup", 2, "--json"),
        *("--out", dlb.out, *words),
    )
    assert ended.status == 0, ended.err
    found = rungs(ended.document, "example")
    assert {rung["verdict"] for rung in found.values()} == {"passed"}
    assert "distributed" in found


#: What is wrong, what must find it first, and where.
WRONG = {
    "own-masks": ("layers alone, training", "layer early, dropout(rate=0.2)"),
    "unscaled-dropout": ("dropout", "layer early, dropout(rate=0.2)"),
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_dropout_is_found(dlb: Dlb, fault: str) -> None:
    path = dlb.folder / "certificate.json"
    ended = verify(dlb, "--on", "faulty", "--certificate", path, fault=fault)
    assert ended.status == 1
    (told,) = dlb("explain", path, "--json").document["explanations"]
    assert (told["rung"], told["where"]) == WRONG[fault]
    assert told["built"] == "dropout rate 0.2"
    assert "as faulty has it: dropout rate 0.2" in dlb("explain", path).out


def test_an_older_adapter_runs_and_says_what_was_not_compared(dlb: Dlb) -> None:
    """Beside a new one, whose dropouts act, so that the two are not compared."""
    ended = verify(dlb, "--on", "faulty", "--on", "example", fault="older-contract")
    assert ended.status == 1
    found = rungs(ended.document)
    masks = found.pop("dropout masks")
    assert masks["verdict"] == "not run" and "contract 1.1" in masks["detail"]
    assert {rung["verdict"] for rung in found.values()} == {"passed"}
    assert "dropout" in found and "gradients" not in found
    assert "gradients" not in rungs(ended.document, "example")


def test_an_older_adapter_is_not_given_tied_weights(dlb: Dlb) -> None:
    path = dlb.folder / "tied.toml"
    path.write_text(TIED)
    ended = dlb("verify", path, "--on", "faulty", "--json", fault="older-contract")
    assert ended.status == 1, ended.out
    assert "before 1.4, which does not tie weights: layer 'logits' is tied to 'table'" in ended.err


def test_an_older_adapter_is_not_given_smoothed_labels(dlb: Dlb) -> None:
    words = ("--set", "loss.label_smoothing=0.1", "--on", "faulty", "--json")
    ended = dlb.run(*words, fault="older-contract")
    assert ended.status == 1, ended.out
    assert "before 1.4, which does not smooth labels" in ended.err
    assert dlb.run(*words).status == 0


def test_an_older_adapter_is_proven_where_there_is_no_dropout(dlb: Dlb) -> None:
    ended = dlb.run("--on", "faulty", "--json", fault="older-contract")
    assert ended.status == 0, ended.err
    assert not {"dropout", "dropout masks"} & set(rungs(ended.document))
