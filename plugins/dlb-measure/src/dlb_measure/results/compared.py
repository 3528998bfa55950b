"""The cells of a measurement next to each other, with their names."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from dlb.errors import UnknownNameError
from dlb.proof.certificate import with_variant
from dlb_measure.comparison import Compared, compare
from dlb_measure.results.measurement import Measurement

__all__ = [
    "batches_differ",
    "cell_names",
    "compared_cells",
    "find_cell",
    "framework_names",
    "oversubscribed",
    "threads_wait",
]

#: From so many missing cores on, some thread waits for a core in most steps, and their median shows it.
MISSING_CORES = 0.5


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

    ``seconds`` is always a step's. The ratio is that of steps, or of samples where batch sizes differ. Its word
    is ``unclear`` where cores were oversubscribed.
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
    crowded = [oversubscribed(measurement, cell) for cell in range(len(sizes))]
    return [
        replace(
            each,
            seconds=None if each.seconds is None else each.seconds * sizes[each.cell],
            word="unclear" if each.word and waited else each.word,
            oversubscribed=bool(each.word) and waited,
        )
        for each in compared
        for waited in [crowded[each.cell] or crowded[baseline]]
    ]


def threads_wait(threads: int, other_cores: float, cores: float) -> bool:
    """Whether a step waits for cores that other work has.

    The threads of a step wait for the slowest of them: how much longer it takes depends on the framework, and a
    ratio does not cancel it. A single thread takes longer by its share of a core, as any other single one.
    """
    return threads > 1 and threads + other_cores >= cores + MISSING_CORES


def oversubscribed(measurement: Measurement, cell: int) -> bool:
    """Whether threads waited for cores that other work had, in most of a cell's trials that count."""
    options, cores = measurement.cells[cell].options, measurement.machine.get("available_cores")
    known = cores if isinstance(cores, int) else math.inf
    threads = options.threads * options.workers
    waited = {
        trial.round: trial.disturbed and threads_wait(threads, trial.other_cores, known)
        for trial in measurement.trials
        if trial.cell == cell and not trial.again and trial.median is not None
    }
    return 2 * sum(waited.values()) > len(waited)


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
