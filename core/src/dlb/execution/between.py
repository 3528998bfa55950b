"""What takes several adapters to judge: agreement, and float32 gradients by the best of them."""

from __future__ import annotations

import threading
from collections.abc import Collection

from dlb.execution.adapter import AdapterRun, calibrate_again
from dlb.execution.calibration import Calibration
from dlb.proof.certificate import CheckGroup, CheckResult
from dlb.proof.checks.agreement import (
    check_agreement,
    comparable_steps,
    largest_agreed_distance,
)
from dlb.proof.checks.float32 import check_float32_gradients
from dlb.request import Prepared, Reporter, Request

__all__ = ["calibration_of", "check_between", "see_calibrated"]


def see_calibrated(
    request: Request, prepared: Prepared, reporter: Reporter, runs: list[AdapterRun]
) -> None:
    """See that an adapter that is right by itself shows what rounding may do.

    The first adapter does so in its own run. Where it fails or deviates, the next one that works does.
    """
    if len(request.environments) < 2 or calibration_of(request, runs) is not None:
        return
    by_adapter = {run.adapter: run for run in runs}
    for environment in request.environments:
        run = by_adapter.get(environment.adapter)
        if run is None or run.failure or not run.independently_correct:
            continue
        if len(run.changes) > 1 or run.float32 is not None:
            calibrate_again(environment, request, prepared, reporter, threading.Event(), run)
            if run.calibration is not None:
                return


def calibration_of(request: Request, runs: list[AdapterRun]) -> Calibration | None:
    """What rounding may do, of the first adapter that shows it and is right by itself."""
    by_adapter = {run.adapter: run for run in runs}
    asked = (environment.adapter for environment in request.environments)
    ordered = [by_adapter[adapter] for adapter in asked if adapter in by_adapter]
    return next(
        (
            run.calibration
            for run in ordered
            if run.calibration is not None and run.independently_correct
        ),
        None,
    )


def check_between(
    runs: list[AdapterRun], groups: Collection[CheckGroup], calibration: Calibration | None
) -> list[CheckResult]:
    """What takes several adapters, or the best of them, to judge."""
    gradients = {run.adapter: run.gradients for run in runs if run.gradients}
    # None of steps that only rounding moved.
    changes = {
        run.adapter: run.changes
        for run in runs
        if any(after.moved for after in run.changes.values())
    }
    errors = {run.adapter: run.float32.gradient_errors for run in runs if run.float32 is not None}
    correct = {run.adapter for run in runs if run.independently_correct}
    agreement: list[CheckResult] = []
    if "gradients" in groups:
        agreement = check_agreement("gradients", "gradients", gradients, correct)
    results = list(agreement)
    if "trajectory" in groups and changes:
        growth = calibration.error_growth if calibration else {}
        apart = largest_agreed_distance(agreement)
        steps, finding = comparable_steps(next(iter(changes.values())), growth, apart)
        moved = {adapter: after[steps].read_moved() for adapter, after in changes.items()}
        results += check_agreement("trajectories", "trajectory", moved, correct, finding)
    if len(errors) > 1:
        results += check_float32_gradients(
            errors, calibration.gradient_errors if calibration else ()
        )
    return results
