"""``dlb run --rounds``: trials in new processes, a document that grows, and a table that says what is known."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dlb_process import PATIENCE, TESTS, Dlb

from dlb import contents
from dlb.errors import RecordError
from dlb_measure.results import measurement as results
from dlb_measure.stopping import confidence_after, looks

MLP = TESTS / "workloads" / "mlp.toml"
ONCE = ("--repeats", 0)
BOTH = ("--on", "example", "--on", "faulty", *ONCE)


def documents(dlb: Dlb) -> list[dict[str, Any]]:
    """Every measurement that was written; each is whole and valid."""
    found = []
    for path in sorted((dlb.out / "measurements").glob("*.json")):
        assert results.read(path).name == path.stem
        found.append(json.loads(path.read_bytes()))
    return found


def test_rounds_of_two_adapters(dlb: Dlb) -> None:
    ended = dlb.run(*BOTH, "--rounds", 2, "--order", "interleaved", "--json")
    assert ended.status == 0, ended.err
    (document,) = documents(dlb)
    told = ended.document["measurement"]
    assert told["name"] == document["name"] and document["ended"] == "rounds"
    trials = [each for each in document["trials"] if each["attempt"] == 0]
    for number in range(2):
        counted = Counter(each["cell"] for each in trials if each["round"] == number)
        assert sorted(counted.values()) == [1, 2]
    assert len({each["hash_seed"] for each in trials}) == len(trials)
    for trial in document["trials"]:
        assert set(trial["checks"].values()) == {"passed"}
        assert {"weights float32", "audit, steps", "audit, clock"} <= trial["checks"].keys()
        assert trial["judged"] == 20
        resources = trial["observed"]["resources"]
        assert resources["memory_peak_bytes"] > 10_000_000 and resources["processes"] >= 1
        assert "series" not in resources
        series = contents.read_arrays(dlb.out, trial["series"])
        assert len(series["step_seconds"]) == len(series["data_seconds"]) == 20
        assert "resources/cores" in series
        assert list(trial["phases"]) == ["forward", "backward", "update"]
        assert all(seconds > 0 for seconds in trial["phases"].values())
        if trial["median"] is not None:
            steady = series["step_seconds"][trial["first_steady"] :]
            assert trial["median"] == np.median(steady)
    first, second = told["compared"]
    assert first["ratio"] is None
    if second["ratio"] is not None:
        assert second["word"] in ("faster", "slower", "same", "unclear")
    for peak in document["peaks"]:
        assert min(peak["operations_per_second"], peak["bytes_per_second"], peak["rows"]) > 0
        assert 0 <= peak["operations_spread"] < 1 and not peak["reason"]
    assert [each["adapter"] for each in document["peaks"]] == ["example", "faulty"]
    for work, cell in zip(told["work"], document["cells"], strict=True):
        assert cell["operations"] > 0 and cell["bytes"] > 0
        fastest = max(each["operations_per_second"] for each in document["peaks"])
        assert work["product"]["operations_per_second"] == fastest
        if work["operations_per_second"] is not None:
            assert work["share_of_product"] == work["operations_per_second"] / fastest


@pytest.mark.parametrize("fault", ["unsupported@peak", "die-sigkill@peak"])
def test_a_peak_that_cannot_be_measured_is_null_with_the_reason(dlb: Dlb, fault: str) -> None:
    words = ("--on", "faulty", *ONCE, "--rounds", 1, "--steady", "after-warmup")
    ended = dlb.run(*words, fault=fault)
    assert ended.status == 0, ended.err
    assert "Peak of faulty in float32" in ended.out and "is not known: " in ended.out
    ((peak,),) = [each["peaks"] for each in documents(dlb)]
    assert peak["operations_per_second"] is None and peak["reason"]


def test_trials_that_alternate(dlb: Dlb) -> None:
    words = ("--rounds", 2, "--order", "alternating", "--trial-steps", 60, "--warmup", 3)
    ended = dlb.run(*BOTH, *words)
    assert ended.status == 0, ended.err
    (document,) = documents(dlb)
    assert document["order"] == "alternating" and document["ended"] == "rounds"
    assert len(document["trials"]) == 6
    for trial in document["trials"]:
        assert set(trial["checks"].values()) == {"passed"}
        assert (trial["kind"], trial["first_steady"]) == ("not tested", 10)
        steps = contents.read_arrays(dlb.out, trial["series"])["step_seconds"]
        # Twelve blocks of five steps, the first of which is cold; a fifth of them is warm-up.
        logs = np.log(np.median(steps.reshape(12, 5)[2:, 1:], axis=1))
        assert trial["median"] == pytest.approx(np.exp(logs.mean()))


@pytest.mark.parametrize(
    ("killed", "order"),
    [(True, "interleaved"), (False, "alternating")],
)
def test_a_measurement_that_was_ended_goes_on(dlb: Dlb, killed: bool, order: str) -> None:
    words = dlb.run_words(*BOTH, "--rounds", 2, "--order", order)
    process = dlb.start(*words)
    deadline = time.monotonic() + PATIENCE
    while not any(len(each["trials"]) > 1 for each in documents(dlb)):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    (process.kill if killed else process.terminate)()
    ended = dlb.finish(process)
    (before,) = documents(dlb)
    if not killed:
        assert ended.status == 130 and "trials are kept" in ended.complaint
        assert before["ended"] == "interrupted"
    assert dlb(*words).status == 0
    (after,) = documents(dlb)
    assert after["trials"][: len(before["trials"])] == before["trials"]
    trials = [each for each in after["trials"] if each["attempt"] == 0]
    assert (
        len({(each["round"], each["cell"], each["again"]) for each in trials}) == len(trials) == 6
    )
    assert after["ended"] == "rounds"


def test_more_steps_than_the_run_has(dlb: Dlb) -> None:
    """The paper's rule: a fixed number of steps is skipped, and all others count."""
    words = ("--warmup", 10, "--trial-steps", 60, "--steady", "after-warmup")
    ended = dlb.run(*ONCE, "--rounds", 2, *words)
    assert ended.status == 0, ended.err
    assert "not tested" in ended.out and "Audit: " in ended.out
    (document,) = documents(dlb)
    for trial in document["trials"]:
        assert (trial["kind"], trial["first_steady"]) == ("not tested", 10)
        series = contents.read_arrays(dlb.out, trial["series"])["step_seconds"]
        assert len(series) == 60 and trial["median"] == np.median(series[10:])
        assert trial["judged"] == 24


