"""Times to a target as a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from dlb.errors import UnknownNameError
from dlb.proof.certificate import with_variant
from dlb.record import Record, StoredRecord
from dlb.report.records import share_text
from dlb.report.table import Table
from dlb_measure.ratios import Ratio, Word
from dlb_measure.results.targets import Target, TargetCell, compare_to

__all__ = ["common_target", "compared_to_baseline", "targets_table"]


def common_target(records: Iterable[Record | StoredRecord]) -> Target | None:
    """The highest whole percent of accuracy that a test of every run reached; None without tests."""
    best = [
        max(min(test.accuracy or 0.0, 1.0) for test in record.quality.tests)
        for record in records
        if record.quality is not None and record.quality.tests and record.failure is None
        if record.quality.tests[0].accuracy is not None
    ]
    reached = int(min(best, default=0.0) * 100) / 100
    return Target(accuracy=reached) if reached > 0 else None


def targets_table(
    cells: Sequence[TargetCell], target: Target, baseline: str, margin: float
) -> Table:
    """A row for each cell.

    Raises:
        UnknownNameError: no cell is of the baseline's adapter.
    """
    first = _baseline(cells, cells[0], baseline)
    columns = ["adapter", "seeds", "reached", "steps", "seconds", "shortest to longest"]
    columns += ["last accuracy", f"times {_name(cells, first)}", "interval", "", "proof"]
    rows = []
    for cell in cells:
        compared = compared_to_baseline(cells, cell, baseline, margin)
        if compared is None:
            ratio = ["1" if cell is _baseline(cells, cell, baseline) else "-", "", ""]
        else:
            found, word = compared
            ratio = [f"{found.ratio:.3f}", f"{found.low:.3f} to {found.high:.3f}", word]
        between = cell.range
        accuracies = [each.accuracy for each in cell.runs if each.accuracy is not None]
        accuracy = sum(accuracies) / len(accuracies) if accuracies else None
        proofs = {each.proof for each in cell.runs}
        rows.append(
            [
                _name(cells, cell),
                str(len(cell.runs)),
                str(cell.reached),
                "-" if cell.steps is None else f"{cell.steps:,.0f}",
                "-" if cell.seconds is None else f"{cell.seconds:,.2f}",
                "-" if between is None else f"{between[0]:,.2f} to {between[1]:,.2f}",
                share_text(accuracy),
                *ratio,
                proofs.pop() if len(proofs) == 1 else "unproven",
            ]
        )
    name = f"accuracy {target.accuracy:.1%}" if target.accuracy else f"loss {target.loss:g}"
    title = f"Training until the test split has {name}: medians over seeds, 95% intervals"
    return Table(columns, rows, title, right=columns[1:8])


def compared_to_baseline(
    cells: Sequence[TargetCell], cell: TargetCell, baseline: str, margin: float
) -> tuple[Ratio, Word] | None:
    """The ratio of a cell to that of the baseline; None if it is the baseline, or there are too few seeds.

    Raises:
        UnknownNameError: no cell is of the baseline's adapter.
    """
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
