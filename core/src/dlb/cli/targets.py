"""Times to a target as a table and as a document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click
import msgspec

from dlb.cli.output import print_table
from dlb.errors import UnknownNameError
from dlb.proof.certificate import with_variant
from dlb.results.targets import Target, TargetCell, compare_to

__all__ = ["print_targets", "targets_document"]


def targets_document(
    cells: Sequence[TargetCell], target: Target, baseline: str, margin: float
) -> dict[str, Any]:
    """The document of ``--json``: each cell with its runs, medians and its ratio to the baseline."""
    rows = []
    for cell in cells:
        compared = _compared(cells, cell, baseline, margin)
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
    first = _baseline(cells, cells[0], baseline)
    columns = ["adapter", "seeds", "reached", "steps", "seconds", "shortest to longest"]
    columns += ["last accuracy", f"times {_name(cells, first)}", "interval", "", "proof"]
    rows = []
    for cell in cells:
        compared = _compared(cells, cell, baseline, margin)
        if compared is None:
            ratio = ["1" if cell is _baseline(cells, cell, baseline) else "-", "", ""]
        else:
            found, word = compared
            ratio = [f"{found.ratio:.3f}", f"{found.low:.3f} to {found.high:.3f}", word]
        between = cell.range
        accuracy = sum(each.accuracy for each in cell.runs) / len(cell.runs)
        proofs = {each.proof for each in cell.runs}
        rows.append(
            [
                _name(cells, cell),
                str(len(cell.runs)),
                str(cell.reached),
                "-" if cell.steps is None else f"{cell.steps:,.0f}",
                "-" if cell.seconds is None else f"{cell.seconds:,.2f}",
                "-" if between is None else f"{between[0]:,.2f} to {between[1]:,.2f}",
                f"{accuracy:.1%}",
                *ratio,
                proofs.pop() if len(proofs) == 1 else "unproven",
            ]
        )
    name = f"accuracy {target.accuracy:.1%}" if target.accuracy else f"loss {target.loss:g}"
    title = f"Training until the test split has {name}: medians over seeds, 95% intervals"
    print_table(columns, rows, title, right=columns[1:8])
    click.echo("Seconds of steps with their waiting; start, build and tests are not in them")
    if any(cell.reached < len(cell.runs) for cell in cells):
        click.echo("A ratio needs seeds that reached the target on both sides, all of them")


def _compared(cells: Sequence[TargetCell], cell: TargetCell, baseline: str, margin: float) -> Any:
    other = _baseline(cells, cell, baseline)
    return None if other is cell else compare_to(other, cell, margin)


def _baseline(cells: Sequence[TargetCell], cell: TargetCell, name: str) -> TargetCell:
    """The first cell of the baseline's adapter with the same workload; the first of all without a name.

    Raises:
        UnknownNameError: no cell is of that adapter.
    """
    adapters = {each.adapter for each in cells}
    if name and name not in adapters:
        raise UnknownNameError("adapter of the results:", name, adapters)
    alike = [each for each in cells if each.workload_hash == cell.workload_hash] or list(cells)
    return next((each for each in alike if not name or each.adapter == name), cell)


def _name(cells: Sequence[TargetCell], cell: TargetCell) -> str:
    """The adapter, with the options in which cells differ."""
    own: dict[str, Any] = msgspec.to_builtins(cell.options)
    others: list[dict[str, Any]] = [msgspec.to_builtins(each.options) for each in cells]
    differs = {
        key: str(value)
        for key, value in own.items()
        if key not in ("variant", "variables") and any(each[key] != value for each in others)
    }
    if len({each.workload_hash for each in cells}) > 1:
        differs = {"workload": cell.workload, **differs}
    return with_variant(cell.adapter, {**cell.options.variant, **differs})
