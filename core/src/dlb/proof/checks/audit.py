"""``audit``: what timed steps got, changed and told, against the order and the workload's definition.

The steps are drawn at random while the model is timed. The truth is the workload's definition of a step,
with gradients of the adapter's float64 model, which the other checks have proven, at the weights and on
the batch of the timed step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dlb.proof.certificate import CheckResult
from dlb.proof.checks.float32_updates import GRADIENT_NOISE
from dlb.proof.checks.updates import change_figures
from dlb.proof.divergence import perturbed
from dlb.proof.engine import Check
from dlb.proof.findings import Figure, Finding
from dlb.proof.findings.audit import (
    BatchDiffers,
    LossDiffers,
    StateChanged,
    StepDiffers,
    StepsAudited,
    TooFewJudged,
    WorkersApart,
)
from dlb.proof.rounding import FLOAT32, Rounding
from dlb.proof.update_batches import as_dtype
from dlb.supervision.remote import Draw, RemoteModel, read_written, scratch_file, write_arrays
from dlb_graph.comparing.causes import LISTED
from dlb_graph.comparing.distance import inner_product, norm, pieces, same_bits
from dlb_graph.comparing.tolerances import (
    CHANGE_LEAST,
    FLOAT32_MULTIPLE,
    FLOAT32_SMALL,
    NORMALISED_UNITS,
    PERTURBED_UNITS,
    ROUNDED,
    Tensors,
)
from dlb_graph.comparing.updates import Updates
from dlb_graph.workload import SGD, Embedding, learning_rate, parameter_shapes, state_names
from dlb_graph.workload.initial import proof_masks
from dlb_graph.workload.shapes import trained_names
from dlb_worker.parts import rows_by_rank
from dlb_worker.sampling import drawn

__all__ = [
    "AUDIT_CHANCE",
    "AUDIT_RARE",
    "LEAST_JUDGED",
    "AuditedStep",
    "Replay",
    "StepJudge",
    "chance",
    "check_batches",
    "check_losses",
    "check_steps",
    "steps_needed",
]

Array = npt.NDArray[Any]
#: A fault in one of so many steps is to be found with this probability.
AUDIT_RARE, AUDIT_CHANCE = 10, 0.99
#: A change may be this many times as far off as one with a gradient from perturbed weights. Perturbed
#: weights move a gradient about as far as rounding does, but not by the same kinks.
PERTURBED_GRADIENTS = 5.0
#: Some elements of a gradient are so many times as far off as most.
TURNED = 3.0
#: Losses of replays from perturbed weights that are so far apart say little about a loss. After the first
#: step, rounding may take any value across a kink: a loss may be this far off though the perturbed one is not.
REPLAY_GROWTH, REPLAY_LEAST = 1e-3, 5e-4
#: A loss that is further off is replayed from so many other perturbed weights: a value that lies near a kink
#: crosses it in some of them, as it may by another order of sums.
REPLAYS_AGAIN = 8
#: A step tells something where a change that is off by less than this would be found, in most tensors. One that
#: changes nothing is off by 1.
TELLING = 0.5
#: Of a smaller loss, a gradient in float32 is nothing but rounding.
LEAST_LOSS = 1e-12
#: Perturbed weights that show what crossing the kinks of one step makes.
KINK_DRAWS = 8
#: A weight is rounded once when a step changes it: at most one unit in its last place.
ROUNDED_UNITS = 1.0
#: One of so many audited steps must be judged. What is said of a run in which most were not would rest on its
#: first step and on chance.
LEAST_JUDGED = 2


@dataclass(frozen=True)
class AuditedStep:
    """A timed step, of which each worker wrote what it got and what it changed.

    Attributes:
        step: its number, from 0.
        paths: by rank, .npz file of ``inputs``, ``labels``, ``before/NAME``, ``after/NAME``, ``loss``.
        draw: which elements of weights and state are in it.
        adapter: whose workers wrote them.
        pending: by rank, seconds that reading the state took longer after the step than at other times.
        changed: weights and optimizer state that changed after the step before it; None if the worker
            cannot tell.
    """

    step: int
    paths: tuple[Path, ...]
    draw: Draw
    pending: tuple[float, ...]
    changed: tuple[str, ...] | None = None
    adapter: str = ""

    def read(self) -> tuple[Mapping[str, Array], ...]:
        """The arrays of each worker; large files are mapped."""
        return tuple(read_written(path, self.adapter) for path in self.paths)


def steps_needed() -> int:
    """How many steps, drawn at random, find a rare fault with the probability that is promised."""
    return math.ceil(math.log(1 - AUDIT_CHANCE) / math.log(1 - 1 / AUDIT_RARE))


def chance(steps: int, judged: int) -> float:
    """The probability that a fault in one of :data:`AUDIT_RARE` steps is among the judged ones.

    Args:
        steps: steps of the run.
        judged: how many of them, drawn at random.
    """
    faulty = max(1, round(steps / AUDIT_RARE))
    missed = 1.0
    for done in range(min(judged, steps)):
        missed *= max(0.0, (steps - faulty - done) / (steps - done))
    return 1.0 - missed


def check_batches(
    check: Check,
    audited: Iterable[AuditedStep],
    expected: Callable[[int], tuple[Array, Array]],
    end: Sequence[Tensors] = (),
    shares: Sequence[int] = (1,),
) -> CheckResult:
    """Compare the batches of audited steps with what the order says, and workers with each other.

    Args:
        expected: inputs and labels of a step, of all workers together.
        end: if workers must agree, the weights of each at the end of the run.
        shares: how many samples of a batch each worker has, or each group of neighbouring workers.
    """
    differing: dict[str, list[BatchDiffers]] = {}
    apart: list[WorkersApart] = []
    last = 0
    for each in sorted(audited, key=lambda audited_step: audited_step.step):
        last, workers = each.step, each.read()
        batch = expected(each.step)
        for rank, (arrays, rows) in enumerate(zip(workers, rows_by_rank(shares, len(workers)))):
            for whole, name in zip(batch, ("inputs", "labels")):
                difference = _batch_difference(each.step, rank, name, arrays[name], whole[rows])
                if difference is not None:
                    differing.setdefault(name, []).append(difference)
        if end:
            after = [_part(arrays, "after/") for arrays in workers]
            apart += _workers_apart(each.step, after)
    apart += _workers_apart(last, end)
    causes: list[Any] = [
        msgspec.structs.replace(found[0], steps=len({each.step for each in found}))
        for found in differing.values()
    ]
    causes += apart[:1]
    findings = [Finding(cause=cause) for cause in causes]
    return check.result(findings=findings, passed=not findings)


def _batch_difference(
    step: int, rank: int, part: Any, found: Array, expected: Array
) -> BatchDiffers | None:
    """How a native batch differs from the samples; integers may have any type."""
    samples: int | None = None
    if found.shape == expected.shape:
        own = found if expected.dtype.kind == "f" else found.astype(expected.dtype)
        if same_bits(np.asarray(own), np.asarray(expected)):
            return None
        rows = len(expected)
        other = own.reshape(rows, -1) != expected.reshape(rows, -1)
        samples = int(other.any(axis=1).sum()) or rows
    return BatchDiffers(
        step=step,
        steps=1,
        part=part,
        samples=samples,
        found=tuple(map(int, found.shape)),
        expected=tuple(map(int, expected.shape)),
        worker=rank,
    )


def _mean_loss(workers: Sequence[Tensors]) -> float:
    """The mean over samples of what each worker told of its own."""
    samples = [len(arrays["inputs"]) for arrays in workers]
    weights = samples if len(set(samples)) > 1 else None
    return float(np.average([float(arrays["loss"]) for arrays in workers], weights=weights))


def _workers_apart(step: int, weights: Sequence[Tensors]) -> list[WorkersApart]:
    """Tensors of peers that differ from worker 0's; optimizer state may be kept in shares."""
    tensors = [
        name
        for name, array in (weights[0].items() if weights else ())
        if not name.startswith("optimizer/")
        and any(name not in peer or not same_bits(peer[name], array) for peer in weights[1:])
    ]
    return [WorkersApart(step=step, tensors=tuple(tensors[:LISTED]))] if tensors else []


