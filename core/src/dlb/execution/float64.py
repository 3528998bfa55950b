"""The float64 proof of one adapter: layers, gradients, updates, and native dropout."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy.typing as npt

from dlb.execution.models import Stage, drop_at_end
from dlb.proof.certificate import Baseline, CheckGroup, CheckResult
from dlb.proof.checks.dropout import prove_dropout
from dlb.proof.checks.forward import CANONICAL, prove_layers
from dlb.proof.checks.gradients import prove_gradients
from dlb.proof.checks.layers import ISOLATED
from dlb.proof.checks.updates import DEFINITION, prove_updates
from dlb.proof.checks.weights import GIVEN, check_weights
from dlb.proof.divergence import Changes
from dlb.proof.engine import Check, run
from dlb.proof.findings import Finding
from dlb.proof.findings.common import FeatureMissing
from dlb.supervision.group import Group
from dlb.supervision.remote import RemoteModel, scratch_file

__all__ = ["missing_masks", "prove_model", "prove_steps", "refuse_training"]

Array = npt.NDArray[Any]
#: Checks in training mode. A workload with dropout needs masks for them.
TRAINING_CHECKS: dict[str, tuple[CheckGroup, Baseline]] = {
    "forward float64, training": ("forward", CANONICAL),
    "isolated layers, training": ("layers", ISOLATED),
    "gradients by differences": ("gradients", Baseline(kind="finite_differences")),
    "update": ("update", DEFINITION),
    "trajectory": ("trajectory", DEFINITION),
}


def missing_masks(stage: Stage, features: Collection[str]) -> Finding | None:
    """Why checks in training mode cannot be run; None if they can.

    They cannot if the workload has dropout and the adapter does not accept masks.
    """
    masks = stage.prepared.reference.masks
    if not masks or "masks" in features:
        return None
    return Finding(cause=FeatureMissing(feature="masks", because=tuple(masks)))


def refuse_training(stage: Stage, reason: Finding) -> None:
    """Keep each check in training mode as not run."""
    request = stage.request
    checks = dict(TRAINING_CHECKS)
    if request.dtype == "float32":
        checks["update float32"] = ("float32", DEFINITION)
    if len(request.environments) > 1:
        adapters = Baseline(kind="adapters", names=(), float64=True)
        checks |= {"gradients": ("gradients", adapters), "trajectories": ("trajectory", adapters)}
        if request.dtype == "float32":
            checks["gradients float32"] = ("float32", Baseline(kind="own_float64"))
    for check, (group, baseline) in checks.items():
        stage.keep(Check(check, group, stage.adapter, baseline).not_run(reason))


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
    adapter, groups = stage.adapter, stage.request.groups
    reference, keep = stage.prepared.reference, stage.keep

    def weights(check: Check) -> CheckResult:
        return check_weights(adapter, "float64", model.weights()[0], reference.weights)

    if "weights" in groups:
        keep(run(Check("weights float64", "weights", adapter, GIVEN), weights))
    if groups & {"forward", "layers"}:
        for mode in (False, True) if training else (False,):
            prove_layers(model, reference, adapter, mode, keep)
    if "gradients" not in groups or not training:
        return model, {}
    return model, prove_gradients(model, reference, adapter, stage.request.seed, keep)


def prove_steps(stage: Stage, group: Group, *, training: bool) -> Mapping[int, Changes]:
    """Prove native dropout and updates in one worker.

    Returns:
        what float64 steps changed, by number of steps.
    """
    request, prepared = stage.request, stage.prepared
    if prepared.reference.masks and "forward" in request.groups:
        stage.phase("proving dropout")
        batch, weights = len(prepared.reference.inputs), prepared.reference.weights
        with drop_at_end(stage.build_plain(group, "float64", batch, weights)) as model:
            prove_dropout(model, request.workload.model, stage.adapter, request.seed, stage.keep)
    if not training or not request.groups & {"update", "trajectory"}:
        return {}
    stage.phase("proving updates")
    batches = prepared.update_batches
    with drop_at_end(stage.build(group, "float64", batches.batch_size)) as model:
        return prove_updates(
            model,
            prepared.reference,
            batches,
            stage.adapter,
            input_mode=request.input_mode,
            groups=request.groups,
            keep=stage.keep,
            folder=scratch_file(group, ""),
        )
