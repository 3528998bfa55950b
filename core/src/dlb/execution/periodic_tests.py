"""Tests of a model while it trains, between steps and outside of their time."""

from __future__ import annotations

import math
import random
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb import record
from dlb.execution.models import Stage
from dlb.proof.checks.tested import DrawnTest
from dlb.supervision.remote import Predicted, RemoteModel, RemoteTraining
from dlb_graph.workload import Loss, SoftmaxCrossEntropy

__all__ = ["PeriodicTests", "score"]

Array = npt.NDArray[Any]
#: Numbers of outputs whose loss is computed at once: those of all samples may take gigabytes.
_NUMBERS = 1 << 22


class PeriodicTests:
    """Takes the steps of a training, and tests the model every so many steps or seconds of training.

    Attributes:
        found: by number of steps before it, accuracy and loss of each test.
        changed: by number of steps before it, weights and optimizer state that a test changed.
        drawn: one of the tests, drawn at random, and the one at the end, for the audit.
    """

    def __init__(self, stage: Stage, model: RemoteModel) -> None:
        self._model, self._prepared = model, stage.prepared
        self._loss = stage.request.workload.loss
        self._steps, self._seconds = stage.request.test_steps, stage.request.test_seconds
        self._trained_seconds, self._due = 0.0, self._seconds or 0.0
        self._blocks = stage.blocks
        self.found: dict[int, tuple[float | None, float | None]] = {}
        self.changed: dict[int, tuple[str, ...]] = {}
        self.drawn: list[DrawnTest] = []
        audits = "audit" in stage.request.groups and stage.request.trial_draws is None
        self._generator = random.SystemRandom() if audits else None

    def advance(self, training: RemoteTraining, to: int) -> None:
        """Take steps until ``to`` of them are done, with tests between them."""
        while training.done < to:
            stop = min(to, self._next(training.done), self._blocks.next(training.done) or to)
            began = time.monotonic()
            training.run(stop - training.done)
            self._trained_seconds += time.monotonic() - began
            self.look(training.done)

    def look(self, done: int) -> None:
        """Test the model if a test is due after so many steps, and pause where a block ends."""
        if done in self._blocks.ends:
            self._blocks.pause()
        if self._steps is not None and done % self._steps == 0:
            self._test(done)
        elif self._seconds is not None and self._trained_seconds >= self._due:
            self._test(done)
            while self._due <= self._trained_seconds:
                self._due += self._seconds

    def results(self, seconds: Array) -> tuple[record.Tested, ...]:
        """The tests.

        Args:
            seconds: float64 [steps], of each step with its waiting.
        """
        until = np.cumsum(seconds)
        return tuple(
            record.Tested(step=done, seconds=float(until[done - 1]), accuracy=accuracy, loss=loss)
            for done, (accuracy, loss) in self.found.items()
        )

    def _next(self, done: int) -> int:
        """After how many steps a test may be due."""
        if self._steps is not None:
            return done - done % self._steps + self._steps
        if self._seconds is None:
            return done + (1 << 62)
        if not done:
            return 1
        rate = done / max(self._trained_seconds, 1e-9)
        return done + max(1, int(rate * (self._due - self._trained_seconds)))

    def _test(self, done: int) -> None:
        # Each of them ends up as the one that is drawn with the same probability.
        drawn = self._generator is not None and not self._generator.randrange(len(self.found) + 1)
        predicted, tested = self._predict(done, drawn)
        self.found[done] = score(predicted.logits, self._prepared.data.test_labels, self._loss)
        self.drawn = tested or self.drawn
        if predicted.changed:
            self.changed[done] = predicted.changed

    def test_at_end(self, steps: int) -> Predicted:
        """Test the trained model."""
        predicted, tested = self._predict(steps, self._generator is not None)
        self.drawn += tested
        return predicted

    def _predict(self, done: int, drawn: bool) -> tuple[Predicted, list[DrawnTest]]:
        weights = self._model.weights()[0] if drawn else {}
        predicted = self._model.predict(self._prepared.data.test)
        batch = self._model.per_worker_batch
        return predicted, [DrawnTest(done, weights, predicted.logits, batch)] if drawn else []


def score(outputs: Array, targets: Array, loss: Loss) -> tuple[float | None, float | None]:
    """The accuracy of predictions and their mean loss, in float64, without smoothing and class weights.

    Both are those of the labels that count, where one is ignored.

    The accuracy is None for a loss of no decisions, the loss if it is not finite.

    Args:
        outputs: [samples, ..., numbers].
        targets: int64 [samples, ...], or targets of the outputs' shape.
    """
    share = 1.0
    if isinstance(loss, SoftmaxCrossEntropy):
        share = (
            float((targets != loss.ignore_index).mean()) if loss.ignore_index is not None else 1.0
        )
        loss = SoftmaxCrossEntropy(ignore_index=loss.ignore_index)
    at_once, total = max(1, _NUMBERS * len(outputs) // outputs.size), 0.0
    for first in range(0, len(outputs), at_once):
        part = outputs[first : first + at_once].astype(np.float64)
        with np.errstate(all="ignore"):
            mean, _ = loss.value_and_gradient(part, targets[first : first + at_once])
        total += mean * len(part)
    mean = total / len(outputs) / share if share else math.nan
    return loss.accuracy(outputs, targets), mean if np.isfinite(mean) else None
