"""Causes that the audit of a timed run finds."""

from __future__ import annotations

from typing import Literal

from dlb_graph.comparing.causes import Cause

__all__ = [
    "BatchDiffers",
    "ClockDiffers",
    "LogitsAudited",
    "LogitsDiffer",
    "LossDiffers",
    "MasksUnknown",
    "OtherWhenWatched",
    "StateChanged",
    "StepDiffers",
    "StepsAudited",
    "TimeUntold",
    "TooFewJudged",
    "WorkPending",
    "WorkersApart",
]


class StepsAudited(Cause, frozen=True, kw_only=True):
    """How much of a run was audited: a fact, not a fault.

    Attributes:
        steps: steps of the run.
        audited: steps whose batch was compared.
        judged: of these, steps whose changes were compared with the definition, and not hidden by rounding.
        replayed: first steps whose losses were compared with a replay.
        rare: a fault in one of so many steps, at random, ...
        chance: ... is found with this probability.
        joined: audited steps before which weights and state were compared with those after the step before
            them; 0 if the worker cannot.
    """

    steps: int
    audited: int
    judged: int
    replayed: int
    rare: int
    chance: float
    joined: int = 0


class TooFewJudged(Cause, frozen=True, kw_only=True):
    """Less than half of the audited steps were judged: there was no time, or rounding hides what they change.

    Attributes:
        judged: steps that were.
        audited: all of them.
    """

    judged: int
    audited: int


class BatchDiffers(Cause, frozen=True, kw_only=True):
    """The batch that a step got is not the one that the order says.

    Attributes:
        step: the first such step, from 0; ``steps``: how many audited steps are so.
        part: inputs or labels.
        samples: how many samples of the batch differ; null if its shape differs.
        found, expected: the shapes.
        worker: rank of the worker.
    """

    locates = True

    step: int
    steps: int
    part: Literal["inputs", "labels"]
    samples: int | None
    found: tuple[int, ...]
    expected: tuple[int, ...]
    worker: int = 0


class StepDiffers(Cause, frozen=True, kw_only=True):
    """What a timed step changed is not what the workload's definition changes on its batch.

    Attributes:
        step: the first such step, from 0; ``steps``: how many judged steps are so.
        nothing: whether it changed nothing at all.
    """

    locates = True

    step: int
    steps: int
    nothing: bool = False


class StateChanged(Cause, frozen=True, kw_only=True):
    """Weights or optimizer state changed between two steps.

    Attributes:
        step: the first step, from 0, that began otherwise than the one before it ended; ``steps``: how many
            of those that were looked at are so.
        tensors: what changed there; the optimizer's state as ``optimizer/NAME``.
        tested: whether a test of the model changed it.
    """

    locates = True

    step: int
    steps: int
    tensors: tuple[str, ...]
    tested: bool = False


class LossDiffers(Cause, frozen=True, kw_only=True):
    """The loss that a timed step told is not the loss of its batch.

    Attributes:
        step: the first such step, from 0; ``steps``: how many of the compared ones are so.
        told, expected: the losses; null stands for one that is not finite.
        replayed: whether the expected loss is that of a replay of the first steps.
    """

    locates = True

    step: int
    steps: int
    told: float | None
    expected: float | None
    replayed: bool = False


class LogitsAudited(Cause, frozen=True, kw_only=True):
    """How much of the tests of a run was audited: a fact, not a fault.

    Attributes:
        tests: tests of which samples were compared.
        samples: of all of them.
        batches: that these were in.
    """

    tests: int
    samples: int
    batches: int


class LogitsDiffer(Cause, frozen=True, kw_only=True):
    """Logits of a test are not those of the model as it was then.

    Attributes:
        step: how many steps it had taken.
        batch: the first such batch of the test, from 0; ``batches``: how many drawn batches are so.
        samples: how many of the drawn samples are so; ``compared``: how many were drawn.
    """

    locates = True

    step: int
    batch: int
    batches: int
    samples: int
    compared: int


class WorkersApart(Cause, frozen=True, kw_only=True):
    """After a timed step, or at the end, workers hold other weights than worker 0.

    Attributes:
        step: the first such step, from 0.
    """

    locates = True

    step: int
    tensors: tuple[str, ...]


class ClockDiffers(Cause, frozen=True, kw_only=True):
    """A worker's clock runs at another rate than dlb's.

    Attributes:
        told: seconds of the training by the worker's clock.
        seen: by dlb's.
    """

    locates = True

    told: float
    seen: float


class TimeUntold(Cause, frozen=True, kw_only=True):
    """The adapter's clock leaves out a part of a step.

    Attributes:
        told: median seconds of a step that the clock told.
        untold: median seconds more until the step's loss was there.
    """

    locates = True

    told: float
    untold: float


class WorkPending(Cause, frozen=True, kw_only=True):
    """When a step's clock stops, its work is not over: reading its results waits.

    Attributes:
        seconds: time that reading waits, the lower quartile.
        step_seconds: median time of a step.
    """

    locates = True

    seconds: float
    step_seconds: float


class OtherWhenWatched(Cause, frozen=True, kw_only=True):
    """Steps that are audited take another time than others.

    Attributes:
        watched, others: median seconds of both.
    """

    locates = True

    watched: float
    others: float


class MasksUnknown(Cause, frozen=True, kw_only=True):
    """Dropout masks of a timed step cannot be told, so that its changes cannot be compared."""

    reason: str
