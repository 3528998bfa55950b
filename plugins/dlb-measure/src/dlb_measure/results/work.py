"""The work of each cell of a measurement by the second, next to what the machine does at most."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from dlb_measure.results.measurement import Cell, Measurement, Peak

__all__ = ["CellWork", "work_of_cells"]


@dataclass(frozen=True)
class CellWork:
    """The work of a cell by the second: of its description, not of what its kernels really do.

    Attributes:
        cell: its place.
        operations_per_second, bytes_per_second: of one worker's step, by the median step of all trials; None if
            nothing was steady.
        product, copy: the fastest of any adapter in this measurement, on the cell's device, in its dtype and
            with its threads; None if there is none.
    """

    cell: int
    operations_per_second: float | None
    bytes_per_second: float | None
    product: Peak | None
    copy: Peak | None

    @property
    def share_of_product(self) -> float | None:
        """Operations a second as a share of those of the fastest matrix product."""
        peak = self.product.operations_per_second if self.product else None
        return _share(self.operations_per_second, peak)

    @property
    def share_of_copy(self) -> float | None:
        """Bytes a second as a share of those of the fastest copy."""
        return _share(self.bytes_per_second, self.copy.bytes_per_second if self.copy else None)


def _share(value: float | None, most: float | None) -> float | None:
    return value / most if value is not None and most else None


def work_of_cells(measurement: Measurement) -> list[CellWork]:
    """The work of every cell whose step was counted."""
    found = []
    for place, cell in enumerate(measurement.cells):
        if not cell.operations:
            continue
        medians = [
            trial.median
            for trial in measurement.trials
            if trial.cell == place and trial.median is not None
        ]
        seconds = statistics.median(medians) if medians else None
        found.append(
            CellWork(
                place,
                cell.operations / seconds if seconds else None,
                cell.bytes / seconds if seconds else None,
                _fastest(measurement, cell, lambda peak: peak.operations_per_second),
                _fastest(measurement, cell, lambda peak: peak.bytes_per_second),
            )
        )
    return found


def _fastest(
    measurement: Measurement, cell: Cell, rate: Callable[[Peak], float | None]
) -> Peak | None:
    """The fastest peak of the cell's device, dtype and threads, whoever measured it."""
    own = (cell.options.device, cell.computed_in, cell.options.threads)
    alike = [
        each
        for each in measurement.peaks
        if (each.device, each.dtype, each.threads) == own and rate(each) is not None
    ]
    return max(alike, key=lambda each: rate(each) or 0.0, default=None)
