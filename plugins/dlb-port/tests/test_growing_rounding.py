"""How far trajectories can be compared, and what rounding may do to float32 gradients."""

from __future__ import annotations

import numpy as np
import pytest

from dlb.proof.certificate import Baseline, CheckResult, Figure
from dlb.proof.checks.agreement import largest_agreed_distance
from dlb.proof.divergence import comparable_steps, error_growth
from dlb.proof.engine import Check
from dlb.proof.findings.common import StepsCompared
from dlb.proof.findings.workload import RoundingGrows
from dlb.report.sentences import sentence
from dlb_port.check_tables import PORT
from dlb_port.port_checks import check_float32_gradients


@pytest.mark.parametrize(
    ("growth", "steps"),
    [
        ({}, 20),
        ({1: 1e-12, 2: 1e-12, 5: 2e-12, 10: 1e-11, 20: 1e-10}, 20),
        ({1: 1e-12, 2: 1e-9, 5: 1e-11, 10: 1e-6, 20: 1e-2}, 5),
        ({1: 1e-12, 2: 1e-9, 5: 1e-7, 10: np.inf, 20: np.nan}, 1),
        ({1: np.inf, 2: np.inf, 5: np.inf, 10: np.inf, 20: np.inf}, 1),
    ],
)
def test_trajectories_are_compared_where_rounding_has_not_grown(
    growth: dict[int, float], steps: int
) -> None:
    chosen, finding = comparable_steps((1, 2, 5, 10, 20), growth)
    assert chosen == steps
    if steps == 20:
        assert finding.cause == StepsCompared(steps=20)
        return
    assert isinstance(finding.cause, RoundingGrows)
    assert (finding.cause.steps, finding.cause.asked) == (steps, 20)
    assert f"after {steps} of 20 steps" in sentence(finding, "torch")


@pytest.mark.parametrize(("apart", "steps"), [(0.0, 2), (1e-12, 2), (1.4e-12, 2), (3.9e-12, 1)])
def test_gradients_that_are_further_apart_grow_to_more(apart: float, steps: int) -> None:
    """As Inception-v3's on TensorFlow, whose gradients are 4e-12 from the other adapters'."""
    growth = {1: 1e-12, 2: 7e-11, 5: 1e-6, 10: 1e-1, 20: 9e-1}
    chosen, finding = comparable_steps((1, 2, 5, 10, 20), growth, apart)
    assert chosen == steps and isinstance(finding.cause, RoundingGrows)
    assert finding.cause.gradients_apart == (apart if apart > 1e-12 else None)
    assert ("gradients are" in sentence(finding, "torch")) == (apart > 1e-12)


def test_only_gradients_that_agree_tell_how_far_apart_they_may_be() -> None:
    near, far = (
        CheckResult(
            check="gradients",
            group="gradients",
            adapter=adapter,
            baseline=Baseline(kind="adapters", names=("other",)),
            verdict=verdict,
            figures=(Figure(tensor="a.weight", relative_l2=size, largest=size),),
        )
        for adapter, verdict, size in (("near", "passed", 4e-12), ("far", "failed", 1e-3))
    )
    assert largest_agreed_distance([near, far]) == 4e-12
    assert largest_agreed_distance([far]) == largest_agreed_distance([]) == 0.0


def test_growth_is_that_of_the_worst_tensor() -> None:
    found = {"a.weight": np.ones(4), "b.weight": np.full(4, 2.0)}
    perturbed = {"a.weight": np.ones(4), "b.weight": np.full(4, 2.0 + 2e-6), "c.bias": np.ones(1)}
    assert error_growth(found, perturbed) == pytest.approx(1e-6)


def off(size: float) -> dict[str, np.ndarray]:
    return {"a.weight": np.full(4, 1.0 + size)}


@pytest.mark.parametrize(
    ("worse", "perturbed", "passes"),
    [
        (1.9e-5, 0.0, True),
        (2.1e-5, 0.0, False),
        (1.2e-3, 1e-3, True),
        (1.3e-3, 1e-3, False),
        (np.nan, 1e-3, False),
    ],
)
@pytest.mark.parametrize("other", [1e-7, None])
def test_a_float32_gradient_may_be_as_wrong_as_moving_the_weights_makes_it(
    worse: float, perturbed: float, passes: bool, other: float | None
) -> None:
    check = Check.of(PORT["gradients float32"], "other", "lucky")
    moved = [off(perturbed)]
    better = None if other is None else off(other)
    result = check_float32_gradients(check, off(0.0), off(worse), better, moved)
    assert result.verdict == ("passed" if passes else "failed")
    assert (result.adapter, result.baseline.names) == ("other", ("lucky",))
    if better is not None:  # the better one of both is not to blame
        assert (
            check_float32_gradients(check, off(0.0), better, off(worse), moved).verdict == "passed"
        )
