"""The effect of rounding alone, measured on one adapter. Other adapters are compared with it.

The adapter must have passed its own checks: an adapter with wrong steps cannot measure rounding. If the
first adapter of a run fails or deviates, the next one that works is calibrated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dlb.execution.float32 import Float32Proof
from dlb.execution.models import Stage
from dlb.proof import divergence
from dlb.proof.divergence import Changes, error_growth
from dlb.supervision.group import Group
from dlb_graph.comparing.tolerances import STEP_SCALE
from dlb_graph.workload.shapes import trained_names

__all__ = ["Calibration", "calibrate"]


@dataclass(frozen=True)
class Calibration:
    """The effect of rounding on one adapter.

    Attributes:
        error_growth: by number of steps, the relative L2 distance between a trajectory with steps longer
            by :data:`STEP_SCALE` and the plain one.
        perturbed: drift of float32 trajectories from perturbed weights, one entry per run.
    """

    error_growth: Mapping[int, float]
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
    perturbed = () if float32 is None else _perturbed_trajectories(stage, group, float32)
    return Calibration(growth, perturbed)


def _perturbed_trajectories(
    stage: Stage, group: Group, float32: Float32Proof
) -> tuple[tuple[float | None, ...], ...]:
    weights = stage.prepared.references.ordinary.weights
    trained = trained_names(stage.request.workload.model)
    rows = []
    for seed in range(stage.request.seed, stage.request.seed + divergence.PERTURBATIONS):
        perturbed_trajectory = stage.follow(group, "float32", divergence.perturbed(weights, seed))
        rows.append(
            divergence.drift(perturbed_trajectory, float32.trajectory, float32.exact, trained)
        )
    return tuple(rows)
