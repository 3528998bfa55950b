"""Workers that die, hang, raise: their run is recorded as failed, the others go on."""

from __future__ import annotations

from pathlib import Path

import pytest
from dlb_process import Dlb, failure_line, said

#: What happens, where, and what the record must say.
FAILURES = [
    ("die-sigkill@train", "worker 0 was killed by SIGKILL"),
    ("die-sigsegv@build", "worker 0 was killed by SIGSEGV"),
    ("die-sigkill@export", "was killed by SIGKILL"),
    ("leave-child@train", "was killed by SIGKILL"),
    ("exit@start", "ended with exit status 3"),
    ("stop@gradients", "was stopped by a signal"),
    ("hang-sleep@train", "made no progress in 'train' for 3 s"),
    ("hang-gil@train", "made no progress in 'train' for 3 s"),
    ("hang-sleep@start", "made no progress in 'start' for 3 s"),
    ("raise@build", "ValueError: the kernel of the framework burst (in 'build'"),
    ("raise@load", "ValueError: the kernel of the framework burst (in 'train'"),
    ("unsupported@start", "this framework cannot do that; take another"),
]


@pytest.mark.parametrize(("fault", "says"), FAILURES, ids=[fault for fault, _ in FAILURES])
def test_alone(dlb: Dlb, fault: str, says: str) -> None:
    words = dlb.run_words("--on", "faulty", "--on", "example", "--json", "--timeout", 3)
    ended = dlb(*words, fault=fault)
    assert ended.status == 1
    document = ended.document
    assert not document["proven"] and len(document["records"]) == 2
    records = dlb.records()
    failed, other = records["faulty"], records["example"]
    line = failure_line(failed["failure"])
    assert says in line and "\n" not in line
    assert failed["failure"]["adapter"] == "faulty"
    assert failed["proof"] == "unproven"
    assert other["proof"] == "proven" and not other["failure"]
    assert f"faulty: failed, unproven: {line} (after " in ended.err


def test_an_answer_that_nobody_has_thought_of_costs_only_its_adapter(dlb: Dlb) -> None:
    ended = dlb.run("--on", "faulty", "--on", "example", fault="fewer-rows")
    assert ended.status == 1
    records = dlb.records()
    failure = records["faulty"]["failure"]
    assert failure["message"].startswith("an answer of its worker could not be used: ")
    assert "Traceback" in Path(failure["log"]).read_text()
    assert records["example"]["proof"] == "proven" and not records["example"]["failure"]


def test_output_of_a_dead_worker_is_kept(dlb: Dlb) -> None:
    dlb.run("--on", "faulty", fault="die-sigsegv@build")
    failure = dlb.records()["faulty"]["failure"]
    (log,) = [path for path in dlb.out.glob("faulty-*.log") if str(path) == failure["log"]]
    assert failure["kind"] == "WorkerDied"
    # Python's fault handler tells where it was.
    assert "dlb_build_model" in log.read_text()


def test_output_of_a_dead_worker_outlives_verify(dlb: Dlb) -> None:
    words = dlb.run_words()
    kept = dlb.folder / "temporary"
    kept.mkdir()
    given = ("verify", words[1], "--on", "faulty", "--threads", 1)
    ended = dlb(*given, fault="die-sigsegv@build", more={"TMPDIR": str(kept)})
    assert ended.status == 1
    (log,) = [path for path in kept.rglob("faulty-*.log") if str(path) in ended.err]
    assert "dlb_build_model" in log.read_text()


def test_output_of_an_export_that_raised_is_kept(dlb: Dlb) -> None:
    """The run goes on; what the check points to is still there when it has ended."""
    dlb.run("--on", "faulty", fault="raise@export")
    record = dlb.records()["faulty"]
    assert record["failure"] is None
    (skipped,) = [one for one in record["certificate"]["checks"] if one["check"] == "export"]
    failure = skipped["findings"][0]["cause"]["failure"]
    assert failure["kind"] == "WorkerRaised"
    assert "dlb_export_onnx" in Path(failure["log"]).read_text()


def test_silence_is_noticed_before_the_time_is_out(dlb: Dlb) -> None:
    ended = dlb.run("--on", "faulty", fault="hang-gil@train")
    assert ended.status == 1
    assert "was silent for 10 s" in dlb.records()["faulty"]["failure"]["message"]


#: Faults of one of two workers.
OF_A_PEER = [
    ("die-sigkill@train", "1", "worker 1 was killed by SIGKILL"),
    ("die-sigkill@train", "0", "worker 0 was killed by SIGKILL"),
    ("stop@train", "1", "worker 1 (process"),
    ("die-sigkill@join", "1", "worker 1 was killed by SIGKILL"),
    ("hang-sleep@join", "1", "made no progress in 'start' for 3 s"),
    ("raise@train", "1", "the kernel of the framework burst"),
    ("raise@export", "1", "the kernel of the framework burst"),
    ("raise@plan", "0", "the kernel of the framework burst"),
]


@pytest.mark.parametrize(
    ("fault", "rank", "says"), OF_A_PEER, ids=[f"{fault}-{rank}" for fault, rank, _ in OF_A_PEER]
)
def test_peer(dlb: Dlb, fault: str, rank: str, says: str) -> None:
    words = ("--on", "faulty", "--workers", 2, "--strategy", "example_sync", "--timeout", 3)
    ended = dlb.run(*words, fault=fault, more={"DLB_FAULT_RANK": rank})
    assert ended.status == 1
    record = dlb.records()["faulty"]
    lines = [failure_line(record["failure"])] if record["failure"] else []
    lines += map(said, record["certificate"]["checks"])
    assert any(says in line for line in lines), lines


def test_loss_that_is_not_a_number(dlb: Dlb) -> None:
    ended = dlb.run("--on", "faulty", "--json", fault="nan-loss")
    assert ended.status == 1
    record = dlb.records()["faulty"]
    losses = record["quality"]["losses"]
    assert losses[3] is not None and losses[4] is None and losses[-1] is None
    assert not ended.document["proven"] and not record["certificate"]["diverged"]
