"""The quick form of every study, really run: a page for each with the paper's table and ours.

    python benchmarks/studies.py FOLDER [STUDY ...] [--on ADAPTER ...] [--full]

``dlb study run`` is run as a user runs it, one study after the other, on every adapter that dlb finds, or
those of --on. Results are kept in FOLDER/results; what has ended there is not run again. FOLDER/NAME.md is
the page, and FOLDER/studies.csv says how long each took. ``dlb report FOLDER/results/NAME`` shows all figures.

Ends with 1 when a cell of a study failed.
"""

from __future__ import annotations

import argparse
import csv
import platform
import subprocess
import time
from pathlib import Path

from commands import started, told

from dlb.adapters import find_adapters
from dlb.provenance import available_cores
from dlb_studies.catalogue import study_paths


def main() -> int:
    """Run what has not ended yet, and write the pages."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("studies", nargs="*", default=sorted(study_paths()))
    parser.add_argument(
        "--on", action="append", default=[], metavar="ADAPTER", help="default: every one found"
    )
    parser.add_argument("--full", action="store_true", help="not the quick form")
    # Studies may come after options, too.
    asked = parser.parse_intermixed_args()
    adapters = [home.adapter for home in find_adapters(asked.on)]
    asked.folder.mkdir(parents=True, exist_ok=True)
    passed = True
    for name in asked.studies:
        command = ["dlb", "study", "run", name, "--out", asked.folder / "results" / name]
        command += [word for adapter in adapters for word in ("--on", adapter)]
        command += ["--format", "markdown", *([] if asked.full else ["--quick"])]
        began = time.perf_counter()
        with started(command, stdout=subprocess.PIPE, encoding="utf-8") as process:
            page = process.communicate()[0]
        if process.returncode not in (0, 1):
            return process.returncode
        passed = passed and process.returncode == 0
        seconds = time.perf_counter() - began
        shown = " ".join(map(str, [*command[:4], *([] if asked.full else ["--quick"])]))
        here = f"{available_cores()} cores, {platform.machine()}, {platform.system()}"
        head = f"`{shown}`, on {', '.join(adapters)}; {here}\n\n"
        (asked.folder / f"{name}.md").write_text(page + "\n" + head.rstrip() + "\n", "utf-8")
        _tell(asked.folder / "studies.csv", name, adapters, seconds, process.returncode)
        print(f"{name}: {seconds / 60:.1f} min", flush=True)
    return 0 if passed else 1


def _tell(path: Path, name: str, adapters: list[str], seconds: float, status: int) -> None:
    """Add a row; a study that was taken up again has one for each time."""
    new = not path.exists()
    with path.open("a", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        if new:
            table.writerow(["study", "adapters", "seconds", "exit_status"])
        table.writerow([name, " ".join(adapters), f"{seconds:.0f}", status])


if __name__ == "__main__":
    raise SystemExit(told(main))
