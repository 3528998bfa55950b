"""The cells of a measurement next to each other, with their names."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from dlb.errors import UnknownNameError
from dlb.proof.certificate import with_variant
from dlb_measure.comparison import Compared, compare
from dlb_measure.results.measurement import Measurement

__all__ = ["batches_differ", "cell_names", "compared_cells", "find_cell", "framework_names"]


@dataclass(frozen=True)
class _Sample:
    """A trial with the time of a sample in place of a step's."""

    round: int
    cell: int
    again: bool
    median: float | None


def batches_differ(measurement: Measurement) -> bool:
    """Whether steps have different numbers of samples, so that ratios are of the time of a sample."""
    return len({cell.options.batch_size for cell in measurement.cells}) > 1


def compared_cells(measurement: Measurement, baseline: int = 0) -> list[Compared]:
    """Every cell next to the baseline, a cell's place.

    ``seconds`` is always a step's. The ratio is that of steps, or of samples where batch sizes differ.
    """
    sizes = [cell.options.batch_size for cell in measurement.cells]
    if not batches_differ(measurement):
        sizes = [1] * len(sizes)
    trials = [
        _Sample(
            each.round,
            each.cell,
            each.again,
            None if each.median is None else each.median / sizes[each.cell],
        )
        for each in measurement.trials
    ]
    compared = compare(
        trials,
        len(sizes),
        baseline=baseline,
        margin=measurement.margin,
        pilot=measurement.pilot,
        confidence=measurement.confidence,
    )
    return [
        each if each.seconds is None else replace(each, seconds=each.seconds * sizes[each.cell])
        for each in compared
    ]


def find_cell(measurement: Measurement, name: str) -> int:
    """The place of a cell, by its adapter or its whole name; the first if empty.

    Raises:
        UnknownNameError: no cell is called so.
    """
    if not name:
        return 0
    for known in (cell_names(measurement), [cell.adapter for cell in measurement.cells]):
        if name in known:
            return known.index(name)
    raise UnknownNameError("adapter of the measurement:", name, cell_names(measurement), "")


def cell_names(measurement: Measurement) -> list[str]:
    """The adapters of the cells, with what else differs between them."""
    threads = {cell.options.threads for cell in measurement.cells}
    names = []
    for cell in measurement.cells:
        if cell.varied:
            names.append(with_variant(cell.adapter, {k: str(v) for k, v in cell.varied.items()}))
            continue
        differs = dict(cell.options.variant)
        if len(threads) > 1:
            differs["threads"] = str(cell.options.threads)
        if cell.options.variables:
            differs["environment"] = ", ".join(sorted(cell.options.variables))
        names.append(with_variant(cell.adapter, differs))
    return names


def framework_names(measurement: Measurement, *, versions: bool = False) -> list[str]:
    """The frameworks of the cells, with what else differs; adapters where a framework is there twice."""
    frameworks = [
        cell.framework if versions else re.sub(r" v?\d\S*$", "", cell.framework)
        for cell in measurement.cells
    ]
    named = []
    for cell, framework, name in zip(measurement.cells, frameworks, cell_names(measurement)):
        single = framework and frameworks.count(framework) == 1
        named.append(framework + name[len(cell.adapter) :] if single else name)
    return named
