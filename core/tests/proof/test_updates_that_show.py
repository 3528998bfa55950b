"""An update that moves nothing proves nothing, and is not called passed."""

from __future__ import annotations

import numpy as np
import pytest

from dlb.proof.certificate import CheckResult
from dlb.proof.checks.updates import check_changes
from dlb.proof.engine import Check
from dlb.proof.findings.workload import NoWeightMoves
from dlb_graph.comparing.tolerances import CHANGE_SEEN, Tensors

START = {"a.weight": np.full((3, 2), 2.0), "a.bias": np.zeros(2), "b.mean": np.zeros(2)}
#: Running statistics move whatever the optimizer does.
AFTER = {"b.mean": np.full(2, 0.5)}


def moved(by: float) -> dict[str, np.ndarray]:
    weights = {"a.weight": START["a.weight"] * (1 - by), "a.bias": START["a.bias"]}
    return {**weights, "a.weight.velocity": np.ones((3, 2))}


def judged(after: Tensors, truth: Tensors) -> CheckResult:
    return check_changes(Check.of("update", "torch"), 3, START, after, truth, AFTER)


@pytest.mark.parametrize("by", [0.0, CHANGE_SEEN / 20])
def test_one_that_no_rounding_shows_is_not_run(by: float) -> None:
    result = judged(moved(by) | AFTER, moved(by))
    assert result.verdict == "not run"
    assert [finding.cause for finding in result.findings] == [NoWeightMoves(steps=3)]


def test_one_that_shows_is_judged() -> None:
    true = moved(1e-3)
    assert judged(true | AFTER, true).verdict == "passed"
    assert judged(START, true).verdict == "failed"
    assert judged(moved(1.01e-3) | AFTER, true).verdict == "failed"


def test_what_is_as_small_as_may_be_is_told_from_one_a_tenth_too_large() -> None:
    true = moved(2 * CHANGE_SEEN)
    assert judged(true | AFTER, true).verdict == "passed"
    assert judged(moved(3 * CHANGE_SEEN) | AFTER, true).verdict == "failed"


def test_a_weight_that_is_no_number_is_judged_and_fails() -> None:
    true = {**moved(0.0), "a.bias": np.full(2, np.nan)}
    assert judged(true | AFTER, true).verdict == "failed"
