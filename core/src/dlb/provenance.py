"""Where a figure came from: hardware, system, versions, libraries, threads, revision."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

__all__ = ["available_cores", "git_state", "machine_facts", "worker_facts"]


def available_cores() -> int:
    """Logical cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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


def worker_facts() -> dict[str, Any]:
    """The worker's interpreter, every package of its environment, and its BLAS and OpenMP pools."""
    import threadpoolctl

    return {
        "python": platform.python_version(),
        "executable": sys.executable,
        "packages": dict(
            sorted({d.metadata["Name"]: d.version for d in metadata.distributions()}.items())
        ),
        "libraries": [
            {
                key: str(pool.get(key))
                for key in ("user_api", "internal_api", "version", "num_threads")
            }
            for pool in threadpoolctl.threadpool_info()
        ],
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
