"""The observer of processes: what they took is what they did."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dlb.errors import DlbError
from dlb_measure import resources
from dlb_worker.plugins import observer

#: Keeps a processor busy and 100 MB in memory, in a process that it starts, which ends before it.
WORK = """
import subprocess, sys, time
if len(sys.argv) > 1:
    held = bytearray(100_000_000)
    while time.process_time() < 1.0:
        pass
else:
    sys.stdin.readline()
    subprocess.run([sys.executable, __file__, "child"])
    print("over", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def observing(processes: Any, device: str = "cpu") -> Iterator[dict[str, Any]]:
    with contextmanager(resources.dlb_observe_processes)(processes, device) as seen:
        yield seen


def test_what_a_process_and_its_child_took(tmp_path: Path) -> None:
    script = tmp_path / "work.py"
    script.write_text(WORK)
    process = subprocess.Popen(
        [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        with observing(lambda: [process.pid]) as seen:
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == "over\n"
            time.sleep(2 * resources.PERIOD_SECONDS)
    finally:
        process.kill()
        process.wait()
    # The child was seen a second after its start at the latest, with all that it had taken.
    assert 0.5 <= seen["cpu_user_seconds"] + seen["cpu_system_seconds"] <= 2.0
    assert seen["memory_peak_bytes"] >= 100_000_000 > 0.5 * seen["memory_average_bytes"]
    assert seen["processes"] == 2 and seen["samples"] >= 4
    assert seen["own_cpu_seconds"] < 0.1 * seen["seconds"]
    assert seen["devices"] == [] and seen["devices_reason"]
    series = seen["series"]
    assert len(series["seconds"]) == len(series["cores"]) == len(series["memory_bytes"])
    assert max(series["memory_bytes"]) == seen["memory_peak_bytes"]
    assert max(series["cores"]) >= 0.5


def test_processes_that_are_gone_are_no_error() -> None:
    with observing(lambda: [2**22 + 1]) as seen:
        pass
    assert seen["cpu_user_seconds"] == seen["processes"] == seen["memory_peak_bytes"] == 0


def test_long_series_are_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "PERIOD_SECONDS", 0.001)
    monkeypatch.setattr(resources, "MOST_POINTS", 8)
    with observing(list) as seen:
        time.sleep(0.2)
    assert seen["samples"] > 40
    assert 4 <= len(seen["series"]["seconds"]) <= 8


def test_energy_of_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A counter that begins anew is not negative energy; one that cannot be read is told."""
    monkeypatch.setattr(resources, "RAPL", tmp_path)
    with observing(list) as seen:
        pass
    assert seen["cpu_energy_joules"] is None
    assert seen["cpu_energy_reason"] == "this machine has no RAPL counters"
    for name, before in (("intel-rapl:0", 5_000_000), ("intel-rapl:1", 9_000_000)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "energy_uj").write_text(f"{before}\n")
        (tmp_path / name / "max_energy_range_uj").write_text("10000000\n")
    with observing(list) as seen:
        (tmp_path / "intel-rapl:0" / "energy_uj").write_text("7500000\n")
        (tmp_path / "intel-rapl:1" / "energy_uj").write_text("1000000\n")
    assert seen["cpu_energy_joules"] == pytest.approx(2.5 + 2.0)
    with observing(list) as seen:
        (tmp_path / "intel-rapl:0" / "energy_uj").unlink()
    assert seen["cpu_energy_joules"] is None
    assert seen["cpu_energy_reason"].startswith("RAPL counters cannot be read")


def test_a_gpu_without_its_library_is_told() -> None:
    with observing(list, "cuda") as seen:
        pass
    assert seen["devices"] or seen["devices_reason"]


def test_an_observer_that_fails_at_its_end_is_named() -> None:
    def power() -> Iterator[dict[str, Any]]:
        yield {}
        raise OSError("no counter")

    with pytest.raises(DlbError, match="observer 'power' failed: OSError: no counter"):
        with observer("power", power, {}):
            pass
