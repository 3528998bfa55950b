"""What rounding alone may do, measured on one adapter: the others are seen in that band.

The adapter must be right by itself: what its own steps do wrong is no measure of rounding. So where
the first adapter of a run fails or deviates, the next one that works is calibrated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dlb.execution.float32 import Float32Proof
from dlb.execution.models import Stage, dropped
from dlb.proof import divergence
from dlb.proof.checks.agreement import error_growth
from dlb.proof.checks.float32 import batch_gradients, gradient_errors
from dlb.proof.divergence import Changes
from dlb.proof.findings import Figure
from dlb.proof.tolerances import (
    NORMALISED_UNITS,
    PERTURBED_RUNS,
    PERTURBED_UNITS,
    STEP_SCALE,
)
from dlb.supervision.group import Group
from dlb.workload.shapes import state_names, trained_names

__all__ = ["Calibration", "calibrate"]


@dataclass(frozen=True)
class Calibration:
    """What rounding does to one adapter.

    Attributes:
        error_growth: after so many steps, how far slightly longer steps end from the plain ones.
        gradient_errors: of float64 gradients at perturbed weights, a batch each.
        perturbed: how far float32 trajectories from perturbed weights end from the plain one, a run
            each.
    """

    error_growth: Mapping[int, float]
    gradient_errors: tuple[tuple[Figure, ...], ...]
    perturbed: tuple[tuple[float | None, ...], ...]


def calibrate(
    stage: Stage, group: Group, changes: Mapping[int, Changes], float32: Float32Proof | None
) -> Calibration:
    """Measure an adapter.

    Args:
        group: one worker.
        changes: what its float64 steps changed.
        float32: its float32 proof; None where no group of checks asks for one.
    """
    stage.phase("calibrating")
    several = len(stage.request.environments) > 1
    growth: dict[int, float] = {}
    # Of one adapter, or one step, there is nothing to be compared with.
    if several and len(changes) > 1:
        perturbed_run = stage.follow(group, "float64", step_scale=STEP_SCALE)
        growth = {
            step: error_growth(plain.read_moved(), perturbed.read())
            for (step, plain), perturbed in zip(changes.items(), perturbed_run, strict=True)
        }
    if float32 is None:
        return Calibration(growth, (), ())
    errors = _perturbed_gradients(stage, group) if several else ()
    return Calibration(growth, errors, _perturbed_trajectories(stage, group, float32))


def _perturbed_gradients(stage: Stage, group: Group) -> tuple[tuple[Figure, ...], ...]:
    batches, weights = stage.prepared.update_batches, stage.prepared.reference.weights
    with dropped(stage.build(group, "float64", batches.batch_size)) as model:
        truth = list(batch_gradients(model, batches))
    normalised = state_names(stage.request.workload.model)
    units = NORMALISED_UNITS if normalised else PERTURBED_UNITS
    errors: list[tuple[Figure, ...]] = []
    for seed in range(stage.request.seed, stage.request.seed + PERTURBED_RUNS):
        moved = divergence.perturbed(weights, seed, units)
        with dropped(stage.build(group, "float64", batches.batch_size, moved)) as model:
            errors += map(gradient_errors, batch_gradients(model, batches), truth)
    return tuple(errors)


def _perturbed_trajectories(
    stage: Stage, group: Group, float32: Float32Proof
) -> tuple[tuple[float | None, ...], ...]:
    weights = stage.prepared.reference.weights
    trained = trained_names(stage.request.workload.model)
    rows = []
    for seed in range(stage.request.seed, stage.request.seed + divergence.PERTURBATIONS):
        moved = stage.follow(group, "float32", divergence.perturbed(weights, seed))
        rows.append(divergence.drift(moved, float32.trajectory, float32.exact, trained))
    return tuple(rows)
