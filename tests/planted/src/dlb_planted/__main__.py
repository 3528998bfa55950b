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
from dlb.proof.certificate import LEVELS, Level
from dlb.proof.explain import Explanation, explain
from dlb_planted.plants import PLANTS, Plant

#: What is climbed to find a difference on a rung: all that must not fail before it.
CLIMBED: dict[str, tuple[Level, ...]] = {
    "weights": ("weights",),
    "layers": ("forward", "layers"),
    "dropout": ("forward", "layers"),
    "gradients": ("forward", "layers", "gradients"),
    "update": ("forward", "layers", "gradients", "update"),
    "update float32": LEVELS,
    "trajectory": ("forward", "layers", "gradients", "update", "trajectory"),
}


def find(plant: Plant, workloads: Path) -> Explanation | None:
    """What the ladder says of it: the first difference, or None where nothing differs."""
    os.environ["DLB_PLANT"] = plant.name
    try:
        path = workloads / f"{plant.workload}.toml"
        rung = plant.rung if plant.rung in CLIMBED else plant.rung.split()[0]
        levels = CLIMBED.get(rung, LEVELS)
        certificate = verify(path, ["planted"], levels=levels, steps=8, threads=1)
    finally:
        del os.environ["DLB_PLANT"]
    found = explain(certificate)
    if not found and certificate.failures:
        raise AssertionError(f"{plant.name}: {certificate.failures}")
    return found[0] if found else None


def is_right(plant: Plant, found: Explanation | None) -> bool:
    """Whether it was found on its rung, at its layer or tensor."""
    return found is not None and found.rung == plant.rung and plant.where in found.where


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
        size = "" if found.size is None else f"{found.size:.1e}"
        where = re.split("[(:]", found.where)[0].rstrip(", ")
        mark = "" if is_right(plant, found) else " (**elsewhere**)"
        print(f"| {plant.name} | {found.rung}{mark} | {where} | {size} |", flush=True)
    print(f"\n{len(PLANTS) - missed} of {len(PLANTS)} found where they were planted.")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
