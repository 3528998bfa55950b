"""The cells of a measurement next to its baseline, also where they have steps of different sizes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dlb.measure.comparison import Compared, compare
from dlb.results.measurement import Measurement

__all__ = ["batches_differ", "compare_cells"]


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


def compare_cells(measurement: Measurement, baseline: int = 0) -> list[Compared]:
    """Every cell next to the baseline, in order.

    ``seconds`` is always a step's. The ratio is that of steps, or of samples where batch sizes differ.

    Args:
        baseline: the place of the baseline.
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
        trials, len(sizes), baseline=baseline, margin=measurement.margin, pilot=measurement.pilot
    )
    return [
        each if each.seconds is None else replace(each, seconds=each.seconds * sizes[each.cell])
        for each in compared
    ]
