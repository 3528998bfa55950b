"""The cells of a measurement next to its baseline."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from dlb_measure.ratios import CONFIDENCE, Ratio, Word, log_ratios, ratio_of, word_for

__all__ = [
    "Compared",
    "Figures",
    "Timed",
    "compare",
    "figures_by_round",
    "own_ratio",
    "pilot_ratios",
]


class Timed(Protocol):
    """What a comparison needs of a trial; see :class:`dlb_measure.results.measurement.TrialResult`."""

    @property
    def round(self) -> int: ...

    @property
    def cell(self) -> int: ...

    @property
    def again(self) -> bool: ...

    @property
    def median(self) -> float | None: ...


#: Median seconds of a step, by round.
Figures = Mapping[int, float]


@dataclass(frozen=True)
class Compared:
    """A cell next to the baseline.

    Attributes:
        cell: its place.
        seconds: geometric mean of its trials' medians; None without a steady one.
        ratio: its time divided by the baseline's; None of the baseline itself, or without a common round.
        word: what may be said; None without a ratio.
        oversubscribed: whether threads of either waited for cores, so that the ratio says nothing.
    """

    cell: int
    seconds: float | None
    ratio: Ratio | None
    word: Word | None
    oversubscribed: bool = False


def figures_by_round(
    trials: Sequence[Timed], cell: int, *, again: bool = False
) -> dict[int, float]:
    """The figure of each round's trial of a cell; of several attempts, that of the last."""
    return {
        trial.round: trial.median
        for trial in trials
        if trial.cell == cell and trial.again == again and trial.median is not None
    }


def own_ratio(trials: Sequence[Timed], cells: int) -> Ratio | None:
    """The ratio of cells and themselves in the same rounds; None if no round has both."""
    pairs = [
        (second[number], first[number])
        for cell in range(cells)
        for first, second in [
            (figures_by_round(trials, cell), figures_by_round(trials, cell, again=True))
        ]
        for number in sorted(first.keys() & second.keys())
    ]
    if not pairs:
        return None
    return ratio_of([second for second, _ in pairs], [first for _, first in pairs])


def compare(
    trials: Sequence[Timed],
    cells: int,
    *,
    baseline: int = 0,
    margin: float,
    pilot: int | None = None,
    confidence: float = CONFIDENCE,
) -> list[Compared]:
    """Every cell next to the baseline, in order.

    Args:
        cells: how many cells there are.
        baseline: the place of the baseline.
        margin: cells that differ by less count as the same.
        pilot, confidence: as :func:`dlb_measure.ratios.ratio_of`.
    """
    of_baseline = figures_by_round(trials, baseline)
    own = own_ratio(trials, cells)
    noise = 0.0 if own is None else math.expm1(abs(math.log(own.ratio)))
    compared = []
    for cell in range(cells):
        own_figures = figures_by_round(trials, cell)
        seconds = _geometric_mean(list(own_figures.values()))
        common = sorted(own_figures.keys() & of_baseline.keys())
        if cell == baseline or not common:
            compared.append(Compared(cell, seconds, None, None))
            continue
        times = [own_figures[number] for number in common]
        others = [of_baseline[number] for number in common]
        ratio = ratio_of(times, others, confidence, pilot=pilot)
        compared.append(Compared(cell, seconds, ratio, word_for(ratio, margin, noise)))
    return compared


def pilot_ratios(trials: Sequence[Timed], cells: int, baseline: int = 0) -> list[list[float]]:
    """Logarithms of the rounds' ratios of every cell to the baseline, for the number of rounds."""
    of_baseline = figures_by_round(trials, baseline)
    found = []
    for cell in range(cells):
        own = figures_by_round(trials, cell)
        common = sorted(own.keys() & of_baseline.keys())
        if cell != baseline and len(common) > 1:
            times = [own[number] for number in common]
            found.append(log_ratios(times, [of_baseline[number] for number in common]))
    return found


def _geometric_mean(values: Sequence[float]) -> float | None:
    if not values:
        return None
    return math.exp(math.fsum(map(math.log, values)) / len(values))
