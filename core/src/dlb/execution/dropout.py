"""The masks that dropouts of one adapter draw themselves, in both passes."""

from __future__ import annotations

from dlb.execution.models import Stage, drop_at_end
from dlb.proof.checks.dropout import prove_dropout
from dlb.proof.checks.dropout_gradients import prove_dropout_gradients
from dlb.proof.update_batches import as_dtype
from dlb.supervision.group import Group

__all__ = ["prove_native_dropout"]


def prove_native_dropout(stage: Stage, group: Group, dtype: str) -> None:
    """Prove the dropouts of a model without given masks; nothing is done if there are none.

    Args:
        group: one worker.
        dtype: ``float64`` or ``float32``.
    """
    request, reference = stage.request, stage.prepared.references.ordinary
    groups = {"forward", "gradients"} if dtype == "float64" else {"float32"}
    if not reference.masks or not request.groups & groups:
        return
    stage.phase(f"proving dropout in {dtype}")
    batch, described = len(reference.inputs), request.workload.model
    with drop_at_end(stage.build_plain(group, dtype, batch, reference.weights)) as model:
        if request.groups & {"forward", "float32"}:
            prove_dropout(model, described, stage.adapter, request.seed, stage.keep)
        if request.groups & {"gradients", "float32"}:
            arrays = reference.inputs, reference.labels
            inputs, labels = (as_dtype(array, dtype) for array in arrays)
            prove_dropout_gradients(model, inputs, labels, stage.adapter, stage.keep)
