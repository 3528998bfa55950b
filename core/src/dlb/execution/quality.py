"""Losses of the trained model and its accuracy on the test split."""

from __future__ import annotations

import math

import numpy as np

from dlb.execution.models import Stage
from dlb.execution.timing import TimedRun
from dlb.record import Quality

__all__ = ["test_model"]


def test_model(stage: Stage, run: TimedRun) -> Quality:
    """Losses of training, and the accuracy on the test split. Logits that are not finite count as wrong."""
    stage.phase("testing")
    prepared = stage.prepared
    logits = run.model.predict(prepared.test)
    correct = np.isfinite(logits).all(axis=-1) & (logits.argmax(-1) == prepared.test_labels)
    return Quality(
        losses=tuple(float(loss) if math.isfinite(loss) else None for loss in run.losses),
        test_accuracy=float(correct.mean()),
        test_samples=len(prepared.test_labels),
    )
