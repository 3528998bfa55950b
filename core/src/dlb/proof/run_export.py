"""The exported model: its structure, and what it computes, against the timed model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.errors import DlbError, UnsupportedError, WorkerRaised
from dlb.failure import failure_of
from dlb.proof.certificate import Baseline, CheckResult, not_run
from dlb.proof.checks.exports import STRUCTURE, check_export, check_structure
from dlb.proof.findings import Finding
from dlb.proof.findings.common import CannotRun
from dlb.proof.run_float64 import Keep, stopwatch
from dlb.proof.update_batches import as_dtype
from dlb.supervision.remote import RemoteModel

__all__ = ["EXPORTED", "prove_export", "refuse_export"]

Array = npt.NDArray[Any]
EXPORTED = Baseline(kind="onnx_runtime")


def prove_export(
    model: RemoteModel, canonical: Any, adapter: str, inputs: Array, exported: Path, keep: Keep
) -> None:
    """Export the object as it now is, compare its structure, and run it against the object.

    Args:
        canonical: the canonical graph; only its structure counts.
        inputs: [batch_size of one worker, ...].
    """
    try:
        model.export(exported)
        check_exported(exported)
    except (UnsupportedError, WorkerRaised) as error:
        # A worker that raised is still there, and what it trained is still worth recording.
        refuse_export(adapter, Finding(cause=CannotRun(failure=failure_of(error))), keep)
        return
    batch = as_dtype(inputs, model.dtype)

    def compare() -> CheckResult:
        try:
            return check_structure(adapter, canonical, exported, lambda: model.weights()[0])
        except DlbError as error:
            reason = Finding(cause=CannotRun(failure=failure_of(error)))
            return not_run("structure", "structure", adapter, STRUCTURE, reason)

    def run() -> CheckResult:
        own = model.forward(batch)[model.last]
        try:
            logits = run_exported(exported, batch)
        except DlbError as error:
            reason = Finding(cause=CannotRun(failure=failure_of(error)))
            return not_run("export", "export", adapter, EXPORTED, reason)
        return check_export(adapter, model.dtype, logits, own)

    keep(stopwatch(compare))
    keep(stopwatch(run))


def refuse_export(adapter: str, reason: Finding, keep: Keep) -> None:
    """Neither check of an export can be run."""
    keep(not_run("structure", "structure", adapter, STRUCTURE, reason))
    keep(not_run("export", "export", adapter, EXPORTED, reason))


def check_exported(exported: Path) -> None:
    """Raises UnsupportedError unless the file can be read as an ONNX model."""
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        onnx.load(str(exported), load_external_data=False)
    except (OSError, DecodeError) as error:
        raise UnsupportedError(f"what was exported is no ONNX model: {error}") from None


def run_exported(exported: Path, inputs: Array) -> Array:
    """Logits of an exported model by ONNX Runtime; by the neutral evaluator where it has no
    float64 kernels."""
    import onnx

    from dlb.graph.evaluate import evaluate
    from dlb.graph.runtime import run_model

    loaded = onnx.load(str(exported), load_external_data=False)
    held = {tensor.name for tensor in loaded.graph.initializer}
    name = next(value.name for value in loaded.graph.input if value.name not in held)
    feeds = {name: inputs}
    if inputs.dtype == np.float64:
        return next(iter(evaluate(loaded, feeds).values()))
    logits: Array = run_model(exported, feeds)[0]
    return logits