@dataclass
class JudgedStep:
    """What an audited step changed and told, next to the definition.

    Attributes:
        step: its number, from 0.
        figures: distance of each tensor's change.
        allowed: by tensor, the largest distance that passes.
        loss, true_loss: the told loss, and the batch's.
        loss_allowed: the largest difference of both that passes.
        nothing: whether no trained weight changed although some should.
    """

    step: int
    figures: tuple[Figure, ...]
    allowed: Mapping[str, float]
    loss: float
    true_loss: float
    loss_allowed: float
    nothing: bool

    def multiple(self, figure: Figure) -> float:
        """A figure as a multiple of what passes."""
        return figure.distance / self.allowed[figure.tensor]

    @property
    def worst(self) -> tuple[float, Figure]:
        """The largest multiple, and its figure."""
        return max(((self.multiple(each), each) for each in self.figures), key=lambda pair: pair[0])

    @property
    def tells(self) -> bool:
        """Whether rounding hides less than a change would be, in most tensors."""
        telling = sum(allowed < TELLING for allowed in self.allowed.values())
        return 2 * telling > len(self.allowed)

    @property
    def wrong(self) -> bool:
        """Whether a tensor changed otherwise than the definition changes it."""
        return self.worst[0] > 1.0

    def unless_explained(self, again: JudgedStep, kinks: JudgedStep) -> JudgedStep:
        """This step, with what crossing kinks makes of it allowed, if that and the same kernels explain it.

        Args:
            again: the step, judged with the kernels that it was taken with.
            kinks: the step, judged by what perturbed weights make of it that cross kinks.
        """
        excused = replace(
            self,
            allowed={
                name: max(least, kinks.allowed.get(name, 0.0))
                for name, least in self.allowed.items()
            },
            loss_allowed=max(self.loss_allowed, kinks.loss_allowed),
        )
        unexplained = again.wrong or excused.wrong or excused.loss_multiple > 1.0
        return self if unexplained else excused

    @property
    def loss_multiple(self) -> float:
        """The difference of the losses as a multiple of what passes."""
        apart = abs(self.loss - self.true_loss)
        return apart / self.loss_allowed if math.isfinite(apart) else math.inf


