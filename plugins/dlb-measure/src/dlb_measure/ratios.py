"""Two cells as a ratio of times, with its interval, and the word for it.

Trials of one round are paired: what the machine does to one, it does to the other. The logarithms of their
ratios are averaged, and the interval is Student's. It covers 95% from two rounds on, where a percentile
bootstrap over five rounds covers about 82%.

Sources: Kalibera and Jones, Rigorous benchmarking in reasonable time (ISMM 2013); Abedi and Brecht, Conducting
repeatable experiments in highly variable cloud computing environments (ICPE 2017).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

__all__ = [
    "CONFIDENCE",
    "Ratio",
    "Word",
    "log_ratios",
    "power_of",
    "ratio_of",
    "ratio_unpaired",
    "rounds_to_find",
    "word_for",
]

#: Share of intervals that hold the true ratio.
CONFIDENCE = 0.95
#: What may be said of a cell next to its baseline.
Word = Literal["faster", "slower", "same", "unclear"]


@dataclass(frozen=True)
class Ratio:
    """Time of a cell divided by that of its baseline.

    Attributes:
        ratio: the geometric mean of the rounds' ratios.
        low, high: bounds of the interval; 0 and infinity of a single round.
        rounds: rounds that it is of.
        spread: standard deviation of the logarithms of the rounds' ratios; 0 where it is not of rounds.
        confidence: share of such intervals that hold the true ratio.
    """

    ratio: float
    low: float
    high: float
    rounds: int
    spread: float = 0.0
    confidence: float = CONFIDENCE

    @property
    def width(self) -> float:
        """Half of the interval's width, relative to the ratio: 0.02 for 2%."""
        if not math.isfinite(self.high):
            return math.inf
        return math.expm1(math.log(self.high / self.low) / 2)

    @property
    def inverse(self) -> Ratio:
        """The baseline next to the cell."""
        high = math.inf if self.low == 0 else 1 / self.low
        return replace(self, ratio=1 / self.ratio, low=1 / self.high, high=high)

    def power(self, difference: float) -> float:
        """The probability with which so many rounds of this spread find a difference, such as 0.03.

        That is, the interval leaves out 1; of normally distributed logarithms.
        """
        if self.rounds < 2 or not self.spread:
            return 0.0
        return power_of(self.rounds, self.spread, difference, self.confidence)


def log_ratios(times: Sequence[float], baseline: Sequence[float]) -> list[float]:
    """The logarithm of each round's ratio.

    Args:
        times, baseline: seconds in each round, of both cells; above 0.

    Raises:
        ValueError: other numbers of rounds, or a time that is not above 0.
    """
    if len(times) != len(baseline):
        raise ValueError(f"{len(times)} rounds of one cell and {len(baseline)} of the other")
    if not all(0 < each < math.inf for each in (*times, *baseline)):
        raise ValueError("times must be above 0, and finite")
    return [math.log(own / other) for own, other in zip(times, baseline)]


def ratio_of(
    times: Sequence[float],
    baseline: Sequence[float],
    confidence: float = CONFIDENCE,
    *,
    pilot: int | None = None,
) -> Ratio:
    """The ratio of two cells over rounds; arguments as :func:`log_ratios`.

    Args:
        pilot: how many first rounds decided how many there are. The spread is then theirs: that of all rounds
            is too small where a pilot with a small spread ended the measurement.

    Raises:
        ValueError: there is no round.
    """
    logs = log_ratios(times, baseline)
    if not logs:
        raise ValueError("a ratio needs a round")
    mean = math.fsum(logs) / len(logs)
    if len(logs) == 1:
        return Ratio(math.exp(mean), 0.0, math.inf, 1)
    measured = logs[:pilot]
    apart = spread(measured)
    half = t_quantile(confidence, len(measured) - 1) * apart / math.sqrt(len(logs))
    low, high = math.exp(mean - half), math.exp(mean + half)
    return Ratio(math.exp(mean), low, high, len(logs), apart, confidence)


