"""Commands that are interrupted, ended or killed: finished records stay, no process does."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable

import pytest
from dlb_process import PATIENCE, TESTS, Dlb

from dlb.provenance import available_cores

#: What a certificate holds of an adapter whose run was interrupted.
INTERRUPTED = {"kind": "Interrupted", "message": "interrupted before it was done"}

Ending = Callable[[subprocess.Popen[str]], None]

#: How a command is asked to end: Ctrl-C reaches the whole group of a terminal.
ENDINGS: dict[str, Ending] = {
    "ctrl-c": lambda process: os.killpg(process.pid, signal.SIGINT),
    "sigint to dlb alone": lambda process: process.send_signal(signal.SIGINT),
    "sigterm": lambda process: process.send_signal(signal.SIGTERM),
}


def start_and_wait(dlb: Dlb, line: str, *words: object) -> subprocess.Popen[str]:
    """Start a run whose second adapter trains for a long time; wait for a line about it."""
    given = dlb.run_words("--on", "example", "--on", "faulty", "--steps", 10_000, *words)
    # The later --steps counts; the first adapter's 10 000 steps of a tiny model are quick.
    process = dlb.start(*given, fault="slow@train")
    assert process.stderr is not None
    deadline = time.monotonic() + PATIENCE
    while process.stderr.readline().strip() != line:
        assert time.monotonic() < deadline and process.poll() is None
    return process


@pytest.mark.parametrize("end", ENDINGS.values(), ids=list(ENDINGS))
def test_in_the_middle_of_the_second_adapter(dlb: Dlb, end: Ending) -> None:
    process = start_and_wait(dlb, "faulty: training", "--json", "--steps", 300)
    time.sleep(0.5)
    end(process)
    ended = dlb.finish(process)
    assert ended.status == 130
    assert "interrupted" in ended.complaint
    assert ended.document["interrupted"] is True
    failures = ended.document["certificate"]["failures"]
    assert failures == {"faulty": INTERRUPTED}
    records = dlb.records()
    assert list(records) == ["example"] and records["example"]["timing"]


def test_before_anything_has_run(dlb: Dlb) -> None:
    process = start_and_wait(dlb, "example: starting", "--json")
    process.send_signal(signal.SIGINT)
    ended = dlb.finish(process)
    assert ended.status == 130 and dlb.records() == {}
    assert ended.document["records"] == []


def test_impatient(dlb: Dlb) -> None:
    """A second Ctrl-C while the first is dealt with leaves nothing behind either."""
    process = start_and_wait(dlb, "faulty: training", "--steps", 300)
    for _ in range(3):
        process.send_signal(signal.SIGINT)
        time.sleep(0.02)
    ended = dlb.finish(process)
    assert ended.status == 130, ended.err
    assert list(dlb.records()) == ["example"]


@pytest.mark.parametrize("more", [(), ("--workers", 2, "--strategy", "example_sync")])
def test_workers_end_by_themselves_when_dlb_is_killed(dlb: Dlb, more: tuple[object, ...]) -> None:
    process = start_and_wait(dlb, "faulty: training", "--steps", 300, *more)
    assert len(dlb.alive()) >= 2
    process.kill()
    process.communicate(timeout=PATIENCE)
    assert dlb.left() == []
    assert "example" in dlb.records()


def verify_at_once(
    dlb: Dlb, steps: int = 10_000, until: str = "proving updates"
) -> subprocess.Popen[str]:
    """Start to verify two adapters; wait until one is proving updates, and the other so far."""
    words = ("--on", "faulty", "--on", "example", "--threads", 1, "--steps", steps, "--json")
    process = dlb.start("verify", TESTS / "workloads" / "mlp.toml", *words, fault="slow@train")
    assert process.stderr is not None
    waited_for = {"faulty: proving updates", f"example: {until}"}
    deadline = time.monotonic() + PATIENCE
    while waited_for:
        assert time.monotonic() < deadline and process.poll() is None
        waited_for.discard(process.stderr.readline().strip())
    return process


@pytest.mark.skipif(available_cores() < 2, reason="adapters share one core by turns")
@pytest.mark.parametrize("end", ENDINGS.values(), ids=list(ENDINGS))
def test_adapters_that_climb_at_once(dlb: Dlb, end: Ending) -> None:
    process = verify_at_once(dlb)
    assert len(dlb.alive()) >= 3
    end(process)
    ended = dlb.finish(process)
    assert ended.status == 130 and "interrupted" in ended.complaint


@pytest.mark.skipif(available_cores() < 2, reason="adapters share one core by turns")
def test_what_was_done_before_the_adapter_asked_for_first_is_kept(dlb: Dlb) -> None:
    process = verify_at_once(dlb, 300, until="done")
    time.sleep(0.5)  # What ended a moment ago may be interrupted still.
    process.send_signal(signal.SIGINT)
    ended = dlb.finish(process)
    assert ended.status == 130
    certificate = ended.document["certificate"]
    assert certificate["failures"] == {"faulty": INTERRUPTED}
    assert {one["adapter"] for one in certificate["checks"]} == {"example"}
    assert list(certificate["adapters"]) == ["faulty", "example"]


@pytest.mark.skipif(available_cores() < 2, reason="adapters share one core by turns")
def test_adapters_that_climb_at_once_end_when_dlb_is_killed(dlb: Dlb) -> None:
    process = verify_at_once(dlb)
    process.kill()
    process.communicate(timeout=PATIENCE)
    assert dlb.left() == []