@dataclass
class Replay:
    """Losses of the first steps, replayed from the weights of the first.

    Attributes:
        losses: float64, the true losses.
        allowed: by step, the largest difference that passes.
    """

    losses: list[float] = field(default_factory=list)
    allowed: list[float] = field(default_factory=list)

    def apart(self, told: Array) -> list[int]:
        """The steps whose told losses are further off than what passes, or not finite."""
        return [
            step
            for step, (loss, allowed) in enumerate(zip(self.losses, self.allowed))
            if not abs(float(told[step]) - loss) <= allowed
        ]


class StepJudge:
    """Compares timed steps with the workload's definition of a step.

    Args:
        referee: the adapter's model as it is built for proofs, for batches of the run.
        dtype: the dtype of the timed model.
        seed: seed of perturbations.
        synchronous: whether all workers take one step together; if not, worker 0's loss alone is judged.
        rounding: the type that the referee and a timed model in float32 compute in. Of bfloat16, what a change
            of the last place in float32 moves also measures which numbers another order of sums rounds
            otherwise, and the least that passes is some roundings.
    """

    def __init__(
        self,
        referee: RemoteModel,
        dtype: str,
        seed: int,
        synchronous: bool = True,
        rounding: Rounding = FLOAT32,
    ) -> None:
        self.referee, self.dtype, self.synchronous = referee, dtype, synchronous
        workload = referee.workload
        self.optimizer, self.schedule = workload.optimizer, workload.schedule
        self.shapes = parameter_shapes(workload.model)
        self.trained = trained_names(workload.model)
        self.states = tuple(state_names(workload.model))
        # The referee's own step has one mask for all parts of its batch.
        several = self.optimizer.accumulate > 1 and bool(proof_masks(workload.model, seed, 1))
        self.has_states_to_judge = bool(self.states) and not several
        unit = float(np.finfo(dtype).eps / np.finfo(np.float32).eps)
        #: Distances below these are rounding: of a change or a loss, and of a gradient.
        self.least = rounding.multiple * rounding.least * unit
        self.least_gradient = FLOAT32_MULTIPLE * GRADIENT_NOISE * unit
        if rounding is not FLOAT32:
            self.least_gradient = self.least
        self.unit = unit
        self.units = NORMALISED_UNITS if self.states else PERTURBED_UNITS
        self.generator = np.random.default_rng(seed)
        self.seed = seed
        #: By tensor, how far perturbed weights move its gradient, relative to its norm or to a share of
        #: the whole gradient's; the same for running statistics and the loss.
        self.noise: dict[str, float] = {}
        self.state_noise: dict[str, float] = {}
        self.loss_noise = 0.0

    def judge(self, audited: AuditedStep, *, calibrate: bool = False) -> JudgedStep:
        """Compare one step.

        Args:
            calibrate: also compare running statistics, and measure how far rounding may move this step.
        """
        workers = audited.read() if self.synchronous else audited.read()[:1]
        before, after = _part(workers[0], "before/"), _part(workers[0], "after/")
        found = self._gradients(audited, None)
        true_loss = found.loss
        held = [name for name in self.trained if _sizes_agree(name, before, found.gradients)]
        lacking = {*self.trained, *self.states} - {*held, *(before.keys() & {*self.states})}
        gradients = {name: found.gradients[name] for name in held}
        judges_states = calibrate and self.has_states_to_judge and not lacking
        moved = self._running(audited, workers) if judges_states else {}
        if calibrate:
            self._calibrate(audited, workers, found, moved)
        start = {name: before[name] for name in held}
        truth = self._step(audited.step, start, before, gradients, found.norms)
        expected = {**truth, **moved}
        state = _part(after, "optimizer/")
        own = {name: array for name, array in {**after, **state}.items() if name in expected}
        begun = {**start, **{name: before[name] for name in moved}}
        compared = change_figures(begun, own, expected) + tuple(
            Figure(tensor=name, relative_l2=None, largest=None) for name in sorted(lacking)
        )
        spread = self._spread(audited.step, start, before, found, truth)
        roundings = self._roundings(audited, workers)
        allowed = {
            each.tensor: spread.get(each.tensor, 0.0)
            + self.state_noise.get(each.tensor, 0.0)
            + self.least
            + self._rounding(each.tensor, before, expected, roundings.get(each.tensor))
            for each in compared
        }
        # Where rounding may be more than the change, that is what a distance is relative to.
        scales = {name: max(1.0, most) for name, most in allowed.items()}
        return JudgedStep(
            step=audited.step,
            figures=tuple(_in_units_of(scales[each.tensor], each) for each in compared),
            allowed={name: most / scales[name] for name, most in allowed.items()},
            loss=_mean_loss(workers),
            true_loss=true_loss,
            loss_allowed=max(self.loss_noise, self._least_loss(true_loss)),
            nothing=all(same_bits(own.get(name, before[name][:0]), before[name]) for name in start),
        )

    def judge_at_kinks(self, audited: AuditedStep) -> JudgedStep:
        """Compare one step again, by what crossing kinks makes of this very step.

        A value that rounding took across a kink is near it: the kernels that took it across round otherwise at
        some of several perturbed weights, and leave it on its side, which moves the gradient as far. What is
        further off than any of them makes is no kink's. Float64 would have to be moved across by the weights
        alone, which move a value less than the roundings of a long sum do. They leave the sums of a
        gradient nearly as they are, too: so the samples come in another order each time.
        """
        kept = self.noise, self.state_noise, self.loss_noise
        self.noise, self.state_noise = dict(self.noise), dict(self.state_noise)
        try:
            found = self._gradients(audited, None)
            for _ in range(KINK_DRAWS):
                with self._reordered(audited) as other:
                    self._calibrate(other, audited.read()[:1], found, {})
            return self.judge(audited)
        finally:
            self.noise, self.state_noise, self.loss_noise = kept

    def replay(
        self,
        first: AuditedStep,
        batches: Callable[[], Iterable[tuple[Array, Array]]],
        told: Array,
        enough: Callable[[], bool],
    ) -> Replay:
        """Take the first steps from the weights before the first.

        Where a told loss is off by more than passes in any case, they are taken from perturbed weights too,
        from one and then from more. That ends where rounding has grown so far that a loss would say little.

        Args:
            first: step 0.
            batches: inputs and labels of the first steps, of all workers together, from the first again.
            told: float64 [steps], the losses that steps told.
            enough: whether to stop before the next step; not while a loss is in doubt.
        """
        before = _part(first.read()[0], "weights/")
        if not {*self.trained, *self.states} <= before.keys():
            return Replay()
        starts = [before]
        replay = self._replay(starts, batches(), enough)
        for others in (1, 1 + REPLAYS_AGAIN):
            if replay.apart(told):
                seeds = range(self.seed + len(starts) - 1, self.seed + others)
                starts += [perturbed(before, seed, self.units) for seed in seeds]
                replay = self._replay(starts, batches(), lambda: False)
        return replay

    def _replay(
        self,
        starts: Sequence[Mapping[str, Array]],
        batches: Iterable[tuple[Array, Array]],
        enough: Callable[[], bool],
    ) -> Replay:
        """The losses from the first of several starts, and how far those from the others are."""
        runs = [
            Updates(self.optimizer, {name: start[name] for name in self.trained})
            for start in starts
        ]
        states = [{name: start[name] for name in self.states} for start in starts]
        whole, replay, apart = Draw(None, 0), Replay(), 0.0
        for step, (inputs, labels) in enumerate(batches):
            if enough():
                break
            path, losses = scratch_file(self.referee.group), []
            write_arrays(path, {"inputs": inputs, "labels": labels})
            for updates, others in zip(runs, states):
                weights = {**updates.weights, **others}
                found = Found(self.referee.audit_gradients([path], weights, whole), self.trained)
                if any(
                    name not in found.gradients or found.gradients[name].size != self._size(name)
                    for name in self.trained
                ):
                    return replay
                losses.append(found.loss)
                shaped = {
                    name: array.reshape(self.shapes[name])
                    for name, array in found.gradients.items()
                }
                updates.step(shaped, learning_rate(self.optimizer, self.schedule, step))
            path.unlink()
            apart = max([apart, *(abs(other - losses[0]) for other in losses[1:])])
            if not apart <= REPLAY_GROWTH * max(abs(losses[0]), 1.0):
                break
            replay.losses.append(losses[0])
            least = REPLAY_LEAST * self.unit * max(abs(losses[0]), 1.0) if step else 0.0
            replay.allowed.append(
                max(
                    PERTURBED_GRADIENTS * apart, least, self._least_loss(losses[0]), self.loss_noise
                )
            )
        return replay

    def _gradients(self, audited: AuditedStep, weights: Tensors | None) -> Found:
        """Gradients of an audited step, at its weights or at others."""
        paths = audited.paths if self.synchronous else audited.paths[:1]
        return Found(self.referee.audit_gradients(paths, weights, audited.draw), self.trained)

    def _running(
        self, audited: AuditedStep, workers: Sequence[Mapping[str, Array]]
    ) -> dict[str, Array]:
        """Elements of running statistics after a step of the referee, at the weights that it has."""
        path = scratch_file(self.referee.group)
        batch = {
            name: np.concatenate([arrays[name] for arrays in workers])
            for name in ("inputs", "labels")
        }
        batch["inputs"] = as_dtype(batch["inputs"], self.referee.dtype)
        integers = self.referee.workload.loss.reads_integers
        batch["labels"] = batch["labels"].astype(np.int64 if integers else self.referee.dtype)
        write_arrays(path, batch)
        order = np.arange(len(batch["labels"]), dtype=np.int64)[None]
        self.referee.train(path, order, input_mode="memory", first_step=audited.step)
        path.unlink()
        after, draw = self.referee.weights()[0], audited.draw
        return {name: drawn(name, after[name], draw.elements, draw.seed) for name in self.states}

    def _calibrate(
        self,
        audited: AuditedStep,
        workers: Sequence[Mapping[str, Array]],
        found: Found,
        moved: Tensors,
    ) -> None:
        """Measure how far weights move a step that differ by a few units in the last place.

        Running statistics are also measured next to normalised values that are moved as a whole. Where a
        linear layer follows, its mean is little more than that of their shifts, which may be small sums of
        large values; a batch's mean of these is rounded relative to the values.
        """
        self.seed += 1
        weights = _part(workers[0], "weights/")
        other = self._gradients(audited, perturbed(weights, self.seed, self.units))
        for name, array in found.gradients.items():
            if not _sizes_agree(name, other.gradients, found.gradients):
                continue
            share = math.sqrt(array.size / max(self._size(name), 1))
            size = share * max(found.norms[name], self._floor(found))
            apart = norm([other.gradients[name] - array]) / size if size else 0.0
            self.noise[name] = max(self.noise.get(name, 0.0), apart)
        self.loss_noise = max(self.loss_noise, PERTURBED_GRADIENTS * abs(other.loss - found.loss))
        if not moved:
            return
        self.referee.load_weights(self._shifted(perturbed(weights, self.seed, self.units)))
        changed = self._running(audited, workers)
        before = _part(workers[0], "before/")
        for each in change_figures({name: before[name] for name in moved}, changed, moved):
            spread = PERTURBED_GRADIENTS * (each.relative_l2 or 0.0)
            self.state_noise[each.tensor] = max(self.state_noise.get(each.tensor, 0.0), spread)

    @contextmanager
    def _reordered(self, audited: AuditedStep) -> Iterator[AuditedStep]:
        """An audited step with the samples of each worker, and their masks, in another order.

        Each part of a batch that is taken in parts has samples of its own, so those stay.
        """
        if self.optimizer.accumulate > 1:
            yield audited
            return
        paths = []
        for arrays in audited.read()[: len(audited.paths) if self.synchronous else 1]:
            rows = self.generator.permutation(len(arrays["labels"]))
            paths.append(scratch_file(self.referee.group))
            own = [name for name in arrays if name.startswith("masks/")]
            batch = {name: arrays[name][rows] for name in ("inputs", "labels", *own)}
            write_arrays(paths[-1], batch)
        yield replace(audited, paths=tuple(paths))
        for path in paths:
            path.unlink(missing_ok=True)

    def _shifted(self, weights: Tensors) -> dict[str, Array]:
        """Weights, with the shifts of normalised values moved by one unit in the last place of their scales."""
        shifted = dict(weights)
        for name in (each.removesuffix(".mean") for each in self.states if each.endswith(".mean")):
            scale, shift = weights[f"{name}.scale"], weights[f"{name}.bias"]
            sign = self.generator.choice((-1, 1), size=shift.shape)
            shifted[f"{name}.bias"] = shift + sign * np.spacing(np.abs(scale))
        return shifted

    def _size(self, name: str) -> int:
        """How many elements a whole parameter has."""
        return math.prod(self.shapes[name])

    def _floor(self, found: Found) -> float:
        """The norm that the noise of a smaller gradient is relative to."""
        return FLOAT32_SMALL * found.whole

    def _spread(
        self, step: int, start: Tensors, before: Tensors, found: Found, truth: Tensors
    ) -> dict[str, float]:
        """By tensor, how far off its change may be, for its gradient may be.

        Each element of a gradient is moved to the side that changes its step more. Zeros stay zeros, but those
        of a gradient that is nothing but rounding. A first step of Adam goes as far for a small element as for
        a large one, so that one which rounding turns is far off. Few are further off than most, but one of
        those may be it: so what moves such an element further than in proportion counts for several times as
        much noise. A gradient is in proportion to the error of a prediction. A small error is a difference of
        values near 1, whose rounding does not shrink with it, and is another in each kernel.
        """
        noise, least = {}, self.least_gradient
        if self.referee.dtype != self.dtype:
            off = abs(found.loss) ** (1 / self.referee.workload.loss.power)
            least /= min(1.0, max(off, LEAST_LOSS))
        for name in found.gradients:
            share = max(least, PERTURBED_GRADIENTS * self.noise.get(name, 0.0))
            size = share * max(found.norms[name], self._floor(found))
            noise[name] = size / math.sqrt(max(self._size(name), 1))
        moves = {
            name: (array != 0) | (found.norms[name] <= ROUNDED * found.whole)
            for name, array in found.gradients.items()
        }

        def moved(times: float) -> dict[str, Array]:
            most: dict[str, Array] = {}
            for by in (-times, times):
                gradients = {
                    name: array + by * noise[name] * moves[name]
                    for name, array in found.gradients.items()
                }
                after = self._step(step, start, before, gradients, found.norms)
                for name, array in after.items():
                    apart = np.abs(array - truth[name])
                    most[name] = np.maximum(most.get(name, 0.0), apart)
            return most

        near, far = moved(1.0), moved(TURNED)
        # Of weights alone: the state of an optimizer is in proportion to gradients, or to their squares.
        turned = {
            name: np.maximum(far[name] - TURNED * near[name], 0.0) if name in start else 0.0 * array
            for name, array in near.items()
        }
        spread: dict[str, float] = {}
        for sizes in (near, turned):
            other = {name: truth[name] + array for name, array in sizes.items()}
            for each in change_figures(start, other, truth):
                spread[each.tensor] = spread.get(each.tensor, 0.0) + (each.relative_l2 or 0.0)
        return spread

    def _step(
        self,
        step: int,
        start: Tensors,
        before: Tensors,
        gradients: Tensors,
        norms: Mapping[str, float],
    ) -> dict[str, Array]:
        """Weights and optimizer state after a step of the definition, in float64."""
        state = _part(before, "optimizer/")
        updates = Updates(self.optimizer, start, state=state, steps=step)
        updates.step(gradients, learning_rate(self.optimizer, self.schedule, step), norms)
        return {**updates.weights, **updates.state}

    def _roundings(
        self, audited: AuditedStep, workers: Sequence[Mapping[str, Array]]
    ) -> dict[str, Array]:
        """How far a step's roundings of each element go, in those of one, where they are several.

        A framework may add to a table's row once for each time that it is looked up, and round each time, often
        to the same side. Other optimizers than plain descent read the row's whole gradient.
        """
        model = self.referee.workload.model
        tables = {
            f"{node.name}.weight": node.layer
            for node in model.wired()
            if isinstance(node.layer, Embedding)
            and node.inputs == (model.input.name,)
            and not node.weights_of
        }
        if not tables or not isinstance(self.optimizer, SGD) or self.optimizer.momentum:
            return {}
        looked_up = np.concatenate([arrays["inputs"].ravel() for arrays in workers])
        found = {}
        for name, table in tables.items():
            times = np.bincount(looked_up.astype(np.int64), minlength=table.entries)
            each = np.maximum(np.sqrt(times), times / 4).clip(min=1.0)
            whole = np.repeat(each[: table.entries], table.features)
            found[name] = drawn(name, whole, audited.draw.elements, audited.draw.seed)
        return found

    def _rounding(
        self, tensor: str, before: Tensors, expected: Tensors, times: Array | None
    ) -> float:
        """What one unit in the last place of every weight, or so many, makes of the distance of its change."""
        if tensor not in before:
            return 0.0
        units = changes = 0.0
        times = np.ones(expected[tensor].size) if times is None else times
        for after, start, several in pieces(expected[tensor], before[tensor], times):
            place = np.spacing(np.abs(after).astype(self.dtype)).astype(np.float64) * several
            change = after - start
            units += inner_product(place, place)
            changes += inner_product(change, change)
        size = max(math.sqrt(changes), CHANGE_LEAST * norm([before[tensor]]))
        return ROUNDED_UNITS * math.sqrt(units) / size if size else 0.0

    def _least_loss(self, loss: float) -> float:
        """The least difference of a loss that is more than rounding."""
        return self.least * max(abs(loss), 1.0)