def ratio_unpaired(
    times: Sequence[float], baseline: Sequence[float], confidence: float = CONFIDENCE
) -> Ratio:
    """The ratio of two cells that were measured at other times, by Welch's interval.

    What drifted in between is in the ratio, and not in the interval.

    Args:
        times, baseline: seconds of the trials of both cells; above 0.

    Raises:
        ValueError: a side is empty, or a time is not above 0.
    """
    if not times or not baseline or not all(0 < each < math.inf for each in (*times, *baseline)):
        raise ValueError("both sides need times above 0, and finite")
    sides = [[math.log(each) for each in side] for side in (times, baseline)]
    means = [math.fsum(side) / len(side) for side in sides]
    apart = means[0] - means[1]
    fewest = min(map(len, sides))
    if fewest < 2:
        return Ratio(math.exp(apart), 0.0, math.inf, fewest)
    shares = [spread(side) ** 2 / len(side) for side in sides]
    total = math.fsum(shares)
    if not total:
        return Ratio(math.exp(apart), math.exp(apart), math.exp(apart), fewest)
    # Welch and Satterthwaite's degrees of freedom.
    freedom = total**2 / math.fsum(share**2 / (len(side) - 1) for share, side in zip(shares, sides))
    half = t_quantile(confidence, freedom) * math.sqrt(total)
    return Ratio(math.exp(apart), math.exp(apart - half), math.exp(apart + half), fewest)


def word_for(ratio: Ratio, margin: float, own: float = 0.0) -> Word:
    """What may be said of a cell next to its baseline.

    ``same`` if both bounds are within the margin. ``faster`` and ``slower`` only if the interval leaves out 1,
    and if the ratio is beyond what the run measured between a cell and itself.

    Args:
        margin: cells that differ by less count as the same; 0.01 for 1%.
        own: distance from 1 of the ratio of a cell and itself in the same rounds.
    """
    limit = math.log1p(margin)
    low = -math.inf if ratio.low == 0 else math.log(ratio.low)
    high = math.log(ratio.high)
    if -limit <= low and high <= limit:
        return "same"
    if abs(math.log(ratio.ratio)) <= math.log1p(own):
        return "unclear"
    if high < 0:
        return "faster"
    return "slower" if low > 0 else "unclear"


def spread(logs: Sequence[float]) -> float:
    """The standard deviation of a sample."""
    mean = math.fsum(logs) / len(logs)
    return math.sqrt(math.fsum((each - mean) ** 2 for each in logs) / (len(logs) - 1))


def power_of(
    rounds: int, spread: float, difference: float, confidence: float = CONFIDENCE
) -> float:
    """The probability that Student's interval leaves out 1, by the noncentral distribution.

    Args:
        rounds: 2 or more.
        spread: standard deviation of the logarithms of the rounds' ratios, above 0.
        difference: of the true ratio from 1.
    """
    from scipy.special import nctdtr

    beyond = t_quantile(confidence, rounds - 1)
    centre = math.log1p(difference) * math.sqrt(rounds) / spread
    below, above = nctdtr(rounds - 1, centre, [-beyond, beyond])
    found = float(1 - above + below)
    return found if math.isfinite(found) else 1.0


def rounds_to_find(spread: float, difference: float, power: float, most: int = 10_000) -> int:
    """The fewest rounds that find a difference with a probability; ``most`` if it takes more.

    Arguments as :func:`power_of`.
    """
    return 2 + bisect_left(
        range(2, most), True, key=lambda rounds: power_of(rounds, spread, difference) >= power
    )


@cache
def t_quantile(confidence: float, freedom: float) -> float:
    """How many standard errors a two-sided interval of Student's t reaches to each side."""
    from scipy.special import stdtrit  # much sooner imported than scipy.stats

    return float(stdtrit(freedom, (1 + confidence) / 2))
