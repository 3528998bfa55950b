"""Losses of the trained model, and its accuracy and loss on the test split."""

from __future__ import annotations

import math

from dlb.execution.models import Stage
from dlb.execution.periodic_tests import score
from dlb.execution.timing import TimedRun
from dlb.record import Quality

__all__ = ["test_model"]


def test_model(stage: Stage, run: TimedRun) -> Quality:
    """Losses of training, and accuracy and loss on the test split."""
    stage.phase("testing")
    prepared = stage.prepared
    predicted = run.model.predict(prepared.test)
    accuracy, test_loss = score(predicted.logits, prepared.test_labels, stage.request.workload.loss)
    return Quality(
        losses=tuple(float(loss) if math.isfinite(loss) else None for loss in run.losses),
        test_accuracy=accuracy,
        test_loss=test_loss,
        test_samples=len(prepared.test_labels),
        test_seconds=predicted.seconds,
        tests=run.tests,
    )