def test_an_adapter_that_failed_is_not_measured(dlb: Dlb) -> None:
    ended = dlb.run(*BOTH, "--rounds", 1, "--json", fault="die-sigkill@train")
    assert ended.status == 1
    measurement = ended.document["measurement"]
    assert [each["adapter"] for each in measurement["cells"]] == ["example"]
    assert len([each for each in measurement["trials"] if each["attempt"] == 0]) == 2


def test_results_are_compared(dlb: Dlb) -> None:
    words = dlb.run_words(*BOTH, "--rounds", 2)
    told = dlb(*words)
    assert told.status == 0 and "2 rounds of new processes" in told.out, told.err
    assert "times example" in told.out and "An adapter next to itself" in told.out
    within = dlb("compare", dlb.out, "--baseline", "faulty", "--json")
    assert within.status == 0, within.err
    assert within.document["compared"][1]["ratio"] is None
    first = dlb.folder / "before"
    dlb.out.rename(first)
    assert dlb(*words).status == 0
    between = dlb("compare", first, dlb.out)
    assert between.status == 0 and "times before" in between.out, between.err
    # Half of the time in every trial of the first: the second is slower.
    (path,) = (first / "measurements").glob("*.json")
    document = json.loads(path.read_bytes())
    for trial in document["trials"]:
        if trial["median"] is not None:
            trial["median"] /= 10
    path.write_text(json.dumps(document))
    assert dlb("compare", first, dlb.out, "--fail-slower", "5%").status == 1
    document["machine"]["cpu"] = "another"
    path.write_text(json.dumps(document))
    refused = dlb("compare", first, dlb.out)
    assert refused.status == 2 and "two machines" in refused.complaint
    assert "cpu: another" in dlb("compare", first, dlb.out, "--force").out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "one or two results"),
        (("a", "b", "c"), "one or two results"),
        (("nowhere",), "nowhere"),
        (("a.onnx", "b.onnx"), "ONNX files are compared by: dlb diff"),
        (("a.json", "b.json", "--baseline", "torch"), "about one measurement"),
        (("a.json", "--fail-slower", "x"), "--fail-slower x"),
    ],
)
def test_bad_comparisons(dlb: Dlb, words: tuple[object, ...], says: str) -> None:
    ended = dlb("compare", *words)
    assert ended.status == 2 and says in ended.complaint


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--precision", "0"), "--precision 0: must be above 0"),
        (("--precision", "x%"), "such as 2%"),
        (("--precision", "2%", "--rounds", 3), "exclude each other"),
        (("--rounds", -1), "-1 is not in the range"),
        (("--rounds", 2, "--trial-steps", 2), "more than the 2 steps of --warmup"),
        (("--rounds", 2, "--budget", "soon"), "such as 90s, 20m or 2h"),
        (("--rounds", 2, "--budget", "0s"), "above 0"),
        (("--order", "isolated", "--precision", "2%"), "give --rounds alone"),
        (("--rounds", 2, "--margin", "150%"), "below 100%"),
        (("--until", "settled", "--precision", "2%"), "--until settled and --precision exclude"),
        (
            ("--until", "settled", "--order", "isolated", "--rounds", 3),
            "settled and --order isolated exclude",
        ),
        (
            ("--quick", "--order", "interleaved", "--rounds", 3),
            "--quick and --order interleaved exclude",
        ),
        (("--quick", "--rounds", 0), "--quick and --rounds 0 exclude each other"),
        (("--quick", "--precision", "2%"), "--quick and --precision exclude"),
    ],
)
def test_bad_options(dlb: Dlb, words: tuple[object, ...], says: str) -> None:
    ended = dlb.run(*words)
    assert ended.status == 2 and says in ended.complaint
    assert documents(dlb) == []


