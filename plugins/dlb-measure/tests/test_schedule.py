"""Rounds: every cell, one twice, in an order that is drawn and can be drawn again."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from dlb_measure.schedule import rounds


@pytest.mark.parametrize("order", ["interleaved", "alternating", "isolated"])
def test_every_round_has_every_cell_and_one_twice(order: str) -> None:
    planned = list(rounds(4, 7, 10, order=order))  # type: ignore[arg-type]
    for number in range(10):
        counted = Counter(trial.cell for trial in planned if trial.round == number)
        assert sorted(counted.values()) == [1, 1, 1, 2]
        assert sum(trial.again for trial in planned if trial.round == number) == 1


def test_the_order_differs_from_round_to_round() -> None:
    planned = list(rounds(4, 7, 10))
    orders = {
        tuple(trial.cell for trial in planned if trial.round == number) for number in range(10)
    }
    assert len(orders) > 7
    assert len({trial.hash_seed for trial in planned}) == len(planned)
    assert len({trial.padding for trial in planned}) > 40


def test_rounds_follow_from_the_seed_and_their_number() -> None:
    assert list(rounds(3, 1, 5)) == [*rounds(3, 1, 2), *rounds(3, 1, 3, first=2)]
    assert list(rounds(3, 1, 5)) != list(rounds(3, 2, 5))


def test_isolated_trials_of_a_cell_follow_each_other() -> None:
    cells = [trial.cell for trial in rounds(4, 7, 3, order="isolated")]
    assert sum(one != other for one, other in pairwise(cells)) == 3
