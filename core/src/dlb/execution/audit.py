"""The audit of a timed run: steps are drawn while it runs, and judged after it.

No worker knows which steps will be audited: they are drawn from the system's randomness, and a worker is
told of one when it comes.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.execution.models import Stage, drop_at_end
from dlb.proof.certificate import Baseline
from dlb.proof.checks.audit import (
    AUDIT_RARE,
    AuditedStep,
    JudgedStep,
    Replay,
    StepJudge,
    batches_check,
    chance,
    check_batches,
    check_losses,
    check_steps,
    losses_check,
    steps_check,
    steps_needed,
)
from dlb.proof.engine import Check, run
from dlb.proof.findings import Finding
from dlb.proof.findings.audit import (
    ClockDiffers,
    MasksUnknown,
    OtherWhenWatched,
    StepsAudited,
    WorkPending,
)
from dlb.proof.findings.workload import Asynchronous
from dlb.supervision.group import Group
from dlb.supervision.remote import RemoteModel, RemoteTraining, Trained
from dlb.workload import parameter_shapes
from dlb_worker.arrays import read_or_map
from dlb_worker.crops import cut

__all__ = ["Audit", "judge", "refuse_audit", "train_audited"]

Array = npt.NDArray[Any]
#: Bytes that the files of all audited steps may take.
MOST_BYTES = 1 << 30
#: Seconds that judging may take, and the share of the adapter's run so far that it may take if that is
#: more. The first step and one at random are always judged.
JUDGE_SECONDS, JUDGE_SHARE = 2.0, 0.05
#: First steps whose losses are compared with a replay.
REPLAYED = 8
#: Steps that are judged together with a measurement of what rounding makes of them, and steps whose
#: running statistics are judged.
CALIBRATED, STATES_JUDGED = 2, 3
#: The share of the time that the worker's clock may leave out, and seconds for each step (the loop itself)
#: and for each part (a message there and back).
CLOCK_SHARE, CLOCK_STEP, CLOCK_PART = 0.05, 1e-4, 2e-3
#: A step's work is over when its clock stops, up to this share of the step and these seconds.
PENDING_SHARE, PENDING_SECONDS = 0.1, 5e-4
#: Audited steps, and the steps right after them, may take times of this ratio; with fewer of them, any.
WATCHED_RATIO, WATCHED_STEPS = 1.5, 10


@dataclass
class Audit:
    """What was kept of a timed run.

    Attributes:
        steps: steps of the run.
        audited: the audited steps.
        losses: float64 [steps], as they were told.
        end: weights of each worker after the last step; only of several.
        masks_unknown: why dropout masks of audited steps are not known; empty if they are.
        clock: seconds told and seen, and steps, of the parts that were not audited.
        step_seconds: float64 [steps], as they were told.
    """

    steps: int
    audited: list[AuditedStep] = field(default_factory=list)
    losses: Array = field(default_factory=lambda: np.zeros(0))
    end: Sequence[dict[str, Array]] = ()
    masks_unknown: str = ""
    clock: ClockDiffers | None = None
    parts: int = 0
    step_seconds: Array = field(default_factory=lambda: np.zeros(0))

    @property
    def step_numbers(self) -> tuple[int, ...]:
        """The audited steps, from 0."""
        return tuple(each.step for each in self.audited)


def train_audited(
    stage: Stage, model: RemoteModel, on_progress: Callable[[Any], None]
) -> tuple[Trained, Audit]:
    """Train the model that is timed, and keep what audited steps got and changed."""
    prepared, request = stage.prepared, stage.request
    training = model.begin_training(
        prepared.train,
        prepared.order,
        crops=prepared.crops,
        input_mode=request.input_mode,
        observe=True,
        on_progress=on_progress,
    )
    generator = random.SystemRandom()
    dropouts = bool(prepared.reference.masks)
    audit = Audit(request.steps)
    for step in _draw(stage, generator):
        training.run(step - training.done)
        seed = generator.randrange(1 << 31) if dropouts else None
        paths, read = training.audit(seed)
        pending = tuple(each["read_after"] - each["read_before"] for each in read)
        audit.masks_unknown = audit.masks_unknown or str(read[0].get("masks_unknown", ""))
        audit.audited.append(AuditedStep(step, tuple(paths), pending))
    training.run(request.steps - training.done)
    trained = training.end()
    audit.losses, audit.step_seconds = trained.losses, trained.step_seconds
    audit.clock, audit.parts = _clock(training, trained), len(training.parts)
    if request.workers > 1:
        audit.end = model.weights()
    return trained, audit


def _draw(stage: Stage, generator: random.Random) -> list[int]:
    """The steps to audit, in order: the first, the last, and some between, as many as there is room for."""
    steps, request = stage.request.steps, stage.request
    if "audit" not in request.groups:
        return []
    size = np.dtype(request.dtype).itemsize
    weights = sum(
        int(np.prod(shape)) for shape in parameter_shapes(request.workload.model).values()
    )
    batch = request.batch_size * int(np.prod(request.workload.model.input.shape))
    # Weights and at most two slots of the optimizer, before and after, of every worker.
    each = size * (6 * weights * request.workers + batch)
    count = min(steps_needed(), max(1, MOST_BYTES // each - 2))
    between = range(1, steps - 1)
    drawn = generator.sample(between, min(count, len(between)))
    return sorted({0, steps - 1, *drawn} if count > 1 else {0, *(drawn or (steps - 1,))})


def _clock(training: RemoteTraining, trained: Trained) -> ClockDiffers:
    """What the worker told of the parts that were not audited, and what this process saw."""
    told = sum(
        float(seconds[first : first + steps].sum())
        for first, steps in training.parts
        for seconds in (trained.step_seconds, trained.data_seconds)
    )
    steps = sum(count for _, count in training.parts)
    return ClockDiffers(told=told, seen=sum(training.seconds), steps=steps)


def judge(stage: Stage, group: Group, audit: Audit, began: float, synchronous: bool) -> None:
    """Judge what was kept, and keep the results.

    Args:
        group: one worker, which holds no other model.
        began: when the adapter's run began, by :func:`time.monotonic`.
        synchronous: whether several workers must do what one does.
    """
    stage.phase("auditing")
    adapter = stage.adapter
    check = batches_check(adapter)
    batch, end = partial(_batch, stage), audit.end if synchronous else ()
    stage.keep(run(check, lambda check: check_batches(check, audit.audited, batch, end)))
    stage.keep(run(_clock_check(adapter), lambda check: _check_clock(check, audit)))
    if audit.masks_unknown:
        refuse_audit(stage, Finding(cause=MasksUnknown(reason=audit.masks_unknown)))
        return
    judging = time.perf_counter()
    try:
        with drop_at_end(stage.build(group, "float64", stage.request.batch_size)) as referee:
            judge_step = StepJudge(referee, stage.request.dtype, stage.request.seed, synchronous)
            judged, replay = _judge(stage, judge_step, audit, began)
    finally:
        for each in audit.audited:
            for path in each.paths:
                path.unlink(missing_ok=True)
    seconds = time.perf_counter() - judging
    drawn = sum(each.step > 0 for each in judged)
    coverage = StepsAudited(
        steps=audit.steps,
        audited=len(audit.audited),
        judged=len(judged),
        replayed=len(replay.losses),
        rare=AUDIT_RARE,
        chance=1.0 if len(judged) == audit.steps else chance(audit.steps, drawn),
    )
    if synchronous:
        stage.keep(
            run(
                steps_check(adapter),
                lambda check: check_steps(check, judged, coverage),
                prepared_seconds=seconds,
            )
        )
    else:
        reason = Finding(cause=Asynchronous(strategy=stage.request.strategy))
        stage.keep(steps_check(adapter).not_run(reason))
    stage.keep(
        run(losses_check(adapter), lambda check: check_losses(check, judged, replay, audit.losses))
    )


def refuse_audit(stage: Stage, reason: Finding) -> None:
    """Keep the checks of what steps changed and told as not run."""
    for check in (steps_check(stage.adapter), losses_check(stage.adapter)):
        stage.keep(check.not_run(reason))


def _judge(
    stage: Stage, judge_step: StepJudge, audit: Audit, began: float
) -> tuple[list[JudgedStep], Replay]:
    """Judge as many steps as there is time for, in a random order after the first one."""
    first, *others = audit.audited
    random.SystemRandom().shuffle(others)
    now = time.monotonic()
    end = now + max(JUDGE_SECONDS, JUDGE_SHARE * (now - began))

    def enough() -> bool:
        return time.monotonic() > end

    judged: list[JudgedStep] = []
    replay = Replay()
    for number, each in enumerate((first, *others)):
        if number >= CALIBRATED and enough():
            break
        judged.append(
            judge_step.judge(each, calibrate=number < CALIBRATED, states=number < STATES_JUDGED)
        )
        if number == 1 and judge_step.synchronous and not stage.prepared.reference.masks:
            replayed = islice(map(partial(_batch, stage), range(audit.steps)), REPLAYED)
            replay = judge_step.replay(first, replayed, enough)
    return judged, replay


def _batch(stage: Stage, step: int) -> tuple[Array, Array]:
    """Inputs and labels of a step, of all workers together, as the order says."""
    prepared = stage.prepared
    arrays = read_or_map(prepared.train)
    rows = prepared.order[step]
    inputs, labels = arrays["inputs"][rows], arrays["labels"][rows]
    return inputs if prepared.crops is None else cut(inputs, prepared.crops[step]), labels


def _clock_check(adapter: str) -> Check:
    return Check("audit, clock", "audit", adapter, Baseline(kind="core_clock"))


def _check_clock(check: Check, audit: Audit) -> Any:
    """Whether the worker's clock accounts for the time, and whether steps are over when it stops."""
    findings = []
    clock = audit.clock
    assert clock is not None
    gap = clock.seen - clock.told
    allowed = CLOCK_SHARE * clock.seen + CLOCK_STEP * clock.steps + CLOCK_PART * audit.parts
    if not -1e-9 <= gap <= allowed:
        findings.append(Finding(cause=clock))
    step_seconds = float(np.median(audit.step_seconds))
    pending = statistics.median(max(each.pending) for each in audit.audited)
    if pending > PENDING_SHARE * step_seconds + PENDING_SECONDS:
        findings.append(Finding(cause=WorkPending(seconds=pending, step_seconds=step_seconds)))
    steps = {each.step for each in audit.audited}
    pairs = [
        (audit.step_seconds[step], audit.step_seconds[step + 1])
        for step in sorted(steps)
        if step and step + 1 < audit.steps and step + 1 not in steps
    ]
    if len(pairs) >= WATCHED_STEPS:
        watched, others = (float(np.median(side)) for side in zip(*pairs))
        if max(watched, others) > WATCHED_RATIO * min(watched, others) + PENDING_SECONDS:
            findings.append(Finding(cause=OtherWhenWatched(watched=watched, others=others)))
    return check.result(findings=findings, passed=not findings)