def test_rounds_end_once_every_word_is_settled(dlb: Dlb) -> None:
    words = ("--until", "settled", "--rounds", 12, "--steady", "after-warmup")
    ended = dlb.run(*BOTH, *words, fault="slow@train")
    assert ended.status == 0, ended.err
    (document,) = documents(dlb)
    done = len({trial["round"] for trial in document["trials"]})
    assert document["ended"] == "settled" and done in looks(12)[:-1]
    assert f"Ended after {done} of 12 rounds, since every word is settled" in ended.out
    last = ended.out.splitlines()[-1]
    assert " times " in last and last.endswith("; both proven.")
    told = dlb("compare", dlb.out, "--json").document
    confidence = told["compared"][1]["ratio"]["confidence"]
    assert confidence == confidence_after(done, 12, last=False) > 0.95
    assert told["answer"] == last and told["compared"][1]["word"] == "slower"


def test_a_quick_run_is_called_quick_and_claims_no_proof_that_it_did_not_make(
    dlb_command: Path, tmp_path: Path
) -> None:
    dlb = Dlb(dlb_command, tmp_path, tmp_path / "home")  # without a proof
    words = ("--on", "example", "--on", "faulty", "--rounds", 3, "--quick")
    ended = dlb.run(*words, "--json")
    assert ended.status == 0, ended.err
    (document,) = documents(dlb)
    assert document["quick"] and document["order"] == "alternating"
    assert [trial["again"] for trial in document["trials"]] == [False] * 6
    assert {cell["proof"] for cell in document["cells"]} == {"unproven"}
    records = ended.document["records"]
    assert {each["command"] for each in records} == {"quick"}
    assert {each["proof"] for each in records} == {"unproven"} and not ended.document["proven"]
    assert "gradients" in ended.document["certificate"]["left_out"]
    assert ended.document["answer"].startswith("Quick, and not proven beyond weights, ")
    # Nothing of it is kept as a proof; one that a whole run kept is used.
    assert dlb.run(*words[:4], "--rounds", 0).status == 0
    again = dlb.run(*words)
    assert "kept proofs; then 3 rounds of 2 new processes each" in again.err
    last = again.out.splitlines()[-1]
    assert last.startswith("Quick: ") and last.endswith("; both proven.")
    assert "of new processes, 95% intervals, quick" in again.out


