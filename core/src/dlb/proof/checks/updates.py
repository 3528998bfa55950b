"""What training steps change: weights, optimizer state, running statistics, against the definition."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.proof.certificate import Baseline, CheckGroup, CheckResult, not_run
from dlb.proof.checks.tolerances import (
    CHANGE_LEAST,
    CHANGE_SEEN,
    FLOAT32_LEAST,
    FLOAT32_MULTIPLE,
    FLOAT64_TOLERANCE,
    Tensors,
    norm_floor,
    verdict,
)
from dlb.proof.distance import figure, infinite_cause, norm, passes, pieces, worst_first
from dlb.proof.findings import Figure, Finding
from dlb.proof.findings.common import StepsCompared
from dlb.proof.findings.workload import ErrorMultiple, NoWeightMoves

__all__ = [
    "DEFINITION",
    "check_trajectory",
    "check_update",
    "check_update_float32",
    "order_by_multiple",
]

Array = npt.NDArray[Any]
DEFINITION = Baseline(kind="optimizer_definition")


def check_update(
    adapter: str, steps: int, start: Tensors, after: Tensors, truth: Tensors, running: Tensors
) -> CheckResult:
    """What one step changed, optimizer state and running statistics too, against the definition."""
    return _check_changes("update", "update", adapter, steps, start, after, truth, running)


def check_trajectory(
    adapter: str, steps: int, start: Tensors, after: Tensors, truth: Tensors, running: Tensors
) -> CheckResult:
    """What many steps changed, against the definition fed with the adapter's own gradients."""
    return _check_changes("trajectory", "trajectory", adapter, steps, start, after, truth, running)


def _check_changes(
    check: str,
    group: CheckGroup,
    adapter: str,
    steps: int,
    start: Tensors,
    after: Tensors,
    truth: Tensors,
    running: Tensors,
) -> CheckResult:
    """Changes rather than weights: a wrong rate is small next to a weight, not next to its change.

    Args:
        start: weights and running statistics before the first step; what is not in it started at
            zero.
        after: both and ``layer.parameter.slot`` after the last.
        truth, running: trained weights and slots, and running statistics, as they should be.
    """
    if not _moves(start, truth):
        return not_run(check, group, adapter, DEFINITION, Finding(cause=NoWeightMoves(steps=steps)))
    expected = {**truth, **running}
    ordered = _changes(start, after, expected)
    findings = []
    if ordered and ordered[0].relative_l2 is None:
        name = ordered[0].tensor
        cause = infinite_cause(name, after.get(name), expected.get(name))
        findings += [Finding(cause=cause, figure=ordered[0])] if cause else []
    findings.append(Finding(cause=StepsCompared(steps=steps)))
    return CheckResult(
        check=check,
        group=group,
        adapter=adapter,
        baseline=DEFINITION,
        verdict=verdict(passes(ordered, FLOAT64_TOLERANCE)),
        tolerance=FLOAT64_TOLERANCE,
        figures=ordered,
        findings=tuple(findings),
    )


def _moves(start: Tensors, truth: Tensors) -> bool:
    """Whether any weight that is trained should have changed so that it shows. A NaN does."""
    for name in start.keys() & truth.keys():
        apart = (after - before for after, before in pieces(truth[name], start[name]))
        moved = math.sqrt(sum(float(piece @ piece) for piece in apart))
        if not moved <= CHANGE_SEEN * norm([start[name]]):
            return True
    return False


def _changes(start: Tensors, after: Tensors, truth: Tensors) -> tuple[Figure, ...]:
    """How far what was changed is from what should have been, worst first."""
    collected = []
    slots: dict[str, dict[str, Array]] = {}
    for tensor, array in truth.items():
        if tensor not in start:
            slots.setdefault(tensor.rsplit(".", 1)[1], {})[tensor] = array
    floors = {slot: norm_floor(tensors) for slot, tensors in slots.items()}
    for tensor in {**truth, **after}:
        expected, own = truth.get(tensor), after.get(tensor)
        if expected is None or own is None or own.shape != expected.shape:
            collected.append(Figure(tensor=tensor, relative_l2=None, largest=None))
            continue
        before = start.get(tensor)
        least = (
            floors[tensor.rsplit(".", 1)[1]] if before is None else CHANGE_LEAST * norm([before])
        )
        collected.append(figure(tensor, own, expected, least, before))
    return worst_first(collected)


def check_update_float32(
    adapter: str, steps: int, start: Tensors, after: Tensors, truth: Tensors, baseline: Tensors
) -> CheckResult:
    """What a few float32 steps changed, against the definition fed with the adapter's own gradients.

    Args:
        start: float64 weights before the first step.
        after, truth: weights and ``layer.parameter.slot`` after the last; float32, and float64.
        baseline: what NumPy makes of it in float32.
    """
    if not _moves(start, truth):
        reason = Finding(cause=NoWeightMoves(steps=steps))
        return not_run("update float32", "float32", adapter, DEFINITION, reason)
    rounding = {one.tensor: one.relative_l2 for one in _changes(start, baseline, truth)}
    changes = _changes(start, after, truth)
    allowed = {one.tensor: max(rounding.get(one.tensor) or 0.0, FLOAT32_LEAST) for one in changes}
    ordered, multiple = order_by_multiple(changes, allowed)
    worst = ordered[0] if ordered else None
    tolerance = FLOAT32_MULTIPLE * allowed.get(worst.tensor if worst else "", FLOAT32_LEAST)
    cause = ErrorMultiple(
        of="numpy_float32",
        multiple=multiple if math.isfinite(multiple) else None,
        allowed=FLOAT32_MULTIPLE,
    )
    return CheckResult(
        check="update float32",
        group="float32",
        adapter=adapter,
        baseline=DEFINITION,
        verdict=verdict(bool(ordered) and multiple <= FLOAT32_MULTIPLE),
        tolerance=tolerance,
        figures=ordered,
        findings=(
            Finding(cause=cause, figure=worst, tolerance=tolerance),
            Finding(cause=StepsCompared(steps=steps)),
        ),
    )


def order_by_multiple(
    compared: Iterable[Figure], errors: Mapping[str, float]
) -> tuple[tuple[Figure, ...], float]:
    """Figures by how many times their tensor's own error they are, and the first's number.

    Where each tensor has a tolerance of its own, the first figure's is the result's.
    """

    def multiple(one: Figure) -> float:
        return (np.inf if one.relative_l2 is None else one.relative_l2) / errors[one.tensor]

    ordered = tuple(sorted(compared, key=multiple, reverse=True))
    return (ordered, multiple(ordered[0])) if ordered else ((), 0.0)
