"""Sweeps and measurements that are ended at many moments: no cell twice, nothing lost, nothing left."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from dlb_process import PATIENCE, TESTS, Dlb, heed_signals

from dlb import record
from dlb_measure.results import measurement as measurements
from dlb_measure.results import sweep as sweeps

MLP = TESTS / "workloads" / "mlp.toml"
SEEDS = (1, 2)
#: Ends a process as the N-th file of a results folder is about to take its name, or has the disk full then.
FAULT = """
import errno, os, signal, sys
number, kind, out = os.environ["PYTEST_FAULT"].split(":", 2)
number = int(number)
def look(event, arguments):
    global number
    if event == "os.rename" and str(arguments[1]).startswith(out):
        number -= 1
        if not number and kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if not number:
            raise OSError(errno.ENOSPC, "No space left on device")
sys.addaudithook(look)
"""


@pytest.fixture(scope="module")
def proofs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A DLB_HOME whose proofs all these tests use."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def dlb(dlb_command: Path, tmp_path: Path, proofs: Path) -> Iterator[Dlb]:
    running = Dlb(dlb_command, tmp_path, proofs)
    yield running
    for process in running.alive():
        process.kill()


def words(dlb: Dlb, rounds: int = 0, seeds: Sequence[int] = SEEDS) -> tuple[object, ...]:
    varied = ("--vary", f"seed={','.join(map(str, seeds))}", "--threads", 1, "--steps", 20)
    measured = ("--rounds", rounds, "--repeats", 0) if rounds else ("--rounds", 0)
    return ("sweep", MLP, "--on", "example", *varied, *measured, "--out", dlb.out)


def check(dlb: Dlb, seeds: Sequence[int] = SEEDS, **options: Any) -> None:
    """Give the command again: each cell has one record, all are named, and no part of a file is left."""
    ended = dlb(*words(dlb, seeds=seeds), **options)
    assert ended.status == 0, ended.err
    (path,) = (dlb.out / "sweeps").glob("*.json")
    state = sweeps.read(path)
    assert state.ended
    kept = sorted(each.stem for each in dlb.out.glob("*.json"))
    assert sorted(cell.record for cell in state.cells) == kept, "a cell was run twice"
    recorded = [record.read(dlb.out / f"{name}.json").options.seed for name in kept]
    assert sorted(recorded) == list(seeds)
    assert not list(dlb.out.rglob(".*.part"))
    left_behind(dlb)


def left_behind(dlb: Dlb) -> None:
    """Nothing is left in the folder for temporary files."""
    assert not list(dlb.folder.glob("dlb-*")) and not list(dlb.folder.glob(".ses*"))


@pytest.mark.parametrize(("kind", "numbers"), [("kill", (2, 4, 5)), ("full", (4,))])
def test_as_a_file_is_written(dlb: Dlb, kind: str, numbers: tuple[int, ...]) -> None:
    """The next command goes on where the last was ended: of a cell the model is written, then the sweep, the
    certificate, the series and the record."""
    place = dlb.folder / "place"
    place.mkdir()
    (place / "sitecustomize.py").write_text(FAULT)

    def fault(number: int) -> dict[str, str]:
        return {"PYTHONPATH": str(place), "PYTEST_FAULT": f"{number}:{kind}:{dlb.out}"}

    for number in numbers:
        process = dlb.start(*words(dlb), more=fault(number))
        said = process.communicate(timeout=PATIENCE)[1]
        assert dlb.left() == []
        if kind == "kill":
            assert process.returncode == -signal.SIGKILL, said
        else:
            assert process.returncode == 1 and "No space left" in said, said
            left_behind(dlb)
    check(dlb, more=fault(0))


def wait_for(process: subprocess.Popen[str], happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.002)


def test_as_a_record_appears(dlb: Dlb) -> None:
    for cells, number in enumerate((signal.SIGINT, signal.SIGTERM), start=1):
        process = dlb.start(*words(dlb, seeds=(*SEEDS, 3)))
        wait_for(process, lambda: len(list(dlb.out.glob("*.json"))) >= cells)  # noqa: B023
        os.killpg(process.pid, number)
        assert dlb.finish(process).status == 130
        left_behind(dlb)
    check(dlb, (*SEEDS, 3))


def test_a_terminal_that_closes(dlb: Dlb) -> None:
    """It is an interrupt: the measurement says so, and goes on later."""
    ours, theirs = os.openpty()

    def own_the_terminal() -> None:
        heed_signals()
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    process = dlb.start(
        *words(dlb, rounds=30), stdout=theirs, stderr=theirs, preexec_fn=own_the_terminal
    )
    os.close(theirs)

    def measured() -> list[Path]:
        os.set_blocking(ours, False)
        try:
            os.read(ours, 1 << 16)
        except BlockingIOError:
            pass
        return list((dlb.out / "measurements").glob("*.json"))

    wait_for(process, measured)
    os.close(ours)
    assert process.wait(PATIENCE) == 130 and dlb.left() == []
    left_behind(dlb)
    (path,) = (dlb.out / "measurements").glob("*.json")
    assert measurements.read(path).ended == "interrupted"
