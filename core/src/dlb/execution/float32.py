"""Proving float32: gradients and updates of a model built for it, and where its steps lead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dlb.execution.models import Stage, dropped
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
    """What float32 does to one adapter.

    Attributes:
        gradient_errors: of a few batches, to its own gradients in float64.
        exact: the float64 trajectory; trajectory: the float32 one, after each observed step.
        drift: how far the latter is from the former.
    """

    gradient_errors: tuple[tuple[Figure, ...], ...]
    exact: tuple[Changes, ...]
    trajectory: tuple[Changes, ...]
    drift: tuple[float | None, ...]


def prove_float32(stage: Stage, group: Group, changes: Mapping[int, Changes]) -> Float32Proof:
    """Gradients, updates and a trajectory in float32, of models built for it in one worker.

    Args:
        changes: what float64 steps changed, where that is known already.
    """
    batches, weights = stage.prepared.update_batches, stage.prepared.reference.weights
    stage.phase("proving float32 gradients")
    with dropped(stage.build(group, "float64", batches.batch_size)) as model:
        # Those of a large network lie on the disk.
        truth = list(batch_gradients(model, batches))
    with dropped(stage.build(group, "float32", batches.batch_size)) as model:
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
