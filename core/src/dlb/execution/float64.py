"""The float64 proof of one adapter: layers, gradients, updates, and native dropout."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy.typing as npt

from dlb.execution.dropout import prove_native_dropout
from dlb.execution.models import Stage, drop_at_end
from dlb.execution.steps import prove_clipping, prove_timed_batch
from dlb.proof.certificate import Baseline, CheckGroup, CheckResult, Divergent
from dlb.proof.checks.backward import BACKWARD, check_gradients, own_gradients
from dlb.proof.checks.extremes import prove_extremes
from dlb.proof.checks.float32_layers import layer_checks
from dlb.proof.checks.forward import CANONICAL, prove_layers
from dlb.proof.checks.gradients import prove_slopes
from dlb.proof.checks.layers import ISOLATED
from dlb.proof.checks.updates import DEFINITION, prove_updates
from dlb.proof.checks.weights import GIVEN, check_weights
from dlb.proof.divergence import Changes
from dlb.proof.engine import Check, run
from dlb.proof.findings import Finding
from dlb.proof.findings.common import FeatureMissing
from dlb.proof.rounding import FLOAT32
from dlb.proof.update_batches import as_dtype
from dlb.supervision.group import Group
from dlb.supervision.remote import RemoteModel, scratch_file
from dlb.workload.optimizers import clips

__all__ = ["missing_masks", "prove_model", "prove_steps", "refuse_training"]

Array = npt.NDArray[Any]
#: Checks in training mode. A workload with dropout needs masks for them.
TRAINING_CHECKS: dict[str, tuple[CheckGroup, Baseline]] = {
    "forward float64, training": ("forward", CANONICAL),
    "isolated layers, training": ("layers", ISOLATED),
    "gradients float64": ("gradients", BACKWARD),
    "gradients by differences": ("gradients", Baseline(kind="finite_differences")),
    "isolated layers, extremes": ("layers", ISOLATED),
    "gradients float64, extremes": ("gradients", BACKWARD),
    "forward float64, timed batch": ("forward", CANONICAL),
    "gradients float64, timed batch": ("gradients", BACKWARD),
    "update, timed batch": ("update", DEFINITION),
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
    if clips(request.workload.optimizer):
        checks["clipping"] = ("update", DEFINITION)
    if request.dtype == "float32":
        checks["isolated layers float32"] = ("float32", ISOLATED)
        checks["gradients float32"] = ("float32", BACKWARD)
        checks["update float32"] = ("float32", DEFINITION)
    if len(request.environments) > 1:
        adapters = Baseline(kind="adapters", names=(), float64=True)
        checks |= {"gradients": ("gradients", adapters), "trajectories": ("trajectory", adapters)}
    for check, (group, baseline) in checks.items():
        stage.keep(Check(check, group, stage.adapter, baseline).not_run(reason))
    if stage.rounding is not FLOAT32:
        for rounded in layer_checks(stage.adapter, stage.rounding):
            stage.keep(rounded.not_run(reason))


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
    values: dict[str, Array] = {}
    if groups & {"forward", "layers"}:
        for mode in (False, True) if training else (False,):
            values = prove_layers(model, reference, adapter, mode, keep)
    gradients: dict[str, Array] = {}
    if "gradients" in groups and training:
        gradients = own_gradients(model, reference)
        if not groups & {"forward", "layers"}:
            names = [node.name for node in reference.model.nodes]
            inputs = as_dtype(reference.inputs, "float64")
            values = model.forward(inputs, training=True, layers=names)
        check = Check("gradients float64", "gradients", adapter, BACKWARD)
        keep(run(check, lambda check: check_gradients(check, model, reference, values, gradients)))
        prove_slopes(gradients, reference, adapter, stage.request.seed, keep)
    if groups & {"layers", "gradients"} and training:
        stage.phase("proving extremes in float64")
        prove_extremes(model, stage.prepared.extremes, adapter, groups, keep)
    return model, gradients


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
    if clips(request.workload.optimizer) and "update" in request.groups:
        prove_clipping(stage, group)
    if request.groups & {"forward", "gradients", "update"}:
        stage.phase("proving the timed batch")
        prove_timed_batch(stage, group)
    return changes, diverged


def _prove_trajectory(stage: Stage, group: Group) -> tuple[Mapping[int, Changes], Divergent | None]:
    stage.phase("proving updates")
    request, prepared = stage.request, stage.prepared
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
