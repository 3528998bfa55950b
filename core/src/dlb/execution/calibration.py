"""The effect of rounding alone, measured on one adapter. Other adapters are compared with it.

The adapter must have passed its own checks: an adapter with wrong steps cannot measure rounding. If the
first adapter of a run fails or deviates, the next one that works is calibrated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dlb.execution.float32 import Float32Proof
from dlb.execution.models import Stage, drop_at_end
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
    """The effect of rounding on one adapter.

    Attributes:
        error_growth: by number of steps, the relative L2 distance between a trajectory with steps longer
            by :data:`STEP_SCALE` and the plain one.
        gradient_errors: errors of float64 gradients at perturbed weights, one entry per batch.
        perturbed: drift of float32 trajectories from perturbed weights, one entry per run.
    """

    error_growth: Mapping[int, float]
    gradient_errors: tuple[tuple[Figure, ...], ...]
    perturbed: tuple[tuple[float | None, ...], ...]


def calibrate(
    stage: Stage, group: Group, changes: Mapping[int, Changes], float32: Float32Proof | None
) -> Calibration:
    """Measure the effect of rounding on an adapter.

    Args:
        group: one worker.
        changes: what the adapter's float64 steps changed, by number of steps.
        float32: the adapter's float32 proof; None if no requested group needs one.
    """
    stage.phase("calibrating")
    has_peers = len(stage.request.environments) > 1
    growth: dict[int, float] = {}
    # Error growth is needed only to compare several steps of several adapters.
    if has_peers and len(changes) > 1:
        perturbed_run = stage.follow(group, "float64", step_scale=STEP_SCALE)
        growth = {
            step: error_growth(plain.read_moved(), perturbed.read())
            for (step, plain), perturbed in zip(changes.items(), perturbed_run, strict=True)
        }
    if float32 is None:
        return Calibration(growth, (), ())
    errors = _perturbed_gradients(stage, group) if has_peers else ()
    return Calibration(growth, errors, _perturbed_trajectories(stage, group, float32))


def _perturbed_gradients(stage: Stage, group: Group) -> tuple[tuple[Figure, ...], ...]:
    batches, weights = stage.prepared.update_batches, stage.prepared.reference.weights
    with drop_at_end(stage.build(group, "float64", batches.batch_size)) as model:
        truth = list(batch_gradients(model, batches))
    normalised = state_names(stage.request.workload.model)
    units = NORMALISED_UNITS if normalised else PERTURBED_UNITS
    errors: list[tuple[Figure, ...]] = []
    for seed in range(stage.request.seed, stage.request.seed + PERTURBED_RUNS):
        perturbed_weights = divergence.perturbed(weights, seed, units)
        with drop_at_end(
            stage.build(group, "float64", batches.batch_size, perturbed_weights)
        ) as model:
            errors += map(gradient_errors, batch_gradients(model, batches), truth)
    return tuple(errors)


def _perturbed_trajectories(
    stage: Stage, group: Group, float32: Float32Proof
) -> tuple[tuple[float | None, ...], ...]:
    weights = stage.prepared.reference.weights
    trained = trained_names(stage.request.workload.model)
    rows = []
    for seed in range(stage.request.seed, stage.request.seed + divergence.PERTURBATIONS):
        perturbed_trajectory = stage.follow(group, "float32", divergence.perturbed(weights, seed))
        rows.append(
            divergence.drift(perturbed_trajectory, float32.trajectory, float32.exact, trained)
        )
    return tuple(rows)
