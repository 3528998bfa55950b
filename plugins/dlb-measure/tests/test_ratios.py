"""Ratios, intervals, words and the number of rounds, against what they promise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dlb_measure.ratios import Ratio, log_ratios, ratio_of, ratio_unpaired, word_for
from dlb_measure.stopping import (
    PILOT_ROUNDS,
    affordable_rounds,
    confidence_after,
    looks,
    rounds_needed,
)

#: Spread of trials: builds of one program differ by so much.
BUILDS = 0.03


def trials(
    generator: np.random.Generator, rounds: int, ratio: float = 1.0
) -> tuple[list[float], list[float]]:
    """Seconds of two cells: the machine drifts by 20% from round to round, for both alike."""
    drift = np.exp(0.2 * generator.standard_normal(rounds))
    own, other = np.exp(BUILDS * generator.standard_normal((2, rounds))) * drift
    return list(ratio * own), list(other)


@pytest.mark.parametrize("rounds", [2, 3, 5, 8])
def test_an_interval_covers_what_it_says(rounds: int) -> None:
    generator = np.random.default_rng(rounds)
    runs = 2000
    held = sum(
        found.low <= 1.1 <= found.high
        for found in (ratio_of(*trials(generator, rounds, 1.1)) for _ in range(runs))
    )
    # Four standard deviations of a binomial at 95%.
    assert abs(held / runs - 0.95) < 4 * math.sqrt(0.95 * 0.05 / runs)


def test_two_stages_keep_the_promise() -> None:
    generator = np.random.default_rng(0)
    runs, held, needed = 1000, 0, []
    for _ in range(runs):
        own, other = trials(generator, 200)
        rounds = rounds_needed([log_ratios(own[:PILOT_ROUNDS], other[:PILOT_ROUNDS])], 0.03)
        needed.append(rounds)
        assert rounds <= 200
        found = ratio_of(own[:rounds], other[:rounds], pilot=PILOT_ROUNDS)
        assert found.width <= 0.03 + 1e-9
        held += found.low <= 1.0 <= found.high
    assert held / runs > 0.95 - 4 * math.sqrt(0.95 * 0.05 / runs)
    assert 10 < np.mean(needed) < 30


@pytest.mark.parametrize(
    ("rounds", "expected"), [(1, [1]), (3, [3]), (5, [3, 5]), (10, [3, 5, 8, 10])]
)
def test_looks_are_fixed_beforehand(rounds: int, expected: list[int]) -> None:
    assert looks(rounds) == expected
    # All looks together spend what one interval may miss, whether rounds end at the last or before.
    spent = [1 - confidence_after(each, rounds, last=each == rounds) for each in expected]
    assert sum(spent) == pytest.approx(0.05)
    for done in range(1, rounds + 1):
        before = sum(share for each, share in zip(expected, spent) if each < done)
        assert before + 1 - confidence_after(done, rounds, last=True) == pytest.approx(0.05)
        assert confidence_after(done, rounds, last=False) >= confidence_after(
            done, rounds, last=True
        )


@pytest.mark.parametrize("ratio", [1.0, 1.03, 1.3])
def test_ends_that_depend_on_words_keep_the_promise(ratio: float) -> None:
    generator = np.random.default_rng(3)
    runs, held, done, rounds = 2000, 0, 0, 10
    for _ in range(runs):
        own, other = trials(generator, rounds, ratio)
        for each in looks(rounds):
            confidence = confidence_after(each, rounds, last=each == rounds)
            found = ratio_of(own[:each], other[:each], confidence)
            if word_for(found, 0.01) != "unclear":
                break
        held += found.low <= ratio <= found.high
        done += each
    assert held / runs > 0.95 - 4 * math.sqrt(0.95 * 0.05 / runs)
    assert done / runs < 6 if ratio == 1.3 else done / runs > 9


def test_an_unpaired_interval_covers_what_it_says() -> None:
    generator = np.random.default_rng(9)
    runs, held = 2000, 0
    for _ in range(runs):
        own = list(1.1 * np.exp(0.05 * generator.standard_normal(4)))
        found = ratio_unpaired(own, list(np.exp(0.01 * generator.standard_normal(8))))
        held += found.low <= 1.1 <= found.high
    # Welch's interval is a little short with so few.
    assert 0.92 < held / runs < 0.97
    assert ratio_unpaired([2.0], [1.0, 1.0]).high == math.inf
    assert ratio_unpaired([2.0, 2.0], [1.0, 1.0]) == Ratio(2.0, 2.0, 2.0, 2)


def test_one_round_says_nothing() -> None:
    found = ratio_of([2.0], [1.0])
    assert (found.ratio, found.low, found.high) == (2.0, 0.0, math.inf)
    assert found.width == math.inf and word_for(found, 0.01) == "unclear"


def test_pairs_take_out_the_drift() -> None:
    drift = [1.0, 3.0, 0.5]
    found = ratio_of([1.2 * each for each in drift], drift)
    assert found.ratio == pytest.approx(1.2) and found.width == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    ("low", "high", "own", "word"),
    [
        (0.90, 0.95, 0.0, "faster"),
        (1.05, 1.10, 0.0, "slower"),
        (0.995, 1.004, 0.0, "same"),
        (0.97, 1.02, 0.0, "unclear"),
        (1.02, 1.04, 0.05, "unclear"),  # a cell and itself differed by more
        (0.999, 1.02, 0.0, "unclear"),
        (1.001, 1.005, 0.0, "same"),
    ],
)
def test_words(low: float, high: float, own: float, word: str) -> None:
    assert word_for(Ratio(math.sqrt(low * high), low, high, 5), 0.01, own) == word


def test_the_inverse_is_the_other_way_round() -> None:
    found = ratio_of([1.0, 1.1, 1.3], [1.0, 1.0, 1.0])
    other = ratio_of([1.0, 1.0, 1.0], [1.0, 1.1, 1.3])
    assert found.inverse.ratio == pytest.approx(other.ratio)
    assert found.inverse.low == pytest.approx(other.low)
    assert found.inverse.high == pytest.approx(other.high)
    assert ratio_of([2.0], [1.0]).inverse == Ratio(0.5, 0.0, math.inf, 1)


@pytest.mark.parametrize(
    ("times", "baseline"),
    [([1.0], [1.0, 2.0]), ([0.0], [1.0]), ([math.inf], [1.0]), ([math.nan], [1.0]), ([], [])],
)
def test_bad_times(times: list[float], baseline: list[float]) -> None:
    with pytest.raises(ValueError, match=r"round|above 0"):
        ratio_of(times, baseline)


def test_bad_precision() -> None:
    with pytest.raises(ValueError, match="precision is 0"):
        rounds_needed([[0.1, 0.2]], 0.0)
    with pytest.raises(ValueError, match="two rounds"):
        rounds_needed([[0.1]], 0.1)


def test_a_budget_has_room_for_whole_rounds() -> None:
    assert affordable_rounds(10.0, 25.0, 60.0) == 3
    assert affordable_rounds(10.0, 65.0, 60.0) == 0
