"""The origin of a figure: hardware, system, Git revision, and other work on the cores."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

__all__ = [
    "OtherWork",
    "available_cores",
    "core_numbers",
    "free_cores",
    "git_state",
    "machine_facts",
]

#: The fields of psutil's CPU times that count as busy. ``user`` includes guests. On a virtual machine
#: ``steal`` is time that the host spent on other machines.
_BUSY = ("user", "nice", "system", "irq", "softirq", "steal")
#: How long other processes are watched before threads are given.
_WATCHED_SECONDS = 0.1


def available_cores() -> int:
    """Logical cores that this process may run on."""
    return len(core_numbers())


def core_numbers() -> list[int]:
    """The numbers of these cores."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def free_cores() -> int:
    """Whole cores that other processes leave now, at least 1; they are watched for a tenth of a second.

    Threads of one operator wait for the last of them. With more threads than cores are free they take
    several times longer, and the proof of a small network twice to three times.
    """
    other_work = OtherWork()
    time.sleep(_WATCHED_SECONDS)
    return max(1, round(available_cores() - other_work.cores()))


class OtherWork:
    """Measures other processes' use of the cores of this process, from its construction on."""

    def __init__(self) -> None:
        self._began, self._busy, self._own = time.monotonic(), _busy_seconds(), _own_seconds()

    def cores(self) -> float:
        """The mean number of cores that were busy, not counting this process and its children."""
        elapsed = max(time.monotonic() - self._began, 1e-9)
        other_seconds = _busy_seconds() - self._busy - (_own_seconds() - self._own)
        return max(other_seconds, 0.0) / elapsed


def _busy_seconds() -> float:
    """CPU seconds that all processes used so far on the cores that this process may use."""
    import psutil

    cores = psutil.cpu_times(percpu=True)
    if hasattr(os, "sched_getaffinity"):
        cores = [cores[core] for core in os.sched_getaffinity(0) if core < len(cores)]
    return sum(getattr(times, name, 0.0) for times in cores for name in _BUSY)


def _own_seconds() -> float:
    """CPU seconds that this process and its descendants used so far, with those that have ended."""
    import psutil

    own, seconds = psutil.Process(), 0.0
    for process in (own, *own.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            # Of a process, and of its children that it has waited for.
            seconds += sum(process.cpu_times()[:4])
    return seconds


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
    """Commit of the Git work tree around ``folder``, and whether it is clean; None without one."""
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        changed = _git(folder, "status", "--porcelain")
    except (OSError, subprocess.SubprocessError):
        return None
    return {"commit": commit, "clean": not changed}


def _git(folder: Path, *words: str) -> str:
    completed = subprocess.run(
        ["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=20, check=True
    )
    return completed.stdout.strip()


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"
