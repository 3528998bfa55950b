"""How fast a results folder of many runs is listed, and what adding one costs.

    python benchmarks/results_index.py [--runs 100000] > FILE.csv

Makes a folder of copies of a record under other names, and prints a row for each question: the seconds, and the
largest memory of the process that answered. The index is made once; what it knows is not read again.
"""

from __future__ import annotations

import argparse
import csv
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CONDITION = "workload=lenet5 and threads=2 and samples_per_second>50"
QUESTIONS: dict[str, Callable[[Any], int]] = {
    "make the index": lambda index: index.count(),
    "list the last 50": lambda index: len(index.rows("", 50)),
    "choose some": lambda index: len(index.rows(CONDITION)),
    "list all": lambda index: len(index.rows()),
    "list the last 50, one added": lambda index: len(index.rows("", 50)),
}


def ask(question: str, folder: Path) -> None:
    """Print seconds, bytes and the number of rows of a question."""
    began = time.perf_counter()
    from dlb_measure.results.index import open_index

    with open_index(folder) as index:
        rows = QUESTIONS[question](index)
    seconds = time.perf_counter() - began
    print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, rows]))


def fill(folder: Path, runs: int) -> Path:
    """A folder with many documents; the last of them is returned, and not there yet."""
    workloads, adapters = ("lenet5", "alexnet", "resnet-50"), ("torch", "tf", "mxnet")
    packages = {f"package-{number}": "1.2.3" for number in range(60)}
    document: dict[str, Any] = {
        "format": 2, "name": "", "started": "", "command": "run", "adapter": "", "framework": "F",
        "framework_version": "1", "workload_name": "", "workload": {"nodes": ["a layer" * 10] * 20},
        "workload_hash": "00" * 32, "data": {"name": "mnist", "from": "/data"},
        "options": {
            "batch_size": 64, "steps": 100, "warmup": 10, "threads": 1, "device": "cpu",
            "dtype": "float32", "seed": 0, "input": "pipeline",
        },
        "proof": "proven", "machine": {"cpu": "a processor"}, "worker": {"packages": packages},
        "core": {"version": "1"}, "certificate": "", "series": "",
        "timing": {
            "total_seconds": 1.0, "start_seconds": 1.0, "build_seconds": 1.0, "median": 0.01,
            "lower_quartile": 0.01, "upper_quartile": 0.01, "samples_per_second": 0.0,
            "cpu_seconds": 1.0, "busy_threads": 1, "memory_bytes": 100,
        },
    }  # fmt: skip
    path = folder
    for number in range(runs + 1):
        started = f"20{number // 40_000_000:02}-01-01T00:00:00.{number:08}"
        document["name"], document["started"] = f"{number:08}", started
        document["workload_name"] = workloads[number % 3]
        document["adapter"] = adapters[number // 3 % 3]
        document["options"]["threads"] = 1 + number % 4
        document["timing"]["samples_per_second"] = float(number % 100)
        path = folder / f"{document['name']}.json"
        if number < runs:
            path.write_text(json.dumps(document))
    (folder / "last").write_text(json.dumps(document))
    return path


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--ask", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.ask:
        ask(asked.ask[0], Path(asked.ask[1]))
        return 0
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(["question", "documents", "rows", "seconds", "memory_mb"])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        last = fill(folder, asked.runs)
        for question in QUESTIONS:
            if question.endswith("added"):
                (folder / "last").replace(last)
            done = subprocess.run(
                [sys.executable, __file__, "--ask", question, name],
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            )
            seconds, memory, rows = json.loads(done.stdout)
            table.writerow([question, asked.runs, rows, f"{seconds:.3f}", round(memory / 1e6)])
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