def _in_units_of(scale: float, found: Figure) -> Figure:
    """A figure whose distance is relative to something larger."""
    if found.relative_l2 is None or scale == 1.0:
        return found
    return msgspec.structs.replace(found, relative_l2=found.relative_l2 / scale)


def _sizes_agree(name: str, *sides: Tensors) -> bool:
    """Whether all sides have a tensor, of one size."""
    return all(name in side for side in sides) and len({side[name].size for side in sides}) == 1


class Found:
    """Loss and elements of gradients, as the referee computed them.

    Attributes:
        loss: the mean loss.
        gradients: elements by ``layer.parameter``, flat, float64.
        norms: of each whole gradient.
        whole: the norm of all gradients together.
    """

    def __init__(self, arrays: Mapping[str, Array], trained: Sequence[str]) -> None:
        self.loss = float(arrays["loss"])
        found, norms = _part(arrays, "gradients/"), _part(arrays, "norms/")
        self.gradients = {name: found[name].astype(np.float64) for name in trained if name in found}
        self.norms = {name: float(norms[name]) for name in self.gradients}
        self.whole = math.hypot(*self.norms.values())


def check_steps(
    check: Check,
    judged: Sequence[JudgedStep],
    audited: StepsAudited,
    changed: Mapping[int, Sequence[str]] | None = None,
    tested: Mapping[int, Sequence[str]] | None = None,
) -> CheckResult:
    """The verdict about what the judged steps changed, and what changed between two steps.

    Args:
        changed: by step, from 0, weights and state that changed after the step before it.
        tested: by number of steps before it, those that a test of the model changed.
    """
    by_tensor: dict[str, tuple[float, Figure, float]] = {}
    for each in judged:
        for figure in each.figures:
            row = (each.multiple(figure), figure, each.allowed[figure.tensor])
            if figure.tensor not in by_tensor or row[0] > by_tensor[figure.tensor][0]:
                by_tensor[figure.tensor] = row
    # Of what passes, first what tells something.
    ordered = sorted(
        by_tensor.values(), key=lambda row: (row[0] <= 1.0 and row[2] >= TELLING, -row[0])
    )
    wrong = [each for each in judged if each.wrong]
    findings = [Finding(cause=audited)]
    if wrong:
        first = min(wrong, key=lambda each: each.step)
        figure = first.worst[1]
        cause = StepDiffers(step=first.step, steps=len(wrong), nothing=first.nothing)
        tolerance = first.allowed[figure.tensor]
        findings.insert(0, Finding(cause=cause, figure=figure, tolerance=tolerance))
    tested = tested or {}
    # A step after a test also begins with what the test changed.
    others = {step: names for step, names in (changed or {}).items() if step not in tested}
    between = [_state_changed(each, number) for number, each in enumerate((others, tested)) if each]
    findings[:0] = between
    if not wrong and not between and LEAST_JUDGED * audited.judged < audited.audited:
        few = TooFewJudged(judged=audited.judged, audited=audited.audited)
        return check.not_run(Finding(cause=few), *findings)
    figures = tuple(figure for _, figure, _ in ordered)
    allowed = ordered[0][2] if ordered else None
    passed = bool(figures) and not wrong and not between
    return check.result(figures, allowed, findings, passed=passed)


