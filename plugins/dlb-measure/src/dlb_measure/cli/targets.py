"""Times to a target as a table and as a document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import msgspec

from dlb.cli.output import echo, show_table
from dlb_measure.results.targets import Target, TargetCell
from dlb_measure.tables.targets import compared_to_baseline, targets_table

__all__ = ["print_targets", "targets_document"]


def targets_document(
    cells: Sequence[TargetCell], target: Target, baseline: str, margin: float
) -> dict[str, Any]:
    """The document of ``--json``: each cell with its runs, medians and its ratio to the baseline."""
    rows = []
    for cell in cells:
        compared = compared_to_baseline(cells, cell, baseline, margin)
        row: dict[str, Any] = msgspec.to_builtins(cell)
        row |= {"reached": cell.reached, "steps": cell.steps, "seconds": cell.seconds}
        row["ratio"] = None if compared is None else asdict(compared[0])
        row["word"] = None if compared is None else compared[1]
        rows.append(row)
    return {"target": asdict(target), "cells": rows}


def print_targets(
    cells: Sequence[TargetCell], target: Target, baseline: str, margin: float
) -> None:
    """Print a row for each cell."""
    show_table(targets_table(cells, target, baseline, margin))
    echo("Seconds of steps with their waiting; start, build and tests are not in them")
    if any(cell.reached < len(cell.runs) for cell in cells):
        echo("A ratio needs seeds that reached the target on both sides, all of them")
