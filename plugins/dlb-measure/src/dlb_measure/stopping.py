"""When rounds end: after as many as a precision needs, or once every word is settled.

For a precision, a pilot measures the spread between rounds, and from it the number of rounds follows, once.
Whoever looks after each round and stops when the interval is narrow enough has intervals that cover 90% in
place of 95%.

For words, the looks are fixed beforehand, and so is the share of errors that each may spend: of 5%, as much as
the cube of the share of rounds that are done, without what earlier looks spent. Each look has Student's
interval at the confidence that its share leaves. By the union bound, the intervals of all looks together hold
the true ratio in at least 95 of 100 measurements, whenever rounds end; ``benchmarks/early_ends.py`` shows it.

Sources: Stein, A two-sample test for a linear hypothesis whose power is independent of the variance (Annals of
Mathematical Statistics 16, 1945); Jennison and Turnbull, Interim analyses: the repeated confidence interval
approach (Journal of the Royal Statistical Society B 51, 1989); Lan and DeMets, Discrete sequential boundaries
for clinical trials (Biometrika 70, 1983), with the spending of Kim and DeMets (Biometrika 74, 1987).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from dlb_measure.ratios import CONFIDENCE, spread, t_quantile

__all__ = ["PILOT_ROUNDS", "affordable_rounds", "confidence_after", "looks", "rounds_needed"]

#: Rounds of the pilot.
PILOT_ROUNDS = 5
#: The first look comes after so many rounds, each further one after so many times those of the one before.
FIRST_LOOK, LOOK_GROWTH = 3, 1.5
#: Errors are spent as this power of the share of rounds that are done.
SPENDING = 3


def looks(rounds: int) -> list[int]:
    """After how many rounds each look comes: 3, 5, 8, 12, ... and the last one after all."""
    found = []
    each = min(FIRST_LOOK, rounds)
    while each < rounds:
        found.append(each)
        each = math.ceil(LOOK_GROWTH * each)
    return [*found, rounds]


def confidence_after(
    done: int, rounds: int, *, last: bool, confidence: float = CONFIDENCE
) -> float:
    """The confidence of the interval after some rounds, so that those of all looks together keep the promise.

    Args:
        done: rounds that are done, 1 or more.
        rounds: rounds that are planned.
        last: whether no further round follows, for another reason than what was found. All that earlier looks
            left is then spent.
    """
    before = max((each for each in looks(rounds) if each < done), default=0)
    after = rounds if last else min(each for each in looks(rounds) if each >= min(done, rounds))
    share = (after / rounds) ** SPENDING - (before / rounds) ** SPENDING
    return 1 - (1 - confidence) * share


def rounds_needed(
    pilots: Iterable[Sequence[float]], precision: float, confidence: float = CONFIDENCE
) -> int:
    """The rounds, those of the pilot included, after which every interval is as narrow as asked.

    Args:
        pilots: of each pair of cells, the logarithms of the pilot's ratios, two or more.
        precision: half of the interval's width that is asked for, relative: 0.02 for 2%.

    Raises:
        ValueError: the precision is not above 0, or a pilot has one round.
    """
    if not precision > 0:
        raise ValueError(f"precision is {precision:g}; it must be above 0")
    most = 0
    for logs in pilots:
        if len(logs) < 2:
            raise ValueError("a pilot needs two rounds")
        reach = t_quantile(confidence, len(logs) - 1) * spread(logs)
        most = max(most, len(logs), math.ceil((reach / math.log1p(precision)) ** 2))
    return most


def affordable_rounds(round_seconds: float, used_seconds: float, budget_seconds: float) -> int:
    """How many further rounds a budget has room for."""
    left = budget_seconds - used_seconds
    return max(0, math.floor(left / round_seconds)) if round_seconds > 0 else 0
