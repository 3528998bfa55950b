"""The float32 proof of one adapter: layers, gradients, updates and a trajectory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dlb.execution.dropout import prove_native_dropout
from dlb.execution.models import Stage, drop_at_end
from dlb.execution.steps import smaller_batch
from dlb.proof import divergence
from dlb.proof.checks.float32_layers import Float32Errors
from dlb.proof.checks.float32_updates import prove_float32_updates
from dlb.proof.divergence import Changes
from dlb.proof.rounding import FLOAT32
from dlb.supervision.group import Group
from dlb.supervision.remote import RemoteModel
from dlb_graph.workload.shapes import trained_names

__all__ = ["Float32Proof", "prove_float32"]

#: About the root of the largest number in float32.
LARGEST = 1e15


@dataclass(frozen=True)
class Float32Proof:
    """Trajectories of one adapter.

    Attributes:
        exact: the float64 trajectory, after each observed step.
        trajectory: the float32 trajectory, after each observed step.
        drift: relative L2 distance between both, after each observed step; None stands for infinity.
    """

    exact: tuple[Changes, ...]
    trajectory: tuple[Changes, ...]
    drift: tuple[float | None, ...]


def prove_float32(stage: Stage, group: Group, changes: Mapping[int, Changes]) -> Float32Proof:
    """Prove layers, gradients, updates and dropout in float32, and follow a trajectory.

    Layers and gradients are compared before the first step and after the last one: a kernel that is chosen
    after some calls, or a parameter that is trained and not reported, shows only then.

    Args:
        group: one worker.
        changes: what float64 steps changed; empty if these have not been run.
    """
    prepared = stage.prepared
    batches, weights = prepared.update_batches, prepared.references.ordinary.weights
    errors = Float32Errors(prepared.references.ordinary.model)
    stage.phase("proving float32 layers and gradients")
    with drop_at_end(stage.build(group, "float32", batches.batch_size)) as model:
        errors.collect(model, prepared.references.small_references, weights)
        with stage.on_smaller_maps(group, "float32", batches.batch_size, model) as own:
            large = prepared.references.extremes.get("large")
            if large is not None and not errors.missing:
                own.load_weights(large.weights)
                errors.collect(own, (large,), large.weights, backward=False)
                own.load_weights(weights)
            prove_float32_updates(
                own,
                prepared.references.first_update,
                batches,
                stage.adapter,
                stage.request.seed,
                stage.keep,
                *stage.maps,
            )
    _collect_timed_batch(stage, group, errors, mixed=False)
    if stage.rounding is not FLOAT32:
        _prove_rounding(stage, group)
    stage.phase("following float32")
    exact = list(changes.values()) or stage.follow(group, "float64")

    def compare_again(trained: RemoteModel) -> None:
        own = trained.weights()[0]
        whole = all(name in own and own[name].shape == weights[name].shape for name in weights)
        if whole and not errors.missing and _is_moderate(exact[-1]):
            errors.collect(trained, (prepared.references.first_update,), own)

    trajectory = stage.follow(group, "float32", at_end=compare_again)
    errors.keep(stage.adapter, stage.keep)
    prove_native_dropout(stage, group, "float32")
    names = trained_names(stage.request.workload.model)
    drift = divergence.drift(trajectory, exact, exact, names)
    return Float32Proof(tuple(exact), tuple(trajectory), drift)


def _prove_rounding(stage: Stage, group: Group) -> None:
    """Prove layers and gradients in the precision of the timed model, which rounds more than float32."""
    prepared, rounding = stage.prepared, stage.rounding
    stage.phase(f"proving {rounding.name} layers and gradients")
    errors = Float32Errors(prepared.references.ordinary.model, rounding)
    batch = prepared.update_batches.batch_size
    with drop_at_end(stage.build(group, "float32", batch, mixed=True)) as model:
        errors.collect(
            model, prepared.references.small_references, prepared.references.ordinary.weights
        )
    _collect_timed_batch(stage, group, errors, mixed=True)
    errors.keep(stage.adapter, stage.keep)


def _collect_timed_batch(stage: Stage, group: Group, errors: Float32Errors, *, mixed: bool) -> None:
    """Compare layers and gradients at the size that is timed: a kernel may be wrong for that size alone.

    A step that takes its batch in parts computes at their size.
    """
    reference = stage.prepared.references.timed
    samples, small = len(reference.inputs), stage.prepared.update_batches.batch_size
    if errors.missing or samples <= small:
        return
    errors.notes = smaller_batch(stage)
    # Rounding of a sum grows with the root of its length. That of bfloat16 is in what is added.
    growth = math.sqrt(samples / small) if errors.rounding is FLOAT32 else 1.0
    parts = stage.request.workload.optimizer.accumulate
    with drop_at_end(stage.build(group, "float32", samples, mixed=mixed)) as model:
        errors.collect(model, (reference,), reference.weights, growth=growth)
        if parts > 1 and not errors.missing:
            part = reference.first(samples // parts)
            errors.collect(model, (part,), reference.weights, growth=growth)


def _is_moderate(changes: Changes) -> bool:
    """Whether float32 holds the squares of what float64 steps changed; a diverging trajectory's overflow."""
    return all(bool((np.abs(array) < LARGEST).all()) for array in changes.read().values())
