"""Where the steps of a trial are steady: tested, not assumed.

Times of steps are cut where their level changes, and the last levels that agree are the steady state. A trial
that has none gets no figure.

Sources: Barrett et al., Virtual machine warmup blows hot and cold (OOPSLA 2017) for the classes; Killick et
al., Optimal detection of changepoints with a linear computational cost (JASA 2012) for the search.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

__all__ = [
    "STEADY_SHARE",
    "WARMUP_SECONDS",
    "Steady",
    "SteadyClass",
    "find_steady",
    "warmup_steps",
]

Array = npt.NDArray[Any]
#: ``flat``: steady from the first step on. What comes before is slower in a ``warm-up``, and faster in a
#: ``slow-down``. ``not tested``: all steps behind a fixed number count.
SteadyClass = Literal["flat", "warm-up", "slow-down", "no steady state", "not tested"]
#: The steady state is looked for behind so many steps, and so many seconds; but never behind more than this
#: share of the steps.
WARMUP_STEPS, WARMUP_SECONDS, WARMUP_SHARE = 10, 1.0, 0.2
#: Levels that differ by less are one: by a share, or by a share of the standard deviation of a step.
LEVEL_SHARE, LEVEL_DEVIATIONS = 0.01, 0.5
#: The steady steps must be this share of all.
STEADY_SHARE = 0.5
#: Fewest steps of a level.
LEVEL_STEPS = 10
#: Of longer series, medians of so many blocks are searched.
BLOCKS = 2000
#: A change costs as much as the squares of this many standard deviations, times the logarithm of the length.
PENALTY = 15.0
#: Times this many robust standard deviations from the median count as that far off.
FENCE = 3.0
#: A robust standard deviation is the median absolute deviation times this.
_ROBUST = 1.4826


@dataclass(frozen=True)
class Steady:
    """The steady state of a series.

    Attributes:
        kind: the class of the series.
        start: the first steady step, from 0; the number of steps if there is none.
        levels: first step and median time in seconds of each level.
    """

    kind: SteadyClass
    start: int
    levels: tuple[tuple[int, float], ...]


def warmup_steps(seconds: Array, least: int = 0) -> int:
    """How many first steps are warm-up by rule.

    Args:
        seconds: float64 [steps].
        least: so many in any case, if there are more.
    """
    asked = max(WARMUP_STEPS, least, int(np.searchsorted(np.cumsum(seconds), WARMUP_SECONDS)) + 1)
    return max(min(asked, int(WARMUP_SHARE * len(seconds))), min(least, len(seconds) - 1))


def find_steady(seconds: Array) -> Steady:
    """Find the steady state of the times of steps.

    Args:
        seconds: float64 [steps], each above 0, without those that are warm-up by rule.

    Raises:
        ValueError: there are no steps, or a time is not above 0.
    """
    seconds = np.asarray(seconds, np.float64)
    if not len(seconds) or not (np.isfinite(seconds) & (seconds > 0)).all():
        raise ValueError("times of steps must be above 0, and finite")
    size = -(-len(seconds) // BLOCKS)
    logs = np.log(seconds)
    if size > 1:
        whole = len(logs) // size * size
        logs = np.median(logs[:whole].reshape(-1, size), axis=1)
    noise = _noise(logs)
    starts = [place * size for place in _changes(_fenced(logs), noise)]
    ends = [*starts[1:], len(seconds)]
    levels = tuple(
        (start, float(np.median(seconds[start:end]))) for start, end in zip(starts, ends)
    )
    first = len(levels) - 1
    last = levels[-1][1]
    alike = max(LEVEL_SHARE, LEVEL_DEVIATIONS * noise)
    while first and abs(np.log(levels[first - 1][1] / last)) <= alike:
        first -= 1
    begin = levels[first][0]
    if len(seconds) - begin < STEADY_SHARE * len(seconds):
        return Steady("no steady state", len(seconds), levels)
    if begin == 0:
        return Steady("flat", 0, levels)
    before = float(np.median(seconds[:begin]))
    return Steady("warm-up" if before > last else "slow-down", begin, levels)


def _fenced(logs: Array) -> Array:
    """Times with single outliers moved to the fence, so that none is taken for a level."""
    middle = np.median(logs)
    reach = FENCE * _ROBUST * np.median(np.abs(logs - middle))
    outlying = np.abs(logs - middle) > reach
    # Neighbours that are outside too are a level of their own, and stay.
    lone = outlying & ~np.r_[False, outlying[:-1]] & ~np.r_[outlying[1:], False]
    return np.where(lone, np.clip(logs, middle - reach, middle + reach), logs)


def _noise(logs: Array) -> float:
    """The standard deviation of a step, from differences of neighbours, which do not see the levels."""
    if len(logs) < 2:
        return 0.0
    differences = np.diff(logs)
    middle = np.median(differences)
    return float(_ROBUST * np.median(np.abs(differences - middle)) / np.sqrt(2))


def _changes(logs: Array, noise: float) -> list[int]:
    """The first step of each level."""
    if len(logs) < 2 * LEVEL_STEPS:
        return [0]
    from ruptures import KernelCPD  # type: ignore[import-untyped]

    noise = max(noise, LEVEL_SHARE / 10)
    search = KernelCPD(kernel="linear", min_size=LEVEL_STEPS).fit(logs[:, None] / noise)
    ends = search.predict(pen=PENALTY * np.log(len(logs)))
    return [0, *(int(end) for end in ends[:-1])]
