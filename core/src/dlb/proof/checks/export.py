"""``export``: the outputs of an exported file, compared with those of the model it was exported from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.errors import DlbError, UnsupportedError, WorkerRaised
from dlb.failure import failure_of
from dlb.proof.certificate import CheckResult
from dlb.proof.checks.export_rounding import (
    input_names,
    judge_mixed,
    judge_rounding,
    run_in_numpy,
)
from dlb.proof.checks.exported_weights import check_exported_weights
from dlb.proof.checks.structure import check_structure
from dlb.proof.engine import Check, Keep, infinite_cause, run
from dlb.proof.findings import Finding
from dlb.proof.findings.common import CannotRun
from dlb.proof.findings.workload import TrainedNotFinite
from dlb.proof.rounding import FLOAT32, Rounding
from dlb.proof.update_batches import as_dtype
from dlb.supervision.remote import RemoteModel
from dlb_graph.comparing.distance import figures
from dlb_graph.comparing.tolerances import EXPORT_TOLERANCES, Tensors

__all__ = [
    "check_export",
    "check_is_onnx",
    "prove_export",
    "refuse_export",
    "run_exported",
]

Array = npt.NDArray[Any]


def prove_export(
    model: RemoteModel,
    canonical: Any,
    adapter: str,
    inputs: Array,
    exported: Path,
    keep: Keep,
    rounding: Rounding = FLOAT32,
) -> None:
    """Export the model in its present state, compare the structure, and compare the outputs.

    Args:
        canonical: the canonical graph. It holds other weights.
        inputs: [batch size of one worker, ...].
        exported: where the file is written.
        rounding: the type that a model in float32 computes in.
    """
    try:
        model.export(exported)
        check_is_onnx(exported)
    except (UnsupportedError, WorkerRaised) as error:
        # After this error the worker still runs, so the results of training can be recorded.
        refuse_export(adapter, Finding(cause=CannotRun(failure=failure_of(error))), keep)
        return
    batch = as_dtype(inputs, model.dtype)

    def compare(check: Check) -> CheckResult:
        return check_structure(check, canonical, exported, lambda: model.weights()[0])

    def evaluate(check: Check) -> CheckResult:
        own = model.forward(batch)[model.last]
        if rounding is not FLOAT32:
            weights = model.weights()[0]
            return judge_mixed(check, canonical, weights, exported, batch, own, rounding)
        try:
            logits = run_exported(exported, batch)[0]
        except DlbError as error:
            return check.raised(error)
        result = check_export(check, model.dtype, {"logits": logits}, {"logits": own})
        if result.verdict != "failed" or model.dtype != "float32":
            return result
        weights = model.weights()[0]
        return judge_rounding(check, result, canonical, weights, exported, batch, logits, own)

    def weights(check: Check) -> CheckResult:
        return check_exported_weights(check, model.workload.model, model.weights()[0], exported)

    structure, held, export = _checks(adapter)
    keep(run(structure, compare, errors=(DlbError,)))
    keep(run(held, weights))
    keep(run(export, evaluate))


def refuse_export(adapter: str, reason: Finding, keep: Keep) -> None:
    """Keep every check of an export as not run."""
    for check in _checks(adapter):
        keep(check.not_run(reason))


def _checks(adapter: str) -> tuple[Check, ...]:
    return tuple(Check.of(name, adapter) for name in ("structure", "exported weights", "export"))


def check_export(check: Check, dtype: str, exported: Tensors, own: Tensors) -> CheckResult:
    """Compare outputs of an exported file with those of the model that it was exported from."""
    compared, tolerance = figures(exported, own), EXPORT_TOLERANCES[dtype]
    findings: tuple[Finding, ...] = ()
    if not all(np.isfinite(array).all() for array in own.values()):
        findings = (Finding(cause=TrainedNotFinite(), figure=compared[0]),)
    elif compared[0].relative_l2 is None:
        name = compared[0].tensor
        if cause := infinite_cause(name, exported.get(name), own.get(name)):
            findings = (Finding(cause=cause, figure=compared[0], tolerance=tolerance),)
    return check.result(compared, tolerance, findings)


def check_is_onnx(exported: Path) -> None:
    """Check that a file is an ONNX model.

    Raises:
        UnsupportedError: it cannot be read as one.
    """
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        onnx.load(str(exported), load_external_data=False)
    except (OSError, DecodeError) as error:
        raise UnsupportedError(f"what was exported is no ONNX model: {error}") from None


def run_exported(exported: Path, *inputs: Array) -> list[Array]:
    """Outputs of an exported model, computed by ONNX Runtime, of inputs in the file's order.

    dlb's own evaluator computes those of float64 models, since ONNX Runtime lacks float64 kernels.
    """
    import onnx

    from dlb_graph.truth.runtime import run_model

    loaded = onnx.load(str(exported), load_external_data=False)
    if not any(array.dtype == np.float64 for array in inputs):
        return run_model(exported, dict(zip(input_names(loaded), inputs)))
    return run_in_numpy(loaded, *inputs)
