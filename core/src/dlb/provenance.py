"""Where a figure came from: hardware, system, versions, libraries, threads, revision, other work."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

__all__ = ["OtherWork", "available_cores", "git_state", "machine_facts"]

#: What cores have done, of the fields of their times that are no idleness; those of guests are in
#: ``user``. On a virtual machine ``steal`` is what its host gave to others.
_BUSY = ("user", "nice", "system", "irq", "softirq", "steal")


def available_cores() -> int:
    """Logical cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class OtherWork:
    """What others do meanwhile on the cores that this process may use: begins when it is made."""

    def __init__(self) -> None:
        self._began, self._busy, self._own = time.monotonic(), _busy_seconds(), _own_seconds()

    def cores(self) -> float:
        """How many of them were busy since, on average, but for this process and its children."""
        seconds = max(time.monotonic() - self._began, 1e-9)
        others = _busy_seconds() - self._busy - (_own_seconds() - self._own)
        return max(others, 0.0) / seconds


def _busy_seconds() -> float:
    """CPU seconds so far of the cores that this process may use, whoever used them."""
    import psutil

    every = psutil.cpu_times(percpu=True)
    if hasattr(os, "sched_getaffinity"):
        every = [every[core] for core in os.sched_getaffinity(0) if core < len(every)]
    return sum(getattr(times, name, 0.0) for times in every for name in _BUSY)


def _own_seconds() -> float:
    """CPU seconds so far of this process and of those that it started and that are there."""
    import psutil

    own, spent = psutil.Process(), 0.0
    for process in (own, *own.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            spent += sum(process.cpu_times()[:2])
    return spent


def machine_facts() -> dict[str, Any]:
    """The machine and its system, as this process sees them."""
    import psutil

    frequency = psutil.cpu_freq()
    return {
        "cpu": _cpu_model(),
        "architecture": platform.machine(),
        "physical_cores": psutil.cpu_count(logical=False),
        "logical_cores": psutil.cpu_count(),
        "available_cores": available_cores(),
        "cpu_max_mhz": round(frequency.max) if frequency and frequency.max else None,
        "memory_bytes": psutil.virtual_memory().total,
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def git_state(folder: Path) -> dict[str, Any] | None:
    """Commit and cleanliness of the work tree around ``folder``; None where there is none."""
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        changed = _git(folder, "status", "--porcelain")
    except (OSError, subprocess.SubprocessError):
        return None
    return {"commit": commit, "clean": not changed}


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=20, check=True
    )
    return done.stdout.strip()


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"
