"""What a report over many results costs: seconds, memory of the process, and bytes of the page.

    python benchmarks/report_size.py [--results 10000] > FILE.csv

Makes a folder of runs, with a measurement of 5 rounds for every hundred; each has its series and its proof. The
row ``again`` is a report that finds the index of the folder.
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
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "plugins" / "dlb-report" / "tests"))
#: Runs for each measurement.
EVERY = 100


def report(folder: Path) -> None:
    """Print seconds, bytes of memory and bytes of the page of a report."""
    began = time.perf_counter()
    import dlb_report

    text = dlb_report.make_report(folder)
    seconds = time.perf_counter() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps([seconds, memory, len(text.encode())]))


def fill(folder: Path, results: int) -> None:
    """Write so many results; documents of one kind differ in names, options and times."""
    from example_results import certificate, measure, run

    adapters = ["torch", "tf"]
    proof = certificate(adapters)
    pair = [run(folder, each, proof, place) for place, each in enumerate(adapters)]
    measure(folder, pair, [0.018, 0.0236], 5)
    document = json.loads((folder / f"{pair[0].name}.json").read_text())
    (path,) = (folder / "measurements").glob("*.json")
    measured = json.loads(path.read_text())
    for number in range(results - 3):
        kind, started = (
            number % EVERY == 0,
            f"2026-01-{1 + number % 28:02}T00:00:{number % 60:02}+00:00",
        )
        made: dict[str, Any] = dict(measured if kind else document)
        made |= {"name": f"{number:08}", "started": started}
        if not kind:
            made["adapter"] = adapters[number % 2]
            made["options"] = {
                **document["options"],
                "batch_size": 2 ** (4 + number % 6),
                "threads": 1 + number % 4,
            }
        target = folder / "measurements" if kind else folder
        (target / f"{number:08}.json").write_text(json.dumps(made))


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--results", type=int, default=10_000)
    parser.add_argument("--report", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.report:
        report(asked.report)
        return 0
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(["report", "results", "seconds", "memory_mb", "page_mb"])
    with tempfile.TemporaryDirectory() as name:
        fill(Path(name), asked.results)
        for which in ("first", "again"):
            done = subprocess.run(
                [sys.executable, __file__, "--report", name],
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            )
            seconds, memory, size = json.loads(done.stdout)
            row = [which, asked.results, f"{seconds:.1f}", round(memory / 1e6), f"{size / 1e6:.2f}"]
            table.writerow(row)
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
