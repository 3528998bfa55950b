"""The audit of a timed run: steps are drawn while it runs, and judged after it.

No worker knows which steps will be audited: they are drawn from the system's randomness, and a worker is
told of one when it comes.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.execution.models import Stage, drop_at_end
from dlb.execution.periodic_tests import PeriodicTests
from dlb.proof.checks.audit import (
    AUDIT_RARE,
    LEAST_JUDGED,
    AuditedStep,
    JudgedStep,
    Replay,
    StepJudge,
    chance,
    check_batches,
    check_losses,
    check_steps,
    steps_needed,
)
from dlb.proof.engine import Check, run
from dlb.proof.findings import Finding
from dlb.proof.findings.audit import (
    ClockDiffers,
    MasksUnknown,
    OtherWhenWatched,
    StepsAudited,
    TimeUntold,
    WorkPending,
)
from dlb.proof.findings.workload import Asynchronous, StateOnServer
from dlb.proof.rounding import FLOAT32
from dlb.supervision.group import Group
from dlb.supervision.remote import ClockReading, Draw, RemoteModel, Taken, Trained
from dlb_graph.workload import learning_rate, parameter_shapes
from dlb_worker.arrays import map_arrays
from dlb_worker.crops import cut
from dlb_worker.parts import shares

__all__ = ["Audit", "batches_of", "judge", "refuse_audit", "train_audited"]

Array = npt.NDArray[Any]
#: Bytes that the files of all audited steps may take.
MOST_BYTES = 1 << 30
#: Judging may take these seconds; or the time of so many steps, up to as many seconds; or this share of the
#: adapter's run so far; whichever is most. The first step is always judged.
JUDGE_SECONDS, JUDGE_STEPS, MOST_JUDGE_SECONDS, JUDGE_SHARE = 20.0, 150, 120.0, 0.05
#: First steps whose losses are compared with a replay.
REPLAYED = 8
#: Steps that are judged in float64, with running statistics, and with a measurement of what rounding
#: makes of them.
CALIBRATED = 2
#: Steps of the run whose time that takes, roughly. If it is more than there is, the run's own dtype is used.
FLOAT64_STEPS = 16
#: Elements of each tensor that are compared in all other steps; and the largest number of weights of a
#: model of which all are compared in those.
ELEMENTS, WHOLE_WEIGHTS = 4096, 1 << 24
#: A worker's clock may run at another rate than this process's by this share. Of a step, the clock may leave
#: out this share, and these seconds for a call.
CLOCK_SHARE = 0.02
UNTOLD_SHARE, UNTOLD_SECONDS = 0.05, 5e-5
#: Of the time in which steps were taken, a worker may leave out this share, these seconds of a step for what
#: is done between two of them, and these of a call, which other processes may delay.
LOST_SHARE, LOST_SECONDS, CALL_SECONDS = 0.1, 1e-3, 1e-2
#: A step's work is over when its clock stops, up to this share of the step and these seconds.
PENDING_SHARE, PENDING_SECONDS = 0.1, 5e-4
#: Of a few steps, other processes may have had the processor in most. Then so much more passes: a time slice.
FEW_STEPS_SECONDS = 1e-2
#: Audited steps may take a time of this ratio to that of the steps right after them, and to that of the
#: rest; with fewer steps of a kind, any.
WATCHED_RATIO, WATCHED_STEPS = 2.0, 20


@dataclass
class Audit:
    """What was kept of a timed run.

    Attributes:
        steps: steps of the run.
        audited: the audited steps.
        random: the steps that were drawn at random.
        tested: by number of steps before it, weights and optimizer state that a test of the model changed.
        losses: float64 [steps], as they were told.
        end: weights of each worker after the last step; only of several.
        masks_unknown: why dropout masks of audited steps are not known; empty if they are.
        clocks: at the beginning and at the end, what the clocks showed.
        step_seconds, untold_seconds: float64 [steps], as they were told.
        accounted_seconds: float64 [workers, steps], all that a step took, as it was told.
        taken: the calls in which the steps were taken, with their times by dlb's clock.
        observed: whether plugins see each step, between the steps: for how long, nobody knows.
        shares: into how many shares a batch is divided; 0: one for each worker.
        replicas: how many workers a process holds.
    """

    steps: int
    audited: list[AuditedStep] = field(default_factory=list)
    random: Collection[int] = ()
    tested: Mapping[int, Sequence[str]] = field(default_factory=dict)
    losses: Array = field(default_factory=lambda: np.zeros(0))
    end: Sequence[dict[str, Array]] = ()
    masks_unknown: str = ""
    clocks: tuple[ClockReading, ...] = ()
    step_seconds: Array = field(default_factory=lambda: np.zeros(0))
    untold_seconds: Array = field(default_factory=lambda: np.zeros(0))
    accounted_seconds: Array = field(default_factory=lambda: np.zeros((0, 0)))
    taken: tuple[Taken, ...] = ()
    observed: bool = False
    shares: int = 0
    replicas: int = 1

    def before(self, step: int) -> Audit:
        """What was kept of the steps that end before ``step``, from which on the loss is not finite."""
        kept = [each for each in self.audited if each.step + 1 < step]
        for each in self.audited:
            if each not in kept:
                for path in each.paths:
                    path.unlink(missing_ok=True)
        return replace(
            self, steps=max(1, step - 1), audited=kept, losses=self.losses[: step - 1], end=()
        )

    def unaccounted(
        self, accounted: Array, peers: Array | None = None
    ) -> tuple[float, float] | None:
        """The time that a worker told of some calls, and the time that passed, if they are not one.

        Args:
            accounted: float64 [steps], all that each step took by its words.
            peers: float64 [workers, steps], where each goes on by itself: a call takes as long as the slowest.
        """
        told = {call: float(accounted[call.first :][: call.steps].sum()) for call in self.taken}
        for call, seconds in told.items():
            if seconds > (1 + CLOCK_SHARE) * call.seconds + CALL_SECONDS:
                return seconds, call.seconds
        if self.observed:
            return None
        if peers is not None:
            told = {
                call: float(peers[:, call.first :][:, : call.steps].sum(axis=1).max())
                for call in self.taken
            }
        plain = [call for call in self.taken if not call.audited]
        seen, seconds = sum(call.seconds for call in plain), sum(told[call] for call in plain)
        steps = sum(call.steps for call in plain)
        least = (1 - LOST_SHARE) * seen - LOST_SECONDS * steps - CALL_SECONDS * len(plain)
        return (seconds, seen) if seconds < least else None

    @property
    def step_numbers(self) -> tuple[int, ...]:
        """The audited steps, from 0."""
        return tuple(each.step for each in self.audited)


def train_audited(
    stage: Stage,
    model: RemoteModel,
    features: Collection[str],
    tests: PeriodicTests,
    on_progress: Callable[[Any], None],
    observed: bool = False,
) -> tuple[Trained, Audit]:
    """Train the model that is timed, and keep what audited steps got and changed.

    Args:
        features: features of the adapter.
        tests: takes the steps between audited ones.
        observed: whether plugins of the worker see each step.
    """
    prepared, request = stage.prepared, stage.request
    stage.blocks.pause()
    training = model.begin_training(
        prepared.data.train,
        prepared.data.order,
        crops=prepared.data.crops,
        input_mode=request.input,
        observe=True,
        on_progress=on_progress,
    )
    generator = random.SystemRandom()
    dropouts = bool(prepared.references.ordinary.masks)
    audit = Audit(request.steps, observed=observed, shares=model.group.shares)
    if dropouts and "repeatable_dropout" not in features:
        dropouts, audit.masks_unknown = False, "the adapter has no feature 'repeatable_dropout'"
    steps, audit.random, whole = _draw(stage, generator)
    for step in steps:
        tests.advance(training, step)
        seed = generator.randrange(1 << 31) if dropouts else None
        draw = Draw(None if step in whole else ELEMENTS, generator.randrange(1 << 31))
        paths, read = training.audit(seed, draw)
        pending = tuple(_pending(each) for each in read)
        audit.masks_unknown = audit.masks_unknown or str(read[0].get("masks_unknown", ""))
        audit.replicas = int(read[0].get("replicas", 1))
        told = [each.get("changed") for each in read]
        names = dict.fromkeys(name for each in told for name in each or ())
        changed = None if None in told else tuple(names)
        audit.audited.append(AuditedStep(step, tuple(paths), draw, pending, changed, stage.adapter))
        tests.look(training.done)
    tests.advance(training, request.steps)
    trained = training.end()
    audit.losses, audit.step_seconds = trained.losses, trained.step_seconds
    audit.untold_seconds = trained.untold_seconds
    audit.accounted_seconds, audit.taken = trained.accounted_seconds, tuple(training.taken)
    audit.clocks = tuple(training.clocks)
    audit.tested = tests.changed
    if request.workers > 1:
        audit.end = model.weights()
    return trained, audit


def _pending(read: Mapping[str, Any]) -> float:
    """Seconds by which reading the state took longer right after a step than before it, and than once more.

    Other processes may have had the processors meanwhile: what threads waited for one does not count.
    """
    after, *others = (
        max(0.0, float(read[f"read_{when}"]) - max(0.0, float(read[f"waited_{when}"])))
        for when in ("after", "before", "again")
    )
    return after - max(others)


def _draw(stage: Stage, generator: random.Random) -> tuple[list[int], list[int], set[int]]:
    """The steps to audit, in order, those drawn at random, and those of which whole weights are compared.

    The first, the last, and some at random: as many as a rare fault needs, and as there is room for. With more
    room also those on both sides of what happens between steps, and the next one to two that were drawn.
    """
    request = stage.request
    if "audit" not in request.groups:
        return [], [], set()
    shapes = parameter_shapes(request.workload.model).values()
    weights = sum(math.prod(shape) for shape in shapes)
    batch = request.batch_size * math.prod(request.workload.model.input.shape)
    each = np.dtype(request.dtype).itemsize * (weights + batch)
    between = range(1, request.steps - 1)
    wanted = steps_needed() if request.trial_draws is None else request.trial_draws
    room = max(1, MOST_BYTES // each)
    count = min(wanted, room, len(between))
    drawn = generator.sample(between, count)
    seams = [] if request.trial_draws is not None else [*_seams(stage), *(n + 1 for n in drawn[:2])]
    seams = generator.sample(seams, min(len(seams), max(1, (room - count) // 2)))
    steps = sorted({0, request.steps - 1, *drawn, *seams, *(seam - 1 for seam in seams)})
    whole = {0} if request.trial_draws is not None else {0, *(drawn[:1] or steps[-1:])}
    return steps, drawn, whole if weights <= WHOLE_WEIGHTS else set()


def _seams(stage: Stage) -> list[int]:
    """Steps before which something happens: the first and the last of each kind.

    An epoch begins, the learning rate is another, or the model was tested.
    """
    request, workload = stage.request, stage.request.workload
    rates = [
        learning_rate(workload.optimizer, workload.schedule, step) for step in range(request.steps)
    ]
    kinds: list[Sequence[int]] = [
        range(stage.prepared.data.epoch, request.steps, stage.prepared.data.epoch),
        [step for step in range(1, request.steps) if rates[step] != rates[step - 1]],
    ]
    if request.test_steps is not None:
        kinds.append(range(request.test_steps, request.steps, request.test_steps))
    return sorted({step for steps in kinds for step in (*steps[:1], *steps[-1:])})


def judge(stage: Stage, group: Group, audit: Audit, began: float, synchronous: bool) -> None:
    """Judge what was kept, and keep the results.

    Args:
        group: one worker, which holds no other model.
        began: when the adapter's run began, by :func:`time.monotonic`.
        synchronous: whether workers must do what one does, and the optimizer's state is with them.
    """
    stage.phase("auditing")
    adapter = stage.adapter
    check = Check.of("audit, batches", adapter)
    batch, end = batches_of(stage), audit.end if synchronous else ()
    request, count = stage.request, audit.shares or len(audit.audited[0].paths)
    own = shares(request.batch_size, count, request.workload.optimizer.accumulate)
    stage.keep(run(check, lambda check: check_batches(check, audit.audited, batch, end, own)))
    for place, each in enumerate(audit.audited):  # from here on, the batch of each share once
        audit.audited[place] = replace(each, paths=each.paths[:: len(each.paths) // count])
    clock = Check.of("audit, clock", adapter)
    stage.keep(run(clock, lambda check: _check_clock(check, audit, synchronous)))
    if audit.masks_unknown:
        refuse_audit(stage, Finding(cause=MasksUnknown(reason=audit.masks_unknown)))
        return
    if audit.replicas > 1 and not synchronous:  # one loss is told, of workers with other weights
        refuse_audit(stage, Finding(cause=Asynchronous(strategy=stage.request.strategy)))
        return
    judging = time.perf_counter()
    try:
        judged, replay = _judge(stage, group, audit, began, synchronous)
    finally:
        for each in audit.audited:
            for path in each.paths:
                path.unlink(missing_ok=True)
    seconds = time.perf_counter() - judging
    drawn = sum(each.step in audit.random for each in judged)
    coverage = StepsAudited(
        steps=audit.steps,
        audited=len(audit.audited),
        judged=sum(each.tells for each in judged),
        replayed=len(replay.losses),
        rare=AUDIT_RARE,
        chance=1.0 if len(judged) == audit.steps else chance(audit.steps, drawn),
        joined=sum(each.changed is not None for each in audit.audited),
    )
    changed = {each.step: each.changed for each in audit.audited if each.changed}
    if synchronous:
        stage.keep(
            run(
                Check.of("audit, steps", adapter),
                lambda check: check_steps(check, judged, coverage, changed, audit.tested),
                prepared_seconds=seconds,
            )
        )
    else:
        strategy = stage.request.strategy
        alone = stage.request.workers == 1
        reason = Finding(cause=(StateOnServer if alone else Asynchronous)(strategy=strategy))
        stage.keep(Check.of("audit, steps", adapter).not_run(reason))
    stage.keep(
        run(
            Check.of("audit, losses", adapter),
            lambda check: check_losses(check, judged, replay, audit.losses),
        )
    )


def refuse_audit(stage: Stage, reason: Finding) -> None:
    """Keep the checks of what steps changed and told as not run."""
    for name in ("audit, steps", "audit, losses"):
        stage.keep(Check.of(name, stage.adapter).not_run(reason))


def _judge(
    stage: Stage, group: Group, audit: Audit, began: float, synchronous: bool
) -> tuple[list[JudgedStep], Replay]:
    """Judge as many steps as there is time for: the first, one at random, then the others at random."""
    request = stage.request
    order = list(audit.audited)
    random.SystemRandom().shuffle(order)
    # Steps of which all elements were kept come first, and the first of all.
    order.sort(key=lambda each: (each.step > 0, each.draw.elements is not None))
    now = time.monotonic()
    step_seconds = _median(audit.step_seconds)
    in_steps = min(JUDGE_STEPS * step_seconds, MOST_JUDGE_SECONDS)
    budget = max(JUDGE_SECONDS, in_steps, JUDGE_SHARE * (now - began))
    # Without as many as must be judged, all that the run took so far is without a verdict.
    patience = max(budget, now - began)
    judged: list[JudgedStep] = []
    replay = Replay()

    def enough() -> bool:
        return time.monotonic() > now + budget

    def done() -> bool:
        few = LEAST_JUDGED * len(judged) < len(order)
        return time.monotonic() > now + patience if few else enough()

    # A large network is judged in the run's own dtype alone, which takes the memory that the run took.
    # So is one that rounds more than its dtype: only its own kernels round as the timed ones do.
    exact = stage.rounding is FLOAT32
    small = exact and request.trial_draws is None and FLOAT64_STEPS * step_seconds <= budget
    if small:
        with drop_at_end(stage.build(group, "float64", request.batch_size)) as referee:
            judge_step = StepJudge(referee, request.dtype, request.seed, synchronous)
            judged += [judge_step.judge(each, calibrate=True) for each in order[:CALIBRATED]]
        if done() and all(each.tells and not each.wrong for each in judged):
            return judged, replay
    # Whether a step does other work shows in the run's own dtype, at a third of the time.
    with drop_at_end(stage.build(group, request.dtype, request.batch_size, mixed=True)) as referee:
        if small:
            judge_step.referee = referee
        else:
            judge_step = StepJudge(
                referee, request.dtype, request.seed, synchronous, stage.rounding
            )
            judged.append(judge_step.judge(order[0], calibrate=True))
        if small and synchronous and not stage.prepared.references.ordinary.masks:
            first = range(min(REPLAYED, audit.steps))
            replay = judge_step.replay(
                order[0], lambda: map(batches_of(stage), first), audit.losses, enough
            )
        # The same kernels must agree too. In float64, a value may lie on the other side of a kink.
        for place, exactly in enumerate(judged) if small else ():
            again = judge_step.judge(order[place])
            if exactly.wrong:
                kinks = judge_step.judge_at_kinks(order[place])
                judged[place] = exactly.unless_explained(again, kinks)
            elif again.wrong or not exactly.tells:
                judged[place] = again
        for each in order[len(judged) :]:
            if done():
                break
            judged.append(judge_step.judge(each))
    return judged, replay


def batches_of(stage: Stage) -> Callable[[int], tuple[Array, Array]]:
    """Inputs and labels of any step, of all workers together, as the order says."""
    data = stage.prepared.data
    samples = map_arrays(data.train)

    def batch(step: int) -> tuple[Array, Array]:
        rows = data.order[step]
        inputs, labels = samples["inputs"][rows], samples["labels"][rows]
        return inputs if data.crops is None else cut(inputs, data.crops[step]), labels

    return batch


def _check_clock(check: Check, audit: Audit, synchronous: bool) -> Any:
    """Whether the worker's clock accounts for the time, and whether steps are over when it stops."""
    findings = []
    begun, ended = audit.clocks
    least, most = ended.before - begun.after, ended.after - begun.before
    for first, last in zip(begun.workers, ended.workers):
        told = last - first
        if not (1 - CLOCK_SHARE) * least <= told <= (1 + CLOCK_SHARE) * most:
            seen = least if told < least else most
            findings.append(Finding(cause=ClockDiffers(told=told, seen=seen)))
    peers = None if synchronous else audit.accounted_seconds
    lost = (audit.unaccounted(each, peers) for each in audit.accounted_seconds)
    findings += [Finding(cause=ClockDiffers(told=each[0], seen=each[1])) for each in lost if each]
    # Medians and smallest times: other processes may take the processor at any moment.
    step_seconds = _median(audit.step_seconds)
    untold = _median(audit.untold_seconds)
    few = FEW_STEPS_SECONDS if audit.steps < WATCHED_STEPS else 0.0
    if abs(untold) > UNTOLD_SHARE * step_seconds + UNTOLD_SECONDS + few:
        findings.append(Finding(cause=TimeUntold(told=step_seconds, untold=untold)))
    # A quarter of them may have been read beside other work.
    pending = float(np.percentile([max(each.pending) for each in audit.audited], 25))
    if pending > PENDING_SHARE * step_seconds + PENDING_SECONDS + few:
        findings.append(Finding(cause=WorkPending(seconds=pending, step_seconds=step_seconds)))
    watched = set(audit.step_numbers) - {0}
    after = {step + 1 for step in watched} - watched - {audit.steps}
    rest = set(range(1, audit.steps)) - watched - after
    for others in (after, rest):
        if min(len(watched), len(others)) < WATCHED_STEPS:
            continue
        sides = [audit.step_seconds[sorted(steps)] for steps in (watched, others)]
        watched_seconds, other_seconds = map(_median, sides)
        if _far_apart(*map(_median, sides)) and _far_apart(*(float(side.min()) for side in sides)):
            cause = OtherWhenWatched(watched=watched_seconds, others=other_seconds)
            findings.append(Finding(cause=cause))
            break
    return check.result(findings=findings, passed=not findings)


def _far_apart(first: float, second: float) -> bool:
    """Whether two times of a step are not those of one kind of step."""
    return max(first, second) > WATCHED_RATIO * min(first, second) + PENDING_SECONDS


def _median(values: Array) -> float:
    return float(np.median(values))