def test_a_budget_that_is_too_short_for_a_second_round(dlb: Dlb) -> None:
    ended = dlb.run("--rounds", 50, "--budget", "1s")
    assert ended.status == 0, ended.err
    assert "The budget ended after 1 of 50 rounds" in ended.out
    (document,) = documents(dlb)
    assert document["ended"] == "budget"


def test_files_of_others(dlb: Dlb) -> None:
    assert dlb.run(*ONCE, "--rounds", 1).status == 0
    (path,) = (dlb.out / "measurements").glob("*.json")
    (dlb.out / "measurements" / "foreign.json").write_text("{}")
    assert dlb.run(*ONCE, "--rounds", 2).status == 0
    with pytest.raises(RecordError):
        results.read(dlb.out / "measurements" / "foreign.json")
    digest = results.read(path).trials[0].series
    series = dlb.out / "series" / f"{digest}.safetensors"
    content = series.read_bytes()
    series.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(RecordError, match="not that of its name"):
        contents.read_arrays(dlb.out, digest)
    for name in ("../../etc/passwd", "a" * 64, ""):
        with pytest.raises(RecordError):
            contents.read_arrays(dlb.out, name)


def test_from_python(dlb: Dlb) -> None:
    code = """
import dlb_measure
from dlb_measure import frames

outcome = dlb_measure.run(WHAT, ["example"], steps=30, threads=1, out="made", plan=dlb_measure.Plan(rounds=2))
measurement = dlb_measure.read_measurement("made")
assert outcome.measurement == measurement and measurement.ended == "rounds"
(one,) = dlb_measure.compare(measurement, "example")
trials, steps = frames.trials(measurement), frames.steps(measurement, "made")
assert len(trials) == len(measurement.trials) and set(trials["proof"]) == {"proven"}
assert (trials["forward_seconds"] > 0).all() and (trials["resources.cpu_user_seconds"] >= 0).all()
assert len(steps) == 30 * len(trials) and (steps["step_seconds"] > 0).all()
for trial, own in steps.groupby(["round", "again", "attempt"]):
    kept = own[own["steady"]]["step_seconds"]
    (median,) = trials.set_index(["round", "again", "attempt"]).loc[[trial], "median"]
    assert median == kept.median() or (median != median and kept.empty)
(row,) = frames.ratios(measurement).to_dict("records")
assert row["cell"] == "example" and row["seconds"] == one.seconds and row["threads"] == 1
kinds = frames.results("made", "workload=mlp")["kind"]
assert sorted(kinds) == ["measurement", "run"], kinds
print("as told")
"""
    words = [dlb.command.parent / "python", "-c", f"WHAT = {str(MLP)!r}\n{code}"]
    done = subprocess.run(
        [str(each) for each in words],
        env=dlb.environment(""),
        cwd=dlb.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "as told\n", done.stderr
    assert dlb.left() == []


def test_the_shipped_schema_is_that_of_the_measurement() -> None:
    assert results.schema() == results.make_schema()
