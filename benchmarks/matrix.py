"""Every workload on every adapter, and how it did in every check: docs/explanation/benchmarks/matrix.csv.

    python benchmarks/matrix.py FOLDER [WORKLOAD ...] [--on ADAPTER ...] [--steps N]
                                [--batch-size N] [--threads N] [--timeout SECONDS]

``dlb verify`` is run as a user runs it, one workload after the other, on every adapter that dlb
finds, or those of --on; the first shows what rounding may do as well, and takes longest. Its
certificate is kept in FOLDER, with the most memory that a worker of each adapter held; a workload
whose certificate is there is not run again, so that a long series can be taken up where it was left.
The table is printed as CSV. Data are made up: what is proven of a model holds for any.

Ends with 1 when a workload is not proven on an adapter.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from pathlib import Path

from commands import told
from ladder_cost import verify

from dlb.adapters import find_adapters
from dlb.proof import certificate
from dlb.proof.certificate import CheckResult
from dlb.proof.findings.common import StepsCompared
from dlb.proof.findings.workload import RoundingGrows
from dlb_graph.workload import files

#: Checks by column; a column shows the largest distance of any tensor in any of its checks.
COLUMNS = {
    "forward": ("forward float64", "forward float64, training"),
    "isolated layers": ("isolated layers", "isolated layers, training"),
    "differences": ("gradients by differences",),
    "gradients": ("gradients",),
    "update": ("update",),
    "steps": ("trajectory", "trajectories"),
    "float32": ("forward float32",),
    "float32 update": ("update float32",),
    "float32 gradients": ("gradients float32",),
    "export": ("export",),
}


def main() -> int:
    """Run what is not there yet, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("workloads", nargs="*", default=files.shipped_names())
    parser.add_argument(
        "--on", action="append", default=[], metavar="ADAPTER", help="default: every one found"
    )
    parser.add_argument("--steps", type=int, default=20, help="of the trajectory")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument(
        "--threads", type=int, help="as many as there are cores: one adapter at a time"
    )
    parser.add_argument("--timeout", type=float, default=3600.0)
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="changes",
        metavar="FIELD=VALUE",
        help="as of dlb verify: a rate that small batches do not end in NaN at",
    )
    # Workloads may come after options, too.
    asked = parser.parse_intermixed_args()
    environments = {str(home.python): home.adapter for home in find_adapters(asked.on)}
    asked.folder.mkdir(parents=True, exist_ok=True)
    table = csv.writer(sys.stdout, lineterminator="\n")
    last = ["steps_compared", "steps_asked", "memory_gb", "structure", "proof"]
    table.writerow(["workload", "adapter", *(name.replace(" ", "_") for name in COLUMNS), *last])
    proven = True
    for name in asked.workloads:
        path = asked.folder / f"{name}.json"
        if not path.exists() and not _verify(name, path, environments, asked):
            table.writerow([name, *[""] * (len(COLUMNS) + len(last)), "not run"])
            proven = False
            continue
        found = certificate.read(path)
        memory = json.loads(_memory_of(path).read_bytes())
        for adapter in found.judged_adapters:
            results, word = found.results_of(adapter), found.status(adapter)
            cells = [_cell(results, names) for names in COLUMNS.values()]
            # Of one adapter alone there are only its own.
            by_check = {result.check: result for result in results}
            compared = by_check.get("trajectories") or by_check.get("trajectory")
            cells += _steps(compared) if compared else ["", ""]
            cells.append(f"{memory.get(adapter, 0) / 1e9:.1f}")
            cells += [_cell(results, ("structure",)), word]
            proven &= word == "proven"
            table.writerow([name, adapter, *cells])
            sys.stdout.flush()
    return 0 if proven else 1


def _verify(name: str, path: Path, environments: dict[str, str], asked: argparse.Namespace) -> bool:
    """Whether there is a certificate now."""
    words = [name, "--batch-size", str(asked.batch_size), "--steps", str(asked.steps)]
    for change in ("data.name=synthetic", *asked.changes):
        words += ["--set", change]
    words += [f"--on={adapter}" for adapter in asked.on]
    if asked.threads:
        words += ["--threads", str(asked.threads)]
    status, memory = verify(words, path, environments, asked.timeout)
    _memory_of(path).write_text(json.dumps(memory))
    if status not in (0, 1):
        # Interrupted, as after the time that it may take, or refused: what is there is not the whole.
        path.unlink(missing_ok=True)
    return path.exists()


def _memory_of(path: Path) -> Path:
    """Beside a certificate: bytes at the peak of any process, by adapter."""
    return path.with_suffix(".memory")


def _steps(result: CheckResult) -> list[str]:
    """After how many steps trajectories were compared, and how many were asked for."""
    for finding in result.findings:
        if isinstance(finding.cause, StepsCompared):
            return [str(finding.cause.steps)] * 2
        if isinstance(finding.cause, RoundingGrows):
            return [str(finding.cause.steps), str(finding.cause.asked)]
    return ["", ""]


def _cell(results: tuple[CheckResult, ...], names: tuple[str, ...]) -> str:
    some = [result for result in results if result.check in names]
    verdicts = {result.verdict for result in some}
    sizes = [one.relative_l2 for result in some for one in result.figures]
    size = "" if not sizes or None in sizes else f"{max(filter(None, sizes), default=0.0):.1e}"
    if verdicts == {"passed"}:
        return size or "passed"
    return f"{size} {', '.join(sorted(verdicts - {'passed'})) or 'not there'}".strip()


if __name__ == "__main__":
    sys.exit(told(main))
