"""Series of known classes, and where they are steady."""

from __future__ import annotations

import time

import numpy as np
import numpy.typing as npt
import pytest

from dlb_measure.steady import find_steady

Array = npt.NDArray[np.float64]


def series(*levels: tuple[int, float], noise: float = 0.02, seed: int = 0) -> Array:
    """Times of steps at some levels."""
    generator = np.random.default_rng(seed)
    means = np.concatenate([np.full(steps, seconds) for steps, seconds in levels])
    return np.asarray(means * np.exp(noise * generator.standard_normal(len(means))))


@pytest.mark.parametrize("noise", [0.0, 0.002, 0.02, 0.1])
@pytest.mark.parametrize("steps", [1, 15, 100, 1000])
def test_steady_from_the_first_step(steps: int, noise: float) -> None:
    wrong = [
        seed
        for seed in range(20)
        if find_steady(series((steps, 0.01), noise=noise, seed=seed)).kind != "flat"
    ]
    assert not wrong


@pytest.mark.parametrize(("first", "kind"), [(0.02, "warm-up"), (0.006, "slow-down")])
def test_what_comes_before_the_steady_state(first: float, kind: str) -> None:
    found = find_steady(series((40, first), (260, 0.01)))
    assert found.kind == kind and abs(found.start - 40) <= 2
    assert [round(seconds, 3) for _, seconds in found.levels] == [first, 0.01]


def test_several_levels_before() -> None:
    found = find_steady(series((20, 0.08), (30, 0.03), (250, 0.01)))
    assert found.kind == "warm-up" and abs(found.start - 50) <= 2


def test_levels_that_agree_again_are_one_only_if_they_are_last() -> None:
    found = find_steady(series((100, 0.01), (100, 0.02), (100, 0.01)))
    assert found.kind == "no steady state" and found.start == 300


def test_no_steady_state() -> None:
    rising = np.linspace(0.01, 0.03, 300) * series((300, 1.0))
    assert find_steady(np.asarray(rising)).kind == "no steady state"


def test_single_outliers_are_no_level() -> None:
    seconds = series((300, 0.01))
    seconds[::17] *= 30
    assert find_steady(seconds).kind == "flat"


def test_a_long_run_takes_little_time() -> None:
    seconds = series((200_000, 0.02), (800_000, 0.01))
    began = time.process_time()
    found = find_steady(seconds)
    assert found.kind == "warm-up" and abs(found.start - 200_000) <= 1000
    assert time.process_time() - began < 30


@pytest.mark.parametrize("seconds", [[], [0.01, 0.0], [0.01, -1.0], [0.01, np.nan], [np.inf]])
def test_times_that_are_none(seconds: list[float]) -> None:
    with pytest.raises(ValueError, match="above 0"):
        find_steady(np.array(seconds))
