"""Gradients of one adapter: by finite differences, and what float32 does to them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dlb.proof.certificate import Baseline, CheckResult
from dlb.proof.checks.tolerances import (
    FLOAT32_LEAST,
    FLOAT32_MULTIPLE,
    FLOAT32_SMALL,
    PERTURBED_MULTIPLE,
    ROUNDED,
    SLOPE_TOLERANCE,
    Tensors,
    norm_floor,
    verdict,
)
from dlb.proof.checks.updates import order_by_multiple
from dlb.proof.distance import figure, passes, worst_first
from dlb.proof.findings import Figure, Finding
from dlb.proof.findings.workload import DifferenceSteps, ErrorMultiple

if TYPE_CHECKING:
    from dlb.proof.reference import Slope

__all__ = ["check_float32_gradients", "check_slopes", "gradient_errors"]


def check_slopes(adapter: str, slopes: Mapping[str, Slope]) -> CheckResult:
    """Directional derivatives: the adapter's gradient against finite differences, by what is moved."""
    compared = worst_first(
        figure(name, np.array([slope.gradient]), np.array([slope.difference]), slope.typical)
        for name, slope in slopes.items()
    )
    steps = DifferenceSteps(steps={name: slope.step for name, slope in slopes.items()})
    return CheckResult(
        check="gradients by differences",
        group="gradients",
        adapter=adapter,
        baseline=Baseline(kind="finite_differences"),
        verdict=verdict(passes(compared, SLOPE_TOLERANCE)),
        tolerance=SLOPE_TOLERANCE,
        figures=compared,
        findings=(Finding(cause=steps),),
    )


def check_float32_gradients(
    errors: Mapping[str, Sequence[Sequence[Figure]]], perturbed: Sequence[Sequence[Figure]]
) -> list[CheckResult]:
    """Errors of float32 gradients to the truth, judged as multiples of the best adapter's.

    Never adapter against adapter: two that round alike would prove each other. Of several batches,
    each tensor's figure is the one of median error: where rounding takes a value across the kink
    of a ReLU, or another element wins a pooling, a gradient jumps though nothing is wrong; what is
    computed too coarsely is wrong in every batch. Deep networks may meet a kink in every batch too,
    and the best adapter may have been lucky. So an error is also allowed that float64 has from weights
    that are a few units in the last place of float32 away.

    Args:
        errors: :func:`gradient_errors` of several batches in float32, by adapter.
        perturbed: those of one adapter in float64, at such weights.
    """
    middle = {adapter: _middle(batches) for adapter, batches in errors.items()}
    moved: dict[str, float] = {}
    for batch in perturbed:
        for error in batch:
            moved[error.tensor] = max(moved.get(error.tensor, 0.0), error.relative_l2 or 0.0)
    best: dict[str, float] = {}
    for figures_of_adapter in middle.values():
        for error in figures_of_adapter:
            size = np.inf if error.relative_l2 is None else error.relative_l2
            best[error.tensor] = min(best.get(error.tensor, np.inf), size)
    allowed = {
        name: max(size, FLOAT32_LEAST, moved.get(name, 0.0) * PERTURBED_MULTIPLE / FLOAT32_MULTIPLE)
        for name, size in best.items()
    }
    results = []
    for adapter, figures_of_adapter in middle.items():
        ordered, multiple = order_by_multiple(figures_of_adapter, allowed)
        worst = ordered[0] if ordered else None
        tolerance = FLOAT32_MULTIPLE * allowed.get(worst.tensor if worst else "", FLOAT32_LEAST)
        cause = ErrorMultiple(
            of="best_adapter",
            multiple=multiple if math.isfinite(multiple) else None,
            allowed=FLOAT32_MULTIPLE,
        )
        results.append(
            CheckResult(
                check="gradients float32",
                group="float32",
                adapter=adapter,
                baseline=Baseline(kind="own_float64"),
                verdict=verdict(bool(ordered) and multiple <= FLOAT32_MULTIPLE),
                tolerance=tolerance,
                figures=ordered,
                findings=(Finding(cause=cause, figure=worst, tolerance=tolerance),),
            )
        )
    return results


def gradient_errors(gradients: Tensors, truth: Tensors) -> tuple[Figure, ...]:
    """Errors of one batch's loss and gradients to those in float64, worst first; of a gradient
    that is zero by the whole gradient."""
    whole = norm_floor(truth, 1.0)
    nothing = np.full(1, np.nan)
    return worst_first(
        figure(
            name,
            gradients.get(name, nothing),
            array,
            whole if np.linalg.norm(array) <= ROUNDED * whole else FLOAT32_SMALL * whole,
        )
        for name, array in truth.items()
    )


def _middle(batches: Sequence[Sequence[Figure]]) -> tuple[Figure, ...]:
    """For each tensor the figure of the batch with the median error; an infinite one, which no kink
    makes, wherever there is one."""
    by_tensor: dict[str, list[Figure]] = {}
    for batch in batches:
        for error in batch:
            by_tensor.setdefault(error.tensor, []).append(error)
    ordered = map(worst_first, by_tensor.values())
    return worst_first(
        errors[0 if errors[0].relative_l2 is None else len(errors) // 2] for errors in ordered
    )
