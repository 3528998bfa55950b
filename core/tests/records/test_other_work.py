"""What others do on the cores while a run is timed, and when a table of results says so."""

from __future__ import annotations

import subprocess
import sys
import time

import msgspec
import psutil
import pytest
from test_run_records import TIMING, make

from dlb.cli.tables import print_results
from dlb.provenance import OtherWork, _own_seconds, available_cores, free_cores
from dlb.record import is_disturbed

#: Works for so many CPU seconds, tells its number, and is there until it is ended.
WORK = """
import os, sys, time
while time.process_time() < float(sys.argv[1]):
    pass
print(os.getpid(), flush=True)
time.sleep(60)
"""
SECONDS = 0.6


ORPHAN = "import subprocess, sys; subprocess.Popen(sys.argv[1:])"


def worked(*, orphan: bool) -> tuple[float, float]:
    """CPU seconds of others, and of our own, while a process works that is our child, or is not."""
    words = [sys.executable, "-c", WORK, str(SECONDS)]
    if orphan:  # its parent ends at once
        words = [sys.executable, "-c", ORPHAN, *words]
    others, began, own = OtherWork(), time.monotonic(), _own_seconds()
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        worker = psutil.Process(int(process.stdout.readline()))
        found = others.cores() * (time.monotonic() - began), _own_seconds() - own
        worker.kill()
        process.kill()
    return found


def test_work_of_others_is_told_from_that_of_children() -> None:
    others, own = worked(orphan=True)
    assert others > SECONDS - 0.1 and own < SECONDS / 2
    # Whatever else works here meanwhile is others' too.
    _, own = worked(orphan=False)
    assert own > SECONDS - 0.1


def test_cores_that_others_use_are_not_free() -> None:
    spin = "import os\nprint(os.getpid(), flush=True)\nwhile True: pass"
    words = [sys.executable, "-c", ORPHAN, sys.executable, "-c", spin]
    began = [
        subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(available_cores())
    ]
    spinning = [int(process.stdout.readline()) for process in began if process.stdout]
    try:
        assert free_cores() == 1
    finally:
        for number in spinning:
            psutil.Process(number).kill()
        for process in began:
            process.communicate()


@pytest.mark.parametrize(
    ("others", "own", "cores", "told"),
    [
        (1.0, 1.9, 2, True),
        (1.0, 1.0, 2, True),
        (0.05, 1.95, 2, False),
        (0.5, 1.0, 2, False),
        (30.0, 8.0, 64, False),
        (30.0, 31.0, 64, True),
        (None, 1.9, 2, False),
    ],
)
def test_a_table_says_where_others_took_what_was_timed(
    capsys: pytest.CaptureFixture[str], others: float | None, own: float, cores: int, told: bool
) -> None:
    timing = msgspec.structs.replace(
        TIMING, other_cores=others, cpu_seconds=own * TIMING.total_seconds
    )
    assert is_disturbed(timing, cores) == told
    print_results([make(timing=timing, machine={"available_cores": cores})])
    line = f"example: while it was timed, other work took {others} of {cores} cores"
    assert (line in capsys.readouterr().out) == told


def test_a_record_of_no_time_is_shown() -> None:
    nothing = msgspec.structs.replace(TIMING, other_cores=1.0, total_seconds=0.0, cpu_seconds=0.0)
    assert not is_disturbed(nothing, 2)
