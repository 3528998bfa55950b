"""Losses of the trained model, and its accuracy and loss on the test split."""

from __future__ import annotations

import math
import random

from dlb.errors import DlbError
from dlb.execution.models import Stage
from dlb.execution.periodic_tests import score
from dlb.execution.timing import TimedRun
from dlb.prepared import timed_batch_in_numpy
from dlb.proof.certificate import CheckResult
from dlb.proof.checks.tested import TESTED_SAMPLES, check_tests
from dlb.proof.engine import Check
from dlb.proof.engine import run as run_check
from dlb.proof.findings import Finding
from dlb.proof.findings.workload import TrainedNotFinite
from dlb.record import Quality
from dlb_worker.arrays import map_arrays

__all__ = ["test_model"]


def test_model(stage: Stage, run: TimedRun, *, finite: bool) -> Quality:
    """Losses of training, and accuracy and loss on the test split, whose logits are audited.

    Args:
        finite: whether the weights are numbers.
    """
    stage.phase("testing")
    prepared = stage.prepared
    predicted = run.periodic.test_at_end(stage.request.steps)
    if "audit" in stage.request.groups:
        check = Check.of("audit, test", stage.adapter)
        if finite:
            stage.keep(run_check(check, lambda check: _audit_tests(stage, check, run), (DlbError,)))
        else:
            stage.keep(check.not_run(Finding(cause=TrainedNotFinite())))
    accuracy, test_loss = score(
        predicted.logits, prepared.data.test_labels, stage.request.workload.loss
    )
    return Quality(
        losses=tuple(float(loss) if math.isfinite(loss) else None for loss in run.losses),
        test_accuracy=accuracy,
        test_loss=test_loss,
        test_samples=len(prepared.data.test_labels),
        test_seconds=predicted.seconds,
        tests=run.tests,
    )


def _audit_tests(stage: Stage, check: Check, run: TimedRun) -> CheckResult:
    prepared = stage.prepared
    return check_tests(
        check,
        prepared.canonical,
        map_arrays(prepared.data.test)["inputs"],
        run.periodic.drawn,
        timed_batch_in_numpy(stage.request.workload.model, TESTED_SAMPLES),
        random.SystemRandom(),
        stage.rounding,
    )