def _state_changed(changed: Mapping[int, Sequence[str]], tested: int) -> Finding:
    """The finding about the first of some places between steps where something changed."""
    first = min(changed)
    tensors = tuple(changed[first][:LISTED])
    cause = StateChanged(step=first, steps=len(changed), tensors=tensors, tested=bool(tested))
    return Finding(cause=cause)


def check_losses(
    check: Check, judged: Sequence[JudgedStep], replay: Replay, losses: Array
) -> CheckResult:
    """The verdict about the losses that steps told.

    Args:
        losses: float64 [steps], of the whole run.
    """
    findings, compared = [], []
    wrong = sorted(
        (each for each in judged if each.loss_multiple > 1.0), key=lambda each: each.step
    )
    for each in judged:
        compared.append((each.loss_multiple, each.true_loss, each.loss, each.loss_allowed))
    for step, (loss, allowed) in enumerate(zip(replay.losses, replay.allowed)):
        apart = abs(float(losses[step]) - loss)
        multiple = apart / allowed if math.isfinite(apart) else math.inf
        compared.append((multiple, loss, float(losses[step]), allowed))
    replayed = replay.apart(losses)
    if wrong:
        first = wrong[0]
        cause = LossDiffers(
            step=first.step,
            steps=len(wrong),
            told=_finite(first.loss),
            expected=_finite(first.true_loss),
        )
        findings.append(Finding(cause=cause))
    if replayed:
        step = replayed[0]
        cause = LossDiffers(
            step=step,
            steps=len(replayed),
            told=_finite(float(losses[step])),
            expected=replay.losses[step],
            replayed=True,
        )
        findings.append(Finding(cause=cause))
    _, true, told, allowed = max(compared, key=lambda row: row[0])
    scale = max(abs(true), 1.0)
    relative = _finite(abs(told - true) / scale)
    largest = _finite(abs(told - true))
    figure = Figure(tensor="loss", relative_l2=relative, largest=largest)
    return check.result((figure,), allowed / scale, findings, passed=not findings)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _part(arrays: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    """The arrays whose names begin so, by the rest of their names."""
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }
