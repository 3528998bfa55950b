"""Tests of a model while it trains, between steps and outside of their time."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.execution.models import Stage
from dlb.record import Tested
from dlb.supervision.remote import RemoteModel, RemoteTraining

__all__ = ["PeriodicTests", "accuracy_of"]

Array = npt.NDArray[Any]


class PeriodicTests:
    """Takes the steps of a training, and tests the model every so many steps or seconds of training.

    Attributes:
        found: by number of steps before it, accuracy and loss of each test.
    """

    def __init__(self, stage: Stage, model: RemoteModel) -> None:
        self._model, self._prepared = model, stage.prepared
        self._steps, self._seconds = stage.request.test_steps, stage.request.test_seconds
        self._trained_seconds, self._due = 0.0, self._seconds or 0.0
        self._blocks = stage.blocks
        self.found: dict[int, tuple[float, float]] = {}

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

    def results(self, seconds: Array) -> tuple[Tested, ...]:
        """The tests.

        Args:
            seconds: float64 [steps], of each step with its waiting.
        """
        until = np.cumsum(seconds)
        return tuple(
            Tested(
                step=done,
                seconds=float(until[done - 1]),
                accuracy=accuracy,
                loss=loss if np.isfinite(loss) else None,
            )
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
        logits, labels = self._model.predict(self._prepared.test).logits, self._prepared.test_labels
        self.found[done] = accuracy_of(logits, labels), _loss(logits, labels)


def accuracy_of(logits: Array, labels: Array) -> float:
    """The share of samples whose largest logit is at the label. Logits that are not finite count as wrong.

    Args:
        logits: [..., classes].
        labels: int64 [...].
    """
    correct = np.isfinite(logits).all(axis=-1) & (logits.argmax(-1) == labels)
    return float(correct.mean())


def _loss(logits: Array, labels: Array) -> float:
    """The mean softmax cross-entropy, without smoothing, in float64."""
    with np.errstate(all="ignore"):
        shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
        log_shares = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
        return float(-np.take_along_axis(log_shares, labels[..., None], -1).mean())
