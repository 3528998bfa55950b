"""What training steps of a built model change, against the optimizer's definition.

That is weights, optimizer state and running statistics.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dlb.proof.certificate import CheckGroup, CheckResult, Divergent
from dlb.proof.checks.backward import check_gradient_shapes
from dlb.proof.divergence import Changes, observed_steps
from dlb.proof.engine import Check, Keep, infinite_cause
from dlb.proof.findings import Figure, Finding
from dlb.proof.findings.common import NotFinite, StepsCompared
from dlb.proof.findings.workload import NoWeightMoves, Otherwise, TrainedNotFinite
from dlb.proof.reference import Reference
from dlb.proof.rounding import to_bfloat16
from dlb.proof.update_batches import UpdateBatches
from dlb.supervision.remote import RemoteModel
from dlb_graph.comparing.distance import figure, inner_product, norm, pieces, worst_first
from dlb_graph.comparing.near_steps import MOST_NUMBERS, steps_otherwise
from dlb_graph.comparing.tolerances import (
    CHANGE_LEAST,
    CHANGE_SEEN,
    FLOAT32_LEAST,
    FLOAT64_TOLERANCE,
    ROUNDED,
    RUNNING_LEAST,
    Tensors,
    norm_floor,
)
from dlb_graph.comparing.updates import Updates
from dlb_graph.workload import Workload, learning_rate, state_names
from dlb_graph.workload.shapes import trained_names

__all__ = [
    "Steps",
    "change_figures",
    "check_changes",
    "prove_updates",
    "shows_change",
]

Array = npt.NDArray[Any]
Losses = Sequence[tuple[float, float]]
#: In float32, what is so many times nearer than what is meant is what was computed.
NEARER = 8.0


def prove_updates(
    model: RemoteModel,
    reference: Reference,
    batches: UpdateBatches,
    adapter: str,
    *,
    input_mode: str,
    groups: Collection[CheckGroup],
    keep: Keep,
    folder: Path,
    notes: Sequence[Finding] = (),
) -> tuple[dict[int, Changes], Divergent | None]:
    """Check the changes of the first step and of all steps, in a new model built in float64.

    Before each step the adapter computes the gradients, and NumPy takes the same step with them.

    Args:
        input_mode: ``pipeline`` or ``memory``.
        folder: folder for the changes; it is created.
        notes: facts about the comparison.

    Returns:
        changes by number of steps, for the comparison with other adapters and with float32; empty if the
        group ``trajectory`` was not asked for, or if the trajectory diverges. And where the truth's
        gradients are not finite at NumPy's own weights either, so that it does; None if nowhere.
    """
    workload = model.workload
    last = len(batches.order) - 1 if "trajectory" in groups else 0
    observed = observed_steps(last + 1) if "trajectory" in groups else ()
    changes: dict[int, Changes] = {}
    folder.mkdir()
    states, start = state_names(reference.model), reference.weights
    parts = workload.optimizer.accumulate
    trained = {name: start[name] for name in trained_names(reference.model)}
    updates, taken = Updates(workload.optimizer, trained), Steps(workload, trained)
    moved: set[str] = set()
    finite = True
    losses: list[tuple[float, float]] = []
    began = time.perf_counter()
    for step, rows in enumerate(batches.order[: last + 1]):
        inputs, labels = batches.inputs[rows], batches.labels[rows]
        judged = step in (0, last)
        running: dict[str, Array] = {}
        if judged and states:
            before = start if step == 0 else model.weights()[0]
            running = reference.running(before, inputs, parts=parts)
        gradients = model.step_gradients(inputs, labels)
        check_gradient_shapes(gradients, reference.model)
        own, was_finite, finite = {**start, **updates.weights}, finite, _is_finite(gradients)
        if was_finite and not finite and _diverges(reference, own, inputs, labels):
            note = Finding(cause=TrainedNotFinite())
            check = Check.of("trajectory", adapter)
            if step == 0:
                keep(Check.of("update", adapter).not_run(note))
                keep(check.not_run(note))
            else:
                # Running statistics of the step before are not known here; `update` has judged the first.
                held = model.weights_and_slots()
                after = {name: array for name, array in held.items() if name not in states}
                truth = updates.weights | updates.state
                result = check_changes(check, step, start, after, truth, {}, losses, note, *notes)
                keep(result)
            return {}, Divergent(run="trajectory", step=step)
        # NumPy's steps with gradients that are not finite say nothing of what the workload computes.
        finite = finite and was_finite
        sizes = {name: float(np.linalg.norm(gradients[name])) for name in trained}
        whole = float(np.linalg.norm(list(sizes.values())))
        # Adam also takes large steps from gradients that are rounding, and these differ between
        # adapters. The comparison is negated so that a NaN does not count as rounding.
        moved |= {name for name, size in sizes.items() if not size <= ROUNDED * whole}
        number = batches.numbers[step]
        updates.step(gradients, learning_rate(workload.optimizer, workload.schedule, number))
        taken.add(number, gradients)
        # Starting a pipeline costs more than a step, so steps without a check read from memory.
        source = input_mode if judged else "memory"
        trained_step = model.train(
            batches.path(model.dtype),
            rows[None],
            input_mode=source,
            first_step=step,
            numbers=(number,),
        )
        losses.append((float(trained_step.losses[0]), float(gradients["loss"])))
        if not judged and step + 1 not in observed:
            continue
        after = model.weights_and_slots()
        if step + 1 in observed:
            path = folder / f"{step + 1}.npz"
            changes[step + 1] = Changes.write(path, trained, after, frozenset(moved))
        if not judged:
            continue
        truth = updates.weights | updates.state
        for at, name in ((0, "update"), (last, "trajectory")):
            if step == at:
                took = time.perf_counter() - began
                check = Check.of(name, adapter)
                result = check_changes(
                    check, step + 1, start, after, truth, running, losses, *notes
                )
                result = taken.explained(result, after)
                keep(msgspec.structs.replace(result, seconds=took))
                if step == last and result.verdict == "not run":
                    # These changes are rounding, in which adapters need not agree.
                    changes = {at: Changes(kept.path) for at, kept in changes.items()}
    return changes, None


class Steps:
    """The first steps of a model, to explain what they changed if that is wrong.

    Args:
        weights: trained, before the first step.
    """

    def __init__(self, workload: Workload, weights: Tensors) -> None:
        self.workload, self.weights = workload, weights
        self._numbers: list[int] = []
        self._gradients: list[Tensors] = []

    def add(self, number: int, gradients: Tensors) -> None:
        """Add a step with its number and its gradients, unless they are too many to search."""
        size = sum(array.size for array in self.weights.values())
        if size * (len(self._numbers) + 1) <= MOST_NUMBERS:
            self._gradients.append(gradients)
        self._numbers.append(number)

    def _beyond_rounding(self, after: Tensors) -> Tensors:
        """What belongs to parameters whose gradients are more than float32's rounding of the others."""
        least = FLOAT32_LEAST * NEARER * norm(self._gradients[0][name] for name in self.weights)
        seen = {name for name in self.weights if norm([self._gradients[0][name]]) > least}
        return {
            name: array
            for name, array in after.items()
            if name in seen or name.rpartition(".")[0] in seen
        }

    def explained(self, result: CheckResult, after: Tensors) -> CheckResult:
        """The result of the steps, with what was otherwise in them, if one thing explains what they changed."""
        if result.verdict != "failed" or len(self._gradients) < len(self._numbers):
            return result
        optimizer, schedule = self.workload.optimizer, self.workload.schedule

        def rates(by: int) -> list[float]:
            numbers = (max(0, number + by) for number in self._numbers)
            return [learning_rate(optimizer, schedule, number) for number in numbers]

        others = {
            "as one step later": rates(1),
            "as one step earlier": rates(-1),
            "without its schedule": [optimizer.learning_rate] * len(self._numbers),
            "0": [0.0] * len(self._numbers),
            "rounded to float32": [float(np.float32(rate)) for rate in rates(0)],
            "rounded to bfloat16": [float(to_bfloat16(np.array(rate))) for rate in rates(0)],
        }
        tolerance = FLOAT64_TOLERANCE
        if result.group == "float32" and result.worst is not None:
            tolerance = result.worst.distance / NEARER
            after = self._beyond_rounding(after)
        fields = steps_otherwise(
            optimizer, self.weights, self._gradients, after, rates(0), others, tolerance
        )
        findings = [Finding(cause=Otherwise(fields=fields))] if fields else []
        return msgspec.structs.replace(result, findings=(*result.findings, *findings))


