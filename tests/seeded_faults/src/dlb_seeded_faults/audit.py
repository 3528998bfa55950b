"""Seed every fault of the timed run, one at a time, and print a table of what the audit finds::

    python -m dlb_seeded_faults.audit tests/seeded_faults/workloads > docs/explanation/audit.csv

Ends with status 1 when a fault was not found, or was found by another check.
"""

from __future__ import annotations

import csv
import sys
import tempfile
from pathlib import Path

from dlb.adapters import find_adapters
from dlb.catalogue import load_with_file
from dlb.execution.run import run
from dlb.execution.workers import Workers
from dlb.progress import Silent
from dlb.proof.certificate import Certificate, CheckResult
from dlb.report.sentences import describe
from dlb.request import Request
from dlb_seeded_faults.plugin import NAME
from dlb_seeded_faults.timed import TIMED, TimedFault
from dlb_seeded_faults.worker import started


def audit(
    workload: Path,
    fault: str = "",
    workers: Workers | None = None,
    *,
    together: int = 1,
    steps: int = 64,
    test_steps: int | None = None,
) -> Certificate:
    """Time a workload with a fault, and audit the run.

    Args:
        workers: where to run it; new ones if left out.
        together: workers that train together.
        test_steps: the model is tested every so many steps; None for the end alone.
    """
    described, _ = load_with_file(str(workload))
    with tempfile.TemporaryDirectory() as folder:
        request = Request(
            workload=described,
            environments=find_adapters([NAME]),
            out=Path(folder),
            batch_size=described.batch_size,
            steps=steps,
            warmup=0,
            test_steps=test_steps,
            threads=1,
            strategy="ddp" if together > 1 else "",
            workers=together,
            groups=frozenset({"audit"}),
            choices={NAME: {"timed": fault}} if fault else {},
        )
        return run(request, Silent(), {NAME: workers} if workers else None).certificate


def find(fault: TimedFault, workloads: Path, workers: Workers) -> list[CheckResult]:
    """The checks that find a fault, the first first."""
    path = workloads / f"{fault.workload}.toml"
    given = None if fault.alone or fault.workers > 1 else workers
    certificate = audit(
        path,
        fault.name,
        given,
        together=fault.workers,
        steps=fault.steps,
        test_steps=fault.test_steps,
    )
    if certificate.failures:
        raise AssertionError(f"{fault.name}: {certificate.failures}")
    return [result for result in certificate.checks if result.verdict == "failed"]


def main() -> int:
    """Print the table as CSV; what is wrong goes to standard error."""
    workloads, missed = Path(sys.argv[1]), 0
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(["fault", "check", "found"])
    with started() as (workers, _):
        for fault in TIMED.values():
            found = find(fault, workloads, workers)
            named = next((each for each in found if fault.check in ("", each.check)), None)
            if named is None:
                missed += 1
                print(f"{fault.name}: expected {fault.check}, found {found}", file=sys.stderr)
            text = describe(named).partition(";")[0] if named else ""
            table.writerow([fault.name, named.check if named else "", text])
            sys.stdout.flush()
    print(f"{len(TIMED) - missed} of {len(TIMED)} found.", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
