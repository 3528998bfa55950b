"""``dlb study``: a paper's table with ours beside it, and reasons where there is nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from dlb_process import Dlb

OWN = Path(__file__).parents[1] / "mlp-threads.toml"


def test_a_study_prints_published_numbers_and_ours(dlb: Dlb) -> None:
    command = ("study", "run", OWN, "--quick", "--on", "example", "--out", dlb.out)
    planned = dlb(*command, "--dry-run")
    assert planned.status == 0 and "mlp-threads: 2 cells, about" in planned.out
    assert not dlb.out.exists()
    ended = dlb(*command, "--json")
    assert ended.status == 0, ended.err
    told = ended.document
    (table,) = told["tables"]
    assert "abacus, 1, training_s" in table["columns"] and "here, 2, training_s" in table["columns"]
    ours = {(each["labels"]["threads"], each["quantity"]): each for each in told["ours"]}
    # The paper has 1,000 iterations and the quick form 20 steps: time is reckoned, accuracy is not.
    time, accuracy = ours["1", "training_s"], ours["1", "accuracy_pct"]
    if time["value"] is not None:
        assert time["estimated"] and time["proof"] == "proven"
        assert time["value"] == pytest.approx(
            1000 * ours["1", "seconds_per_batch"]["value"], rel=0.9
        )
    assert accuracy["value"] is None and "that of 1000 steps" in accuracy["reason"]
    reasons = "\n".join(told["reasons"])
    assert "Torch: adapter 'torch' is not here" in reasons
    assert "resnet-50: not part of the quick form" in reasons
    assert "testing_s: dlb does not time the test" in reasons
    assert told["sweep"] and len(told["measurements"]) == 1
    typeset = dlb(*command, "--format", "markdown")
    assert typeset.status == 0 and typeset.out.startswith("# ") and "Fortran" in typeset.out
    short = dlb(*command, "-q")
    assert short.out == f"{told['answer']}\n" and "2 of 2 cells proven" in short.out
    assert "here, 2, training\\_s" in typeset.out and "- ?: read off a plot" in typeset.out


WHOLE = """
name = "whole"
title = "A perceptron trained to the end"
source = "Nobody et al. (2000), Table 2"
rows = ["tool"]
columns = ["hardware"]
tools = { example = "NumPy" }
quantities = [
  { name = "batch_s", kind = "seconds_per_batch", digits = 6 },
  { name = "epoch_s", kind = "epoch_seconds", digits = 6 },
  { name = "training_s", kind = "training_seconds", digits = 6 },
  { name = "accuracy_pct", kind = "accuracy_pct" },
]
run = { rounds = 2, repeats = 0, trial_steps = 40, steady = "after-warmup" }

[[parts]]
workload = "mine.toml"
settings = { batch_size = 10, threads = 1 }
iterations = 30
samples = 150
"""


def test_what_is_made_up_is_planned_and_one_training_has_one_time(dlb: Dlb) -> None:
    workload = OWN.parents[3] / "core" / "tests" / "workloads" / "mlp.toml"
    text = workload.read_text().replace('"fashion-mnist-subset"', '"mnist"')
    (dlb.folder / "mine.toml").write_text(text)
    (dlb.folder / "whole.toml").write_text(WHOLE)
    command = ("study", "run", "whole.toml", "--on", "example", "--out", dlb.out)
    planned = dlb(*command, "--dry-run")
    assert "whole: 1 cell, about" in planned.out and "; --quick runs less of it" in planned.out
    made_up = (
        "samples of 'mnist' are made up, for mine.toml; accuracy_pct stay empty; to train on it: "
    )
    assert made_up + "dlb data fetch mnist, or --fetch" in planned.out
    assert dlb(*command, "--dry-run", "--json").document["made_up"] == {"mnist": ["mine.toml"]}
    refused = dlb(*command, "--fetch", more={"DLB_OFFLINE": "1"})
    assert refused.status == 2 and "mnist" in refused.complaint and "offline" in refused.complaint
    assert not dlb.out.exists()
    ended = dlb(*command, "--json")
    ours = {each["quantity"]: each for each in ended.document["ours"]}
    # On a machine with much other work, too few steps of a trial are judged.
    proven = {each["proof"] for each in ours.values()} == {"proven"}
    assert ended.status == (0 if proven else 1) and made_up in ended.err
    # The training of the paper's 30 steps was run: two epochs of 15 steps, and one time.
    assert ours["training_s"]["value"] == pytest.approx(2 * ours["epoch_s"]["value"])
    assert not ours["epoch_s"]["estimated"] and ours["epoch_s"]["low"] is None
    batch = ours["batch_s"]
    assert 0 <= batch["low"] < batch["value"] < batch["high"]
    (table,) = ended.document["tables"]
    shown = f"{batch['value']:.6f} ({batch['low']:.6f} to {batch['high']:.6f})"
    assert table["rows"][0][1].startswith(shown)
    assert "(a to b): the 95% interval" in dlb(*command).out


def test_studies_are_listed_and_shown(dlb: Dlb) -> None:
    listed = dlb("study", "list", "--json").document["studies"]
    assert {"shi-table7", "wu-table6", "farkas-table1"} <= {each["study"] for each in listed}
    shown = dlb("study", "show", "shi-table7")
    assert shown.status == 0 and "arXiv:1608.07249v7" in shown.out and "15.444" in shown.out
    latex = dlb("study", "show", "shi-table7", "--format", "latex").out
    assert r"\begin{tabular}" in latex and "15.444" in latex and "shi-table7" not in latex


def test_facts_are_read_off_the_adapters(dlb: Dlb) -> None:
    ended = dlb("study", "run", "farkas-table1", "--on", "example")
    assert (
        ended.status == 0
        and "data (example_sync)" in ended.out
        and "central key-value" in ended.out
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("show", "shi-table-7"), "did you mean 'shi-table7'"),
        (("run", "nowhere.toml"), "nowhere.toml"),
        (
            ("run", "wu-table6", "--on", "example", "--quick"),
            "nothing of study 'wu-table6' can be run",
        ),
        (("run", OWN, "--on", "exampel"), "did you mean 'example'"),
        (("run", OWN, "--rounds", 0), "0 is not in the range"),
    ],
)
def test_bad_requests(dlb: Dlb, words: tuple[object, ...], says: str, tmp_path: Path) -> None:
    ended = dlb("study", *words)
    assert ended.status == 2 and says in ended.complaint
