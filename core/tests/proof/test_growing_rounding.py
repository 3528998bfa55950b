"""How far trajectories can be compared, and what rounding may do to float32 gradients."""

from __future__ import annotations

import numpy as np
import pytest

from dlb.proof.certificate import Figure, Rung
from dlb.proof.rungs import agreed, comparable, float32_rungs, growth


@pytest.mark.parametrize(
    ("growths", "steps"),
    [
        ({}, 20),
        ({1: 1e-12, 2: 1e-12, 5: 2e-12, 10: 1e-11, 20: 1e-10}, 20),
        ({1: 1e-12, 2: 1e-9, 5: 1e-11, 10: 1e-6, 20: 1e-2}, 5),
        ({1: 1e-12, 2: 1e-9, 5: 1e-7, 10: np.inf, 20: np.nan}, 1),
        ({1: np.inf, 2: np.inf, 5: np.inf, 10: np.inf, 20: np.inf}, 1),
    ],
)
def test_trajectories_are_compared_where_rounding_has_not_grown(
    growths: dict[int, float], steps: int
) -> None:
    chosen, detail = comparable((1, 2, 5, 10, 20), growths)
    assert chosen == steps
    assert detail.startswith(f"after {steps} of 20" if steps < 20 else "20 steps")


@pytest.mark.parametrize(("apart", "steps"), [(0.0, 2), (1e-12, 2), (1.4e-12, 2), (3.9e-12, 1)])
def test_gradients_that_are_further_apart_grow_to_more(apart: float, steps: int) -> None:
    """As Inception-v3's on TensorFlow, whose gradients are 4e-12 from the other adapters'."""
    growths = {1: 1e-12, 2: 7e-11, 5: 1e-6, 10: 1e-1, 20: 9e-1}
    chosen, detail = comparable((1, 2, 5, 10, 20), growths, apart)
    assert chosen == steps
    assert ("gradients are" in detail) == (apart > 1e-12)


def test_only_gradients_that_agree_tell_how_far_apart_they_may_be() -> None:
    near, far = (
        Rung(
            name="gradients",
            level="gradients",
            adapter=adapter,
            against="others",
            verdict=verdict,
            figures=(Figure(tensor="a.weight", relative_l2=size, largest=size),),
        )
        for adapter, verdict, size in (("near", "passed", 4e-12), ("far", "failed", 1e-3))
    )
    assert agreed([near, far]) == 4e-12
    assert agreed([far]) == agreed([]) == 0.0


def test_growth_is_that_of_the_worst_tensor() -> None:
    found = {"a.weight": np.ones(4), "b.weight": np.full(4, 2.0)}
    beside = {"a.weight": np.ones(4), "b.weight": np.full(4, 2.0 + 2e-6), "c.bias": np.ones(1)}
    assert growth(found, beside) == pytest.approx(1e-6)


def errors(size: float) -> list[tuple[Figure, ...]]:
    return [(Figure(tensor="a.weight", relative_l2=size, largest=size),)] * 3


@pytest.mark.parametrize(
    ("worse", "nudged", "passes"),
    [(1.9e-5, 0.0, True), (2.1e-5, 0.0, False), (1.2e-3, 1e-3, True), (1.3e-3, 1e-3, False)],
)
def test_a_float32_gradient_may_be_as_wrong_as_moving_the_weights_makes_it(
    worse: float, nudged: float, passes: bool
) -> None:
    rungs = float32_rungs({"lucky": errors(1e-7), "other": errors(worse)}, errors(nudged))
    assert [rung.verdict for rung in rungs] == ["passed", "passed" if passes else "failed"]


@pytest.mark.parametrize(
    ("jumps", "rest", "passes"),
    [(4, 1e-6, True), (5, 1e-6, False), (8, 1e-3, False), (1, None, False)],
)
def test_a_gradient_that_jumps_in_some_batches_is_no_difference(
    jumps: int, rest: float | None, passes: bool
) -> None:
    """What is too coarse is wrong in every batch, and what is no number is wrong in any."""
    worse = [
        (Figure(tensor="a.weight", relative_l2=size, largest=size),)
        for size in [1e-3 if rest else None] * jumps + [rest or 1e-6] * (8 - jumps)
    ]
    rungs = float32_rungs({"smooth": errors(1e-7), "kinked": worse}, [])
    assert [rung.verdict for rung in rungs] == ["passed", "passed" if passes else "failed"]
