"""Runs that go well, and models that are not the workload's."""

from __future__ import annotations

import numpy as np
import pytest
from dlb_process import Dlb

from dlb import record

#: What is wrong with the model, and the check that must find it.
WRONG = {
    "wrong-weights": "weights float64",
    "transposed": "weights float64",
    "renamed-weight": "weights float64",
    "wrong-forward": "forward float64",
    "wrong-gradient": "gradients",
    "summed-gradient": "gradients",
    "nan-gradient": "gradients",
    "wrong-update": "trajectory",
    "wrong-export": "export",
    "nan-loss": "export",
}


def test_a_right_adapter_is_proven(dlb: Dlb) -> None:
    ended = dlb.run("--json")
    assert ended.status == 0, ended.err
    assert ended.document["proven"] is True
    (record,) = dlb.records().values()
    assert record["proof"] == "proven" and not record["failure"]
    assert len(record["timing"]["step_seconds"]) == len(record["quality"]["losses"]) == 20
    assert record["timing"]["other_cores"] >= 0
    assert (dlb.out / "models" / f"{record['exported']['sha256']}.onnx").is_file()


def test_data_of_the_user_are_trained_on(dlb: Dlb) -> None:
    draw = np.random.RandomState(0)
    images, labels = draw.randint(0, 256, (90, 1, 28, 28)).astype(np.uint8), np.arange(90) % 10
    np.savez(dlb.folder / "mine.npz", inputs=images, labels=labels)
    ended = dlb.run("--data", "npz:mine.npz", "--batch-size", 5, "--json")
    assert ended.status == 0, ended.err
    (record,) = dlb.records().values()
    assert record["proof"] == "proven" and record["quality"]["test_samples"] == 9
    assert record["workload"]["data"]["path"] == "mine.npz"
    assert record["data"]["name"] == "npz" and "mine.npz (SHA-256" in record["data"]["from"]


AUGMENTED = ("--set", "data.augmentation.pad=4", "--set", "data.augmentation.flip=true")


def test_the_model_is_tested_while_it_trains(dlb: Dlb) -> None:
    """The training goes on as without tests, and the last test is that of the end."""
    plain = dlb.run("--out", "plain", "--json")
    ended = dlb.run("--test-every", 5)
    assert plain.status == ended.status == 0, ended.err
    assert "Tests during training" in ended.out
    quality = dlb.records()["example"]["quality"]
    assert [test["step"] for test in quality["tests"]] == [5, 10, 15, 20]
    seconds = [test["seconds"] for test in quality["tests"]]
    assert seconds == sorted(seconds)
    last = quality["tests"][-1]
    assert last["accuracy"] == quality["test_accuracy"] > quality["tests"][0]["accuracy"] - 0.2
    assert 0 < last["loss"] < 3 and quality["test_seconds"] > 0
    (path,) = plain.document["files"]
    without = record.read(dlb.folder / path).quality
    assert without is not None and list(without.losses) == quality["losses"]
    assert without.tests == ()


def test_the_model_is_tested_by_time(dlb: Dlb) -> None:
    ended = dlb.run("--test-every", "0.01s", "--steps", 200)
    assert ended.status == 0, ended.err
    steps = [test["step"] for test in dlb.records()["example"]["quality"]["tests"]]
    assert len(steps) >= 2 and steps == sorted(set(steps)) and steps[-1] <= 200


def test_a_variable_is_set_for_the_workers_and_told(dlb: Dlb) -> None:
    ended = dlb.run("--on", "faulty", "--variable", "DLB_FAULT=wrong-forward")
    assert ended.status == 1
    record = dlb.records()["faulty"]
    assert record["proof"] == "deviates"
    assert record["options"]["variables"] == {"DLB_FAULT": "wrong-forward"}


@pytest.mark.parametrize("text", ["0", "-3", "soon", "3x", "0s"])
def test_bad_times_of_tests(dlb: Dlb, text: str) -> None:
    ended = dlb.run(f"--test-every={text}")
    assert ended.status == 2 and "--test-every" in ended.complaint


def losses_of(dlb: Dlb, *words: object) -> list[float]:
    ended = dlb.run(*words, "--steps", 40, "--json")
    assert ended.status == 0, ended.err
    (path,) = ended.document["files"]
    quality = record.read(dlb.folder / path).quality
    assert quality is not None
    return [float(loss or "nan") for loss in quality.losses]


def test_augmented_runs_are_proven_and_repeat(dlb: Dlb) -> None:
    once, again = losses_of(dlb, *AUGMENTED), losses_of(dlb, *AUGMENTED)
    assert once == again != losses_of(dlb)


def test_an_adapter_that_does_not_augment_is_refused_what_does(dlb: Dlb) -> None:
    ended = dlb.run(*AUGMENTED, "--on", "faulty", "--json", fault="few-features")
    assert ended.status == 1
    (record,) = dlb.records().values()
    assert "feature 'augmentation'" in record["failure"]["message"] and record["timing"] is None


def test_several_workers_train_on_what_one_would(dlb: Dlb) -> None:
    words = (*AUGMENTED, "--strategy", "example_sync", "--dtype", "float64")
    one, two = (losses_of(dlb, *words, "--workers", workers) for workers in (1, 2))
    np.testing.assert_allclose(one, two, rtol=1e-9)