def _is_finite(gradients: Tensors) -> bool:
    """Whether float32 holds every number; squares of larger ones overflow in float64, too."""
    largest = np.finfo(np.float32).max
    return all(bool((np.abs(array) < largest).all()) for array in gradients.values())


def _diverges(reference: Reference, weights: Tensors, inputs: Array, labels: Array) -> bool:
    """Whether the truth's gradients are not finite either.

    Args:
        weights: those that NumPy's own steps reached: an adapter whose step put a NaN into its weights does
            not excuse the NaN that follows from it.
    """
    own = Reference(reference.model, weights, inputs, labels, reference.masks, reference.loss)
    with np.errstate(all="ignore"):
        return not _is_finite(own.gradients(own.training_layers))


def check_changes(
    check: Check,
    steps: int,
    start: Tensors,
    after: Tensors,
    truth: Tensors,
    running: Tensors,
    losses: Losses = (),
    *notes: Finding,
) -> CheckResult:
    """Compare changes, not weights: an error of the learning rate is small relative to a weight.

    Args:
        start: weights and running statistics before the first step; other tensors start at zero.
        after: weights, running statistics and state (``layer.parameter.slot``) after the last step.
        truth: expected trained weights and state.
        running: expected running statistics.
        losses: of each step, the loss that the step returned, and that of the gradients before it.
        notes: facts about the comparison.
    """
    if not shows_change(start, truth):
        return check.not_run(Finding(cause=NoWeightMoves(steps=steps)))
    expected = {**truth, **running}
    ordered = change_figures(start, after, expected, running)
    if losses:
        returned, own = np.array(losses, np.float64).T
        ordered = worst_first([*ordered, figure("loss", returned, own)])
    findings = []
    if ordered and ordered[0].relative_l2 is None:
        name = ordered[0].tensor
        cause = (
            infinite_cause(name, after.get(name), expected.get(name))
            if name != "loss"
            else NotFinite()
        )
        findings += [Finding(cause=cause, figure=ordered[0])] if cause else []
    findings.append(Finding(cause=StepsCompared(steps=steps)))
    return check.result(ordered, FLOAT64_TOLERANCE, (*findings, *notes))


