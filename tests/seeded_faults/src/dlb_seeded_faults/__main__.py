"""Seed every fault, one at a time, and print a table of what dlb finds::

    python -m dlb_seeded_faults tests/seeded_faults/workloads > docs/explanation/seeded-faults.csv

Ends with status 1 when a fault was not found, or was found elsewhere.
"""

from __future__ import annotations

import csv
import os
import re
import sys
from pathlib import Path

from dlb import verify
from dlb.proof.certificate import CHECK_GROUPS, CheckGroup
from dlb.proof.explain import Explanation, explain
from dlb.report.explanations import place_text
from dlb_seeded_faults.catalogue import FAULTS
from dlb_seeded_faults.faults import Fault

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


def find(fault: Fault, workloads: Path) -> Explanation | None:
    """What the checks say of it: the first difference, or None where nothing differs."""
    os.environ["DLB_SEEDED_FAULT"] = fault.name
    try:
        path = workloads / f"{fault.workload}.toml"
        check = fault.check if fault.check in RUN else fault.check.split()[0].rstrip(",")
        groups = RUN.get(check, CHECK_GROUPS)
        certificate = verify(path, ["seeded-faults"], groups=groups, steps=8, threads=1)
    finally:
        del os.environ["DLB_SEEDED_FAULT"]
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


def main() -> int:
    """Print the table as CSV; what is wrong goes to standard error."""
    workloads = Path(sys.argv[1])
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(["fault", "check", "where", "relative_l2"])
    missed = 0
    for fault in FAULTS.values():
        found = find(fault, workloads)
        if not is_right(fault, found):
            missed += 1
            print(
                f"{fault.name}: expected {fault.check} {fault.where}, found {found}",
                file=sys.stderr,
            )
        if found is None:
            table.writerow([fault.name, "", "", ""])
        else:
            size = "" if size_of(found) is None else f"{size_of(found):.1e}"
            where = re.split("[(:]", place_text(found))[0].rstrip(", ")
            table.writerow([fault.name, found.check, where, size])
        sys.stdout.flush()
    print(f"{len(FAULTS) - missed} of {len(FAULTS)} found where they were seeded.", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
