"""Dropout: proven with masks and as drawn, and what is said where it is not."""

from __future__ import annotations

from typing import Any

import pytest
from dlb_process import TESTS, Dlb, said

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
    groups = [word for group in FEW for word in ("--group", group)]
    return dlb("verify", DROPOUT, "--threads", 1, "--json", *groups, *words, fault=fault)


def checks(document: Any, adapter: str = "faulty") -> dict[str, dict[str, Any]]:
    found = document["certificate"]["checks"]
    return {result["check"]: result for result in found if result["adapter"] == adapter}


def test_a_workload_with_dropout_is_proven(dlb: Dlb) -> None:
    ended = dlb("verify", DROPOUT, "--on", "example", "--on", "faulty", "--threads", 1, "--json")
    assert ended.status == 0, ended.err
    for adapter in ("example", "faulty"):
        found = checks(ended.document, adapter)
        assert {result["verdict"] for result in found.values()} == {"passed"}
        assert {one["tensor"] for one in found["dropout"]["figures"]} == {"early", "late"}


def test_workers_with_dropout_equal_one(dlb: Dlb) -> None:
    """Each worker's masks are those of its share of the samples."""
    words = ("--workers", 2, "--strategy", "example_sync", "--steps", 12, "--batch-size", 64)
    ended = dlb(
        *("run", DROPOUT, "--on", "example", "--threads", 1, "--warmup", 2, "--json"),
        *("--rounds", 0, "--out", dlb.out, *words),
    )
    assert ended.status == 0, ended.err
    found = checks(ended.document, "example")
    assert {result["verdict"] for result in found.values()} == {"passed"}
    assert "distributed" in found


#: What is wrong, what must find it first, and where.
WRONG = {
    "own-masks": ("isolated layers, training", "layer early, dropout(rate=0.2)"),
    "unscaled-dropout": ("dropout", "layer early, dropout(rate=0.2)"),
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_dropout_is_found(dlb: Dlb, fault: str) -> None:
    path = dlb.folder / "certificate.json"
    ended = verify(dlb, "--on", "faulty", "--certificate", path, fault=fault)
    assert ended.status == 1
    (told,) = dlb("explain", path, "--json").document["explanations"]
    assert (told["check"], told["text"]["where"]) == WRONG[fault]
    assert told["finding"]["layer"]["built"] == "dropout rate 0.2"
    assert "as faulty has it: dropout rate 0.2" in dlb("explain", path).out


#: Checks that need masks where there is dropout.
TRAINING = {
    "forward float64, training",
    "forward float64, timed batch",
    "isolated layers, training",
    "isolated layers, extremes",
    "gradients float64",
    "gradients float64, extremes",
    "gradients float64, timed batch",
    "gradients by differences",
    "gradients",
    "update",
    "update, timed batch",
}


def test_an_adapter_without_masks_runs_and_says_what_was_not_compared(dlb: Dlb) -> None:
    """Its dropouts cannot be compared, those of the other adapter are."""
    ended = verify(dlb, "--on", "faulty", "--on", "example", fault="few-features")
    assert ended.status == 1
    found = checks(ended.document)
    skipped = {name for name, result in found.items() if result["verdict"] == "not run"}
    assert skipped == TRAINING
    for name in skipped:
        cause = {"code": "feature_missing", "feature": "masks", "because": ["early", "late"]}
        assert found[name]["findings"] == [{"cause": cause}]
        assert "does not have the feature 'masks'" in said(found[name])
    assert {found[name]["verdict"] for name in found.keys() - skipped} == {"passed"}
    assert "dropout" in found
    assert "gradients" not in checks(ended.document, "example")


def test_an_adapter_that_does_not_tie_weights_is_not_given_any(dlb: Dlb) -> None:
    path = dlb.folder / "tied.toml"
    path.write_text(TIED)
    ended = dlb("verify", path, "--on", "faulty", "--json", fault="few-features")
    assert ended.status == 1, ended.out
    assert "layer 'logits' is tied to 'table'" in ended.err
    failure = ended.document["certificate"]["failures"]["faulty"]
    assert (failure["kind"], failure["adapter"], failure["layer"]) == (
        "UnsupportedError",
        "faulty",
        "logits",
    )
    assert "tied_weights" in failure["message"]


def test_an_adapter_that_does_not_smooth_labels_is_not_asked_to(dlb: Dlb) -> None:
    words = ("--set", "loss.label_smoothing=0.1", "--on", "faulty", "--json")
    ended = dlb.run(*words, fault="few-features")
    assert ended.status == 1, ended.out
    assert "feature 'label_smoothing'" in ended.err
    assert dlb.run(*words).status == 0


def test_an_adapter_without_masks_is_proven_where_there_is_no_dropout(dlb: Dlb) -> None:
    ended = dlb.run("--on", "faulty", "--json", fault="few-features")
    assert ended.status == 0, ended.err
    assert "dropout" not in checks(ended.document)
