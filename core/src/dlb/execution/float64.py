"""The float64 proof of one adapter: layers, gradients, updates, and native dropout."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy.typing as npt

from dlb.execution.dropout import prove_native_dropout
from dlb.execution.models import Stage
from dlb.execution.steps import prove_clipping, prove_timed_batch
from dlb.proof.certificate import Divergent
from dlb.proof.check_table import BUILT, Ability
from dlb.proof.checks.built import BuiltSubject
from dlb.proof.checks.extremes import prove_extremes
from dlb.proof.checks.updates import prove_updates
from dlb.proof.divergence import Changes
from dlb.proof.engine import Check, walk
from dlb.proof.findings import Finding
from dlb.proof.findings.common import FeatureMissing
from dlb.proof.rounding import FLOAT32
from dlb.supervision.group import Group
from dlb.supervision.remote import RemoteModel, scratch_file

__all__ = ["missing_masks", "prove_model", "prove_steps", "refuse_training"]

Array = npt.NDArray[Any]


def missing_masks(stage: Stage, features: Collection[str]) -> Finding | None:
    """Why checks in training mode cannot be run; None if they can.

    They cannot if the workload has dropout and the adapter does not accept masks.
    """
    masks = stage.prepared.references.ordinary.masks
    if not masks or "masks" in features:
        return None
    return Finding(cause=FeatureMissing(feature="masks", because=tuple(masks)))


def refuse_training(stage: Stage, reason: Finding) -> None:
    """Keep each check in training mode as not run."""
    request = stage.request
    abilities: dict[Ability, bool] = {
        "training": True,
        "clipping": bool(request.workload.optimizer.clipping),
        "float32": request.dtype == "float32",
        "bfloat16": stage.rounding is not FLOAT32,
        "peers": len(request.environments) > 1,
    }
    for kind in BUILT.values():
        if "training" in kind.needs and all(abilities.get(need) for need in kind.needs):
            stage.keep(Check.of(kind, stage.adapter).not_run(reason))


def prove_model(
    stage: Stage, group: Group, *, training: bool
) -> tuple[RemoteModel, Mapping[str, Array]]:
    """Build a model in float64, and prove its weights, layers and gradients.

    Args:
        training: whether checks in training mode can be run.

    Returns:
        the model, not dropped, and its gradients; no gradients if that group was not asked for.
    """
    stage.phase("proving in float64")
    model = stage.build(group, "float64", stage.request.batch_size)
    groups, reference = stage.request.groups, stage.prepared.references.ordinary
    subject = BuiltSubject(
        model, reference, stage.adapter, training=training, seed=stage.request.seed
    )
    for result in walk(BUILT, subject, groups=groups):
        stage.keep(result)
    if groups & {"layers", "gradients"} and training:
        stage.phase("proving extremes in float64")
        cases, batch = stage.prepared.references.extremes, stage.request.batch_size
        with stage.on_smaller_maps(group, "float64", batch, model) as own:
            prove_extremes(own, cases, stage.adapter, groups, stage.keep, *stage.maps)
    return model, subject.gradients if "gradients" in groups and training else {}


def prove_steps(
    stage: Stage, group: Group, *, training: bool
) -> tuple[Mapping[int, Changes], Divergent | None]:
    """Prove native dropout and updates in one worker.

    Returns:
        what float64 steps changed, by number of steps, and where the trajectory diverges, if it does.
    """
    request = stage.request
    prove_native_dropout(stage, group, "float64")
    if not training:
        return {}, None
    changes: Mapping[int, Changes] = {}
    diverged = None
    if request.groups & {"update", "trajectory"}:
        changes, diverged = _prove_trajectory(stage, group)
    if request.workload.optimizer.clipping and "update" in request.groups:
        prove_clipping(stage, group)
    if request.groups & {"forward", "gradients", "update"}:
        stage.phase("proving the timed batch")
        prove_timed_batch(stage, group)
    return changes, diverged


def _prove_trajectory(stage: Stage, group: Group) -> tuple[Mapping[int, Changes], Divergent | None]:
    stage.phase("proving updates")
    request, prepared = stage.request, stage.prepared
    batches = prepared.update_batches
    with stage.on_smaller_maps(group, "float64", batches.batch_size) as model:
        return prove_updates(
            model,
            prepared.references.first_update,
            batches,
            stage.adapter,
            input_mode=request.input,
            groups=request.groups,
            keep=stage.keep,
            folder=scratch_file(group, ""),
            notes=stage.maps,
        )
