"""The float32 proof of one adapter: gradients, updates and a trajectory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dlb.execution.models import Stage, drop_at_end
from dlb.proof import divergence
from dlb.proof.checks.float32 import batch_gradients, gradient_errors
from dlb.proof.checks.float32_updates import prove_float32_updates
from dlb.proof.divergence import Changes
from dlb.proof.findings import Figure
from dlb.supervision.group import Group
from dlb.workload.shapes import trained_names

__all__ = ["Float32Proof", "prove_float32"]


@dataclass(frozen=True)
class Float32Proof:
    """Errors of float32 in one adapter.

    Attributes:
        gradient_errors: errors of its float32 gradients against its float64 gradients, by batch.
        exact: the float64 trajectory, after each observed step.
        trajectory: the float32 trajectory, after each observed step.
        drift: relative L2 distance between both, after each observed step; None stands for infinity.
    """

    gradient_errors: tuple[tuple[Figure, ...], ...]
    exact: tuple[Changes, ...]
    trajectory: tuple[Changes, ...]
    drift: tuple[float | None, ...]


def prove_float32(stage: Stage, group: Group, changes: Mapping[int, Changes]) -> Float32Proof:
    """Prove gradients and updates in float32, and follow a trajectory.

    Args:
        group: one worker.
        changes: what float64 steps changed; empty if these have not been run.
    """
    batches, weights = stage.prepared.update_batches, stage.prepared.reference.weights
    stage.phase("proving float32 gradients")
    with drop_at_end(stage.build(group, "float64", batches.batch_size)) as model:
        # Gradients of a large network are memory-mapped files.
        truth = list(batch_gradients(model, batches))
    with drop_at_end(stage.build(group, "float32", batches.batch_size)) as model:
        errors = tuple(map(gradient_errors, batch_gradients(model, batches), truth))
        seed = stage.request.seed
        prove_float32_updates(model, weights, batches, stage.adapter, seed, stage.keep)
    del truth
    stage.phase("following float32")
    exact = list(changes.values()) or stage.follow(group, "float64")
    trajectory = stage.follow(group, "float32")
    trained = trained_names(stage.request.workload.model)
    drift = divergence.drift(trajectory, exact, exact, trained)
    return Float32Proof(errors, tuple(exact), tuple(trajectory), drift)
