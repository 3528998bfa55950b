"""How many rounds a precision needs: two stages, without a look in between.

A pilot measures the spread between rounds. From it the number of rounds follows, once. Whoever looks after each
round and stops when the interval is narrow enough has intervals that cover 90% in place of 95%.

Source: Stein, A two-sample test for a linear hypothesis whose power is independent of the variance (Annals of
Mathematical Statistics 16, 1945).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from dlb.measure.ratios import CONFIDENCE, spread, t_quantile

__all__ = ["PILOT_ROUNDS", "affordable_rounds", "rounds_needed"]

#: Rounds of the pilot.
PILOT_ROUNDS = 5


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
