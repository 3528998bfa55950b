"""Checks that need several adapters: agreement in float64."""

from __future__ import annotations

import threading
from collections.abc import Collection

from dlb.execution.adapter import AdapterRun, calibrate_again
from dlb.execution.calibration import Calibration
from dlb.prepared import Prepared
from dlb.proof.certificate import CheckGroup, CheckResult
from dlb.proof.checks.agreement import check_agreement, largest_agreed_distance
from dlb.proof.divergence import comparable_steps
from dlb.request import Reporter, Request

__all__ = ["check_across_adapters", "ensure_calibration", "find_calibration"]


def ensure_calibration(
    request: Request, prepared: Prepared, reporter: Reporter, runs: list[AdapterRun]
) -> None:
    """Calibrate another adapter if the first one failed or deviates.

    The first adapter is calibrated in its own run. Otherwise this takes the next adapter that finished and
    passed its own checks. Nothing is done for a single adapter.
    """
    if len(request.environments) < 2 or find_calibration(request, runs) is not None:
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


def find_calibration(request: Request, runs: list[AdapterRun]) -> Calibration | None:
    """The calibration of the first adapter that has one and passed its own checks; None if none has."""
    by_adapter = {run.adapter: run for run in runs}
    requested = (environment.adapter for environment in request.environments)
    ordered = [by_adapter[adapter] for adapter in requested if adapter in by_adapter]
    return next(
        (
            run.calibration
            for run in ordered
            if run.calibration is not None and run.independently_correct
        ),
        None,
    )


def check_across_adapters(
    runs: list[AdapterRun], groups: Collection[CheckGroup], calibration: Calibration | None
) -> list[CheckResult]:
    """Compare adapters with each other.

    Args:
        runs: finished runs; an adapter without gradients or changes is left out.
        groups: groups of checks that were asked for.
        calibration: None if no adapter could be calibrated.
    """
    gradients = {run.adapter: run.gradients for run in runs if run.gradients}
    # Steps that moved weights by rounding alone are not compared.
    changes = {
        run.adapter: run.changes
        for run in runs
        if any(changes_of_steps.moved for changes_of_steps in run.changes.values())
    }
    correct = {run.adapter for run in runs if run.independently_correct}
    agreement: list[CheckResult] = []
    if "gradients" in groups:
        agreement = check_agreement("gradients", gradients, correct)
    results = list(agreement)
    if "trajectory" in groups and changes:
        growth = calibration.error_growth if calibration else {}
        gradient_distance = largest_agreed_distance(agreement)
        steps, finding = comparable_steps(next(iter(changes.values())), growth, gradient_distance)
        moved_parameters = {
            adapter: changes_of_steps[steps].read_moved()
            for adapter, changes_of_steps in changes.items()
        }
        results += check_agreement("trajectories", moved_parameters, correct, finding)
    return results
