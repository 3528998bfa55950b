"""Export of the trained model, and comparison of the file with the model."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from dlb import record
from dlb.execution.models import Stage
from dlb.execution.timing import TimedRun
from dlb.proof.checks.export import prove_export, refuse_export
from dlb.proof.findings import Finding
from dlb.proof.findings.common import FeatureMissing
from dlb.proof.findings.workload import TrainedNotFinite
from dlb.proof.update_batches import as_dtype
from dlb.record import Exported

__all__ = ["export_model"]


def export_model(
    stage: Stage, run: TimedRun, features: Collection[str], *, diverges: bool = False
) -> Exported | None:
    """Export the timed model, prove the file, and keep it with the records.

    Args:
        features: features of the adapter.
        diverges: the proof's trajectory does: a model whose outputs are not finite then cannot be compared.

    Returns:
        None if the adapter cannot export, or if no records are written.

    Raises:
        RecordError: the file cannot be written.
    """
    request, prepared = stage.request, stage.prepared
    if "export" not in features:
        refuse_export(stage.adapter, Finding(cause=FeatureMissing(feature="export")), stage.keep)
        return None
    stage.phase("exporting and verifying")
    exported = stage.scratch / "exported.onnx"
    shape = (run.model.per_worker_batch, *prepared.data.test_inputs.shape[1:])
    inputs = np.resize(prepared.data.test_inputs, shape)
    outputs = run.model.forward(as_dtype(inputs, run.model.dtype)) if diverges else {}
    if not all(np.isfinite(array).all() for array in outputs.values()):
        refuse_export(stage.adapter, Finding(cause=TrainedNotFinite()), stage.keep)
        return None
    prove_export(
        run.model, prepared.canonical, stage.adapter, inputs, exported, stage.keep, stage.rounding
    )
    if request.out is not None and exported.exists():
        return record.keep_model(exported, request.out)
    return None