def shows_change(start: Tensors, truth: Tensors) -> bool:
    """Whether any trained weight should have changed by more than rounding. A NaN counts as a change."""
    for name in start.keys() & truth.keys():
        apart = (after - before for after, before in pieces(truth[name], start[name]))
        moved = math.sqrt(sum(inner_product(piece, piece) for piece in apart))
        if not moved <= CHANGE_SEEN * norm([start[name]]):
            return True
    return False


def change_figures(
    start: Tensors, after: Tensors, truth: Tensors, running: Collection[str] = ()
) -> tuple[Figure, ...]:
    """The distances of the changes from the expected changes, worst first.

    Args:
        running: names of running statistics: they move by sums over a whole batch, which have more rounding.
    """
    collected = []
    slots: dict[str, dict[str, Array]] = {}
    for tensor, array in truth.items():
        if tensor not in start:
            slots.setdefault(tensor.rsplit(".", 1)[1], {})[tensor] = array
    floors = {slot: norm_floor(tensors) for slot, tensors in slots.items()}
    for tensor in {**truth, **after}:
        expected, own = truth.get(tensor), after.get(tensor)
        if expected is None or own is None or own.shape != expected.shape:
            collected.append(Figure(tensor=tensor, relative_l2=None, largest=None))
            continue
        before = start.get(tensor)
        if before is None:
            least = floors[tensor.rsplit(".", 1)[1]]
        else:
            share = RUNNING_LEAST if tensor in running else CHANGE_LEAST
            least = share * norm([before])
        collected.append(figure(tensor, own, expected, least, before))
    return worst_first(collected)