def test_a_variant_is_proven_and_named(dlb: Dlb) -> None:
    ended = dlb.run("--variant", "layout=columns", "--json")
    assert ended.status == 0, ended.err
    (one,) = ended.document["records"]
    assert one["options"]["variant"] == {"layout": "columns"}
    assert ended.document["certificate"]["variants"] == {"example": {"layout": "columns"}}
    assert "example (layout=columns)" in dlb("show", ended.document["files"][0]).out


def test_a_variant_for_one_adapter_goes_before_one_for_all(dlb: Dlb) -> None:
    words = ["--variant", "example:layout=rows", "--variant", "layout=columns"]
    ended = dlb.run(*words, "--json")
    assert ended.status == 0, ended.err
    (one,) = ended.document["records"]
    # The default is not told.
    assert one["options"]["variant"] == {} == ended.document["certificate"]["variants"]


def test_two_adapters_agree(dlb: Dlb) -> None:
    ended = dlb.run("--on", "example", "--on", "faulty", "--input", "memory")
    assert ended.status == 0, ended.out + ended.err
    assert "proven" in ended.out and "deviates" not in ended.out
    losses = [one["quality"]["losses"] for one in dlb.records().values()]
    assert losses[0] == losses[1]


@pytest.mark.parametrize("workers", [2, 3], ids=["equal_shares", "unequal_shares"])
def test_several_workers_equal_one(dlb: Dlb, workers: int) -> None:
    ended = dlb.run("--workers", workers, "--strategy", "example_sync", "--json")
    assert ended.status == 0, ended.err
    (record,) = dlb.records().values()
    verdicts = {one["check"]: one["verdict"] for one in record["certificate"]["checks"]}
    assert verdicts["distributed"] == "passed"


def test_a_strategy_that_does_not_claim_unequal_shares_is_not_given_them(dlb: Dlb) -> None:
    words = ("--on", "faulty", "--workers", 3, "--strategy", "example_sync", "--json")
    ended = dlb.run(*words, fault="no-claims")
    assert ended.status == 1
    (record,) = dlb.records().values()
    assert "unequal shares of [22, 21, 21] samples are not claimed" in record["failure"]["message"]


def test_workers_that_do_not_average_deviate(dlb: Dlb) -> None:
    words = ("--on", "faulty", "--workers", 2, "--strategy", "example_sync")
    ended = dlb.run(*words, fault="no-averaging")
    assert ended.status == 1
    assert "deviates" in ended.out and "distributed" in ended.out
    assert "fc1.bias, fc2.weight, fc2.bias on rank 0, 1: gradients are not added over" in ended.out


def test_the_comparison_with_one_worker_can_be_asked_for_alone(dlb: Dlb) -> None:
    words = ("verify", dlb.run_words()[1], "--on", "example", "--group", "distributed", "--json")
    assert "--group distributed needs a --strategy" in dlb(*words).complaint
    ended = dlb(*words, "--strategy", "example_sync", "--workers", 2)
    assert ended.status == 0, ended.err
    (check,) = ended.document["certificate"]["checks"]
    assert (check["check"], check["verdict"]) == ("distributed", "passed")


def test_verify_keeps_no_record(dlb: Dlb) -> None:
    words = dlb.run_words()
    ended = dlb("verify", words[1], "--on", "example", "--threads", 1)
    assert ended.status == 0, ended.err
    assert "proven" in ended.out and not list(dlb.folder.rglob("*.json"))


@pytest.mark.parametrize(("fault", "check"), WRONG.items(), ids=list(WRONG))
def test_a_wrong_model_deviates(dlb: Dlb, fault: str, check: str) -> None:
    """And costs an adapter beside it nothing."""
    beside = ["--on", "example"] if fault == next(iter(WRONG)) else []
    ended = dlb.run("--on", "faulty", *beside, fault=fault)
    assert ended.status == 1
    records = dlb.records()
    assert records["faulty"]["proof"] == "deviates", records["faulty"]["failure"]
    assert not beside or records["example"]["proof"] != "unproven"
    failed = {
        each["check"]
        for each in records["faulty"]["certificate"]["checks"]
        if each["adapter"] == "faulty" and each["verdict"] == "failed"
    }
    assert any(each.startswith(check) for each in failed), failed
    assert "faulty differs first in " in ended.out


#: What an adapter can answer that no adapter should: its own run fails, the next one does not.
NONSENSE = ["objects", "missing-layer", "wrong-shape", "missing-gradient", "extra-gradient"]


@pytest.mark.parametrize("fault", [*NONSENSE, "export-nothing"])
def test_a_nonsensical_answer_costs_its_own_run(dlb: Dlb, fault: str) -> None:
    words = dlb.run_words("--on", "faulty", "--on", "example", "--json")
    ended = dlb(*words, fault=fault)
    assert ended.status == 1
    assert "a fault of dlb" not in ended.err
    records = dlb.records()
    assert records["example"]["timing"] and not records["example"]["failure"]
    assert records["faulty"]["proof"] != "proven"
    assert ended.document["proven"] is False
