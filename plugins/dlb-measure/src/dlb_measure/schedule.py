"""The rounds of a measurement: every cell once and one of them twice, in an order that is drawn.

What drifts, and what follows something else, then hits every cell alike. The cell that runs twice shows what
the machine makes of no difference at all.

Sources: Abedi and Brecht (ICPE 2017) for randomised interleaved trials; Mytkowicz et al., Producing wrong data
without doing anything obviously wrong (ASPLOS 2009) for what is drawn anew in each trial.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from dlb_measure.plan import Order

__all__ = ["Trial", "rounds"]

#: Largest number of bytes by which a trial's environment is padded, as a page of memory.
_PADDING = 4096


@dataclass(frozen=True)
class Trial:
    """One trial: a fresh process.

    Attributes:
        round: the number of its round, from 0.
        cell: the place of its cell.
        again: whether it is the second trial of its cell in the round, which no ratio to other cells has.
        hash_seed: the seed of Python's hashes in its process.
        padding: bytes by which its environment is longer, so that the stack begins elsewhere.
    """

    round: int
    cell: int
    again: bool
    hash_seed: int
    padding: int


def rounds(
    cells: int,
    seed: int,
    count: int,
    *,
    order: Order = "interleaved",
    first: int = 0,
    twice: bool = True,
) -> Iterator[Trial]:
    """The trials of some rounds, in the order in which they are run.

    The trials of a round depend on the seed and on its number alone. So a measurement that was ended goes on
    with the same trials.

    Args:
        cells: how many cells there are.
        seed: what everything is drawn from; it is kept with the results.
        count: how many rounds.
        first: the number of the first round.
        twice: whether a cell has a second trial in each round.
    """
    planned = [_round(cells, seed, number, twice) for number in range(first, first + count)]
    if order != "isolated":
        for trials in planned:
            yield from trials
        return
    for cell in random.Random(f"{seed} cells").sample(range(cells), cells):
        for trials in planned:
            yield from (trial for trial in trials if trial.cell == cell)


def _round(cells: int, seed: int, number: int, twice: bool) -> list[Trial]:
    generator = random.Random(f"{seed} {number}")
    again = generator.randrange(cells)
    places = [*range(cells), again] if twice else list(range(cells))
    trials, met = [], set()
    for cell in generator.sample(places, len(places)):
        hash_seed, padding = generator.randrange(1 << 32), generator.randrange(_PADDING)
        trials.append(Trial(number, cell, cell in met, hash_seed, padding))
        met.add(cell)
    return trials
