"""Plant every difference, one at a time, and print a table of what was found::

    python -m dlb_planted tests/planted/workloads

Ends with 1 when one was not found, or elsewhere than it was planted.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from dlb import verify
from dlb.proof.certificate import CHECK_GROUPS, CheckGroup
from dlb.proof.explain import Explanation, explain
from dlb.report.explanations import place_text
from dlb_planted.plants import PLANTS, Plant

#: What is run to find a difference by a check: all that must not fail before it.
RUN: dict[str, tuple[CheckGroup, ...]] = {
    "weights": ("weights",),
    "isolated": ("forward", "layers"),
    "dropout": ("forward", "layers"),
    "gradients": ("forward", "layers", "gradients"),
    "update": ("forward", "layers", "gradients", "update"),
    "update float32": CHECK_GROUPS,
    "trajectory": ("forward", "layers", "gradients", "update", "trajectory"),
}


def find(plant: Plant, workloads: Path) -> Explanation | None:
    """What the checks say of it: the first difference, or None where nothing differs."""
    os.environ["DLB_PLANT"] = plant.name
    try:
        path = workloads / f"{plant.workload}.toml"
        check = plant.check if plant.check in RUN else plant.check.split()[0]
        groups = RUN.get(check, CHECK_GROUPS)
        certificate = verify(path, ["planted"], groups=groups, steps=8, threads=1)
    finally:
        del os.environ["DLB_PLANT"]
    found = explain(certificate)
    if not found and certificate.failures:
        raise AssertionError(f"{plant.name}: {certificate.failures}")
    return found[0] if found else None


def is_right(plant: Plant, found: Explanation | None) -> bool:
    """Whether it was found by its check, at its layer or tensor."""
    return found is not None and found.check == plant.check and plant.where in place_text(found)


def size_of(found: Explanation) -> float | None:
    """The distance where it was found."""
    return found.figure.relative_l2 if found.figure else None


def main() -> int:
    """Print the table."""
    workloads = Path(sys.argv[1])
    print("| planted | found by | at | relative L2 |")
    print("|---|---|---|---|")
    missed = 0
    for plant in PLANTS.values():
        found = find(plant, workloads)
        missed += not is_right(plant, found)
        if found is None:
            print(f"| {plant.name} | **nothing** | | |", flush=True)
            continue
        size = "" if size_of(found) is None else f"{size_of(found):.1e}"
        where = re.split("[(:]", place_text(found))[0].rstrip(", ")
        mark = "" if is_right(plant, found) else " (**elsewhere**)"
        print(f"| {plant.name} | {found.check}{mark} | {where} | {size} |", flush=True)
    print(f"\n{len(PLANTS) - missed} of {len(PLANTS)} found where they were planted.")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
