"""What it costs to prove a workload: seconds of the whole ladder, memory of each worker and of dlb itself.

    python benchmarks/ladder_cost.py [WORKLOAD] [--on ADAPTER ...] [--runs N] [--gigabytes N]
                                     [--seconds N] [-- OPTION ...]

``dlb verify`` is run as a user runs it, on every adapter that dlb finds, with what options come after
``--``. The peak of the memory that each adapter's processes hold (resident, shared pages counted for
each) is looked up every 50 ms; a large network's weights are told beside it.

Ends with 1 when a run is not proven, takes longer than 60 s, or a worker holds more than 2 GB, or
what other limits are given.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import psutil
from commands import started, told
from rich.console import Console
from rich.table import Table

from dlb.adapters import find_adapters
from dlb.provenance import available_cores
from dlb_graph.workload import parameter_shapes
from dlb_graph.workload.files import load as load_workload

LOOK_SECONDS = 0.05
#: What no adapter is called.
CORE = "dlb itself"


def main() -> int:
    """Measure, print, and tell by the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("workload", nargs="?", default="lenet5")
    parser.add_argument("--on", action="append", default=[], metavar="ADAPTER")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--gigabytes", type=float, default=2.0, help="that a worker may hold")
    parser.add_argument("--seconds", type=float, default=60.0, help="that the ladder may take")
    # argparse takes what follows -- for a workload where options come before it.
    given = sys.argv[1:]
    at = given.index("--") if "--" in given else len(given)
    asked, options = parser.parse_args(given[:at]), given[at + 1 :]
    found = find_adapters(asked.on)
    environments = {str(home.python): home.adapter for home in found}
    words = [asked.workload, *(f"--on={home.adapter}" for home in found), *options]
    runs = [_once(words, environments) for _ in range(asked.runs)]
    seconds = [one["seconds"] for one in runs]
    table = Table(title=f"{asked.workload}, {available_cores()} cores, {len(runs)} runs: medians")
    for name in ("adapter", "checks", "seconds in checks", "peak memory of a process"):
        table.add_column(name)
    memory = {}
    for adapter in environments.values():
        memory[adapter] = max(one["memory"][adapter] for one in runs)
        checks = statistics.median(one["checks"][adapter] for one in runs)
        count = runs[0]["counts"][adapter]
        table.add_row(adapter, f"{count}", f"{checks:.1f}", f"{memory[adapter] / 1e9:.2f} GB")
    core = max(one["memory"][CORE] for one in runs)
    table.add_row(CORE, "", "", f"{core / 1e9:.2f} GB")
    Console(width=100).print(table)
    print(
        f"whole ladder on {len(environments)} adapters: {statistics.median(seconds):.1f} s "
        f"({min(seconds):.1f} to {max(seconds):.1f})"
    )
    shapes = parameter_shapes(load_workload(asked.workload).model)
    weights = 4 * sum(math.prod(shape) for shape in shapes.values())
    print(f"its weights: {weights / 1e9:.3f} GB in float32")
    within = statistics.median(seconds) <= asked.seconds
    within &= max(memory.values()) <= asked.gigabytes * 1e9
    return 0 if within and all(one["proven"] for one in runs) else 1


def verify(
    words: list[str], path: Path, environments: dict[str, str], timeout: float = math.inf
) -> tuple[int, dict[str, int]]:
    """``dlb verify`` with some words; its certificate is written to a path.

    Args:
        words: workload and options.
        path: of the certificate.
        environments: adapters, by the path of their Python.
        timeout: seconds, after which it is interrupted.

    Returns:
        Its exit status, and the peak memory of any process of each adapter, and of :data:`CORE`
        that of the command itself, in bytes.
    """
    command = [str(Path(sys.executable).parent / "dlb"), "verify", *words]
    peak: dict[str, int] = defaultdict(int)
    until = time.monotonic() + timeout
    with started([*command, "--certificate", str(path)], stdout=subprocess.DEVNULL) as process:
        watched = psutil.Process(process.pid)
        while process.poll() is None:
            with contextlib.suppress(psutil.Error):
                peak[CORE] = max(peak[CORE], watched.memory_info().rss)
                for child in watched.children(recursive=True):
                    _look(child, environments, peak)
            if time.monotonic() > until:
                process.terminate()  # what a shell starts in the background is deaf to SIGINT
                until = math.inf
            time.sleep(LOOK_SECONDS)
    return process.returncode, peak


def _once(words: list[str], environments: dict[str, str]) -> dict[str, Any]:
    """One run of the command."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "certificate.json"
        began = time.perf_counter()
        status, peak = verify(words, path, environments)
        seconds = time.perf_counter() - began
        certificate = json.loads(path.read_bytes())
    checks: dict[str, float] = defaultdict(float)
    counts: dict[str, int] = defaultdict(int)
    for result in certificate["checks"]:
        checks[result["adapter"]] += result["seconds"]
        counts[result["adapter"]] += 1
    return {
        "seconds": seconds,
        "memory": peak,
        "checks": checks,
        "counts": counts,
        "proven": status == 0,
    }


def _look(child: psutil.Process, environments: dict[str, str], peak: dict[str, int]) -> None:
    with contextlib.suppress(psutil.Error, IndexError):
        adapter = environments.get(child.cmdline()[0])
        if adapter is not None:
            peak[adapter] = max(peak[adapter], child.memory_info().rss)


if __name__ == "__main__":
    sys.exit(told(main))
