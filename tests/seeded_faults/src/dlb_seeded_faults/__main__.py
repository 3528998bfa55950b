"""Seed every fault, one at a time, and print a table of what dlb finds::

    python -m dlb_seeded_faults tests/seeded_faults/workloads > docs/explanation/seeded-faults.csv

Words of faults' names after the folder choose some. Ends with status 1 when a fault was not found, or was
found elsewhere.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from dlb.adapters import find_adapters
from dlb.catalogue import load_with_file
from dlb.execution.run import run
from dlb.execution.workers import Workers
from dlb.progress import Silent
from dlb.proof.certificate import CHECK_GROUPS, Certificate, CheckGroup
from dlb.proof.explain import Explanation, explain
from dlb.report.explanations import place_text, reason_text
from dlb.request import TRAJECTORY_STEPS, Request
from dlb.resolver import VERIFY_STEPS
from dlb_seeded_faults.catalogue import FAULTS
from dlb_seeded_faults.faults import Fault
from dlb_seeded_faults.plugin import NAME
from dlb_seeded_faults.reasons import grade
from dlb_seeded_faults.worker import started

#: What is run to find a difference by a check: all that must not fail before it.
RUN: dict[str, tuple[CheckGroup, ...]] = {
    "weights": ("weights",),
    "isolated": ("forward", "layers"),
    "dropout": ("forward", "layers"),
    "gradients": ("forward", "layers", "gradients"),
    "update": ("forward", "layers", "gradients", "update"),
    "update float32": CHECK_GROUPS,
    "dropout gradients": ("forward", "layers", "gradients"),
    "dropout float32": CHECK_GROUPS,
    "isolated layers float32": CHECK_GROUPS,
    "gradients float32": CHECK_GROUPS,
    "clipping": ("forward", "layers", "gradients", "update"),
    "trajectory": ("forward", "layers", "gradients", "update", "trajectory"),
}


def prove(
    workload: Path,
    name: str,
    started: tuple[Workers, Path],
    groups: Collection[CheckGroup] = CHECK_GROUPS,
    steps: int = TRAJECTORY_STEPS,
) -> Certificate:
    """The proof of a workload in whose models a fault is seeded."""
    workers, fault = started
    fault.write_text(name, encoding="utf-8")
    described, _ = load_with_file(str(workload))
    request = Request(
        workload=described,
        environments=find_adapters([NAME]),
        out=None,
        batch_size=described.batch_size,
        steps=VERIFY_STEPS,
        warmup=0,
        threads=1,
        command="verify",
        groups=frozenset(groups),
        trajectory_steps=steps,
    )
    return run(request, Silent(), {NAME: workers}).certificate


def find(fault: Fault, workloads: Path, started: tuple[Workers, Path]) -> Explanation | None:
    """What the checks say of it: the first difference, or None where nothing differs."""
    check = fault.check if fault.check in RUN else fault.check.split()[0].rstrip(",")
    groups = RUN.get(check, CHECK_GROUPS)
    certificate = prove(workloads / f"{fault.workload}.toml", fault.name, started, groups, steps=8)
    found = explain(certificate)
    if not found and certificate.failures:
        raise AssertionError(f"{fault.name}: {certificate.failures}")
    return found[0] if found else None


def is_right(fault: Fault, found: Explanation | None) -> bool:
    """Whether it was found by its check, at its layer or tensor."""
    return found is not None and found.check == fault.check and fault.where in place_text(found)


def size_of(found: Explanation) -> float | None:
    """The distance where it was found."""
    return found.figure.relative_l2 if found.figure else None


def write_row(table: Any, fault: Fault, found: Explanation | None) -> bool:
    """Write what was found, and whether that is right."""
    if found is None:
        table.writerow([fault.name, *[""] * 5])
    else:
        size = "" if size_of(found) is None else f"{size_of(found):.1e}"
        where = re.split("[(:]", place_text(found))[0].rstrip(", ")
        why = grade(fault.name, found)
        table.writerow([fault.name, found.check, where, size, reason_text(found), why])
    sys.stdout.flush()
    right = is_right(fault, found)
    if not right:
        expected = f"expected {fault.check} {fault.where}"
        print(f"{fault.name}: {expected}, found {found}", file=sys.stderr)
    return right


def main() -> int:
    """Print the table as CSV; what is wrong goes to standard error."""
    workloads, words = Path(sys.argv[1]), sys.argv[2:]
    faults = [each for name, each in FAULTS.items() if not words or any(w in name for w in words)]
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(["fault", "check", "where", "relative_l2", "likely", "says_why"])
    with started() as worker:
        missed = sum(
            not write_row(table, fault, find(fault, workloads, worker)) for fault in faults
        )
    print(f"{len(faults) - missed} of {len(faults)} found where they were seeded.", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
