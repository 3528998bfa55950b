"""``update`` and ``trajectory``: what training steps change, against the optimizer's definition.

Weights, optimizer state and running statistics of a built model; the weights of a port, whose steps are
the definition's, each model's with its own gradients.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dlb.proof.certificate import Baseline, CheckGroup, CheckResult, Divergent
from dlb.proof.checks.agreement import comparable_steps, error_growth
from dlb.proof.checks.gradients import check_gradient_shapes
from dlb.proof.distance import figure, infinite_cause, inner_product, norm, pieces, worst_first
from dlb.proof.divergence import Changes, observed_steps
from dlb.proof.engine import Check, Keep
from dlb.proof.findings import Figure, Finding
from dlb.proof.findings.common import NotFinite, StepsCompared
from dlb.proof.findings.workload import NoWeightMoves, TrainedNotFinite
from dlb.proof.port.comparison import PortComparison
from dlb.proof.reference import Reference
from dlb.proof.tolerances import (
    CHANGE_LEAST,
    CHANGE_SEEN,
    FLOAT64_TOLERANCE,
    ROUNDED,
    RUNNING_LEAST,
    SMALL,
    STEP_SCALE,
    Tensors,
    norm_floor,
)
from dlb.proof.update_batches import UpdateBatches
from dlb.proof.updates import Updates
from dlb.supervision.remote import RemoteModel
from dlb.workload import SGD, learning_rate, state_names
from dlb.workload.shapes import trained_names

__all__ = [
    "DEFINITION",
    "change_figures",
    "check_changes",
    "check_port_trajectory",
    "check_trajectory",
    "check_update",
    "prove_updates",
    "shows_change",
]

Array = npt.NDArray[Any]
Losses = Sequence[tuple[float, float]]
DEFINITION = Baseline(kind="optimizer_definition")
#: Steps of a port's trajectory, and their momentum. The first step changes the weights by this share of
#: their norm: enough to change the gradients, whatever the scale of the outputs.
PORT_STEPS, PORT_MOMENTUM, PORT_STEP_SHARE = 5, 0.9, 0.01


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
) -> tuple[dict[int, Changes], Divergent | None]:
    """Check the changes of the first step and of all steps, in a new model built in float64.

    Before each step the adapter computes the gradients, and NumPy takes the same step with them.

    Args:
        input_mode: ``pipeline`` or ``memory``.
        folder: folder for the changes; it is created.

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
    updates = Updates(workload.optimizer, trained)
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
            check = Check("trajectory", "trajectory", adapter, DEFINITION)
            if step == 0:
                keep(Check("update", "update", adapter, DEFINITION).not_run(note))
                keep(check.not_run(note))
            else:
                # Running statistics of the step before are not known here; `update` has judged the first.
                moved_weights = model.weights()[0]
                after = {name: moved_weights[name] for name in moved_weights if name not in states}
                after |= model.optimizer_state()
                truth = updates.weights | updates.state
                keep(check_changes(check, step, start, after, truth, {}, losses, note))
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
        after = model.weights()[0]
        if step + 1 in observed:
            path = folder / f"{step + 1}.npz"
            changes[step + 1] = Changes.write(path, trained, after, frozenset(moved))
        if not judged:
            continue
        after |= model.optimizer_state()
        truth = updates.weights | updates.state
        for at, judge in ((0, check_update), (last, check_trajectory)):
            if step == at:
                took = time.perf_counter() - began
                result = judge(adapter, step + 1, start, after, truth, running, losses)
                keep(msgspec.structs.replace(result, seconds=took))
                if step == last and result.verdict == "not run":
                    # These changes are rounding, in which adapters need not agree.
                    changes = {at: Changes(kept.path) for at, kept in changes.items()}
    return changes, None


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


def check_port_trajectory(check: Check, port: PortComparison) -> CheckResult:
    """Compare the changes of some steps in a user's model with those in the reference.

    A user's model has no optimizer. So NumPy takes the steps, with momentum, and with each model's own
    gradients at its own weights. Each step uses other cotangents.
    """
    truth, training = port.truth, port.randomness is None
    pairs, start, gradients = [], {}, {}
    for pair in port.pairs:
        own = pair.of_source(truth.gradients(training).parameters)
        weight = pair.of_source(port.weights)
        if (
            own is not None
            and weight is not None
            and pair.of_target(port.gradients.parameters) is not None
        ):
            pairs.append(pair)
            start[pair.source.name], gradients[pair.source.name] = weight, own
    size, slope = norm(start.values()), norm(gradients.values())
    if not size or not slope or not math.isfinite(size * slope):
        return check.not_run(Finding(cause=NoWeightMoves(steps=PORT_STEPS)))
    # A power of two does not depend on the order in which squares are added.
    rate = 2.0 ** round(math.log2(PORT_STEP_SHARE * size / slope))
    optimizer = SGD(learning_rate=rate, momentum=PORT_MOMENTUM)

    def reference(step: int, weights: Tensors) -> Tensors:
        truth.model.remote.load_weights(
            _merged(pair.to_source(weights[pair.source.name]) for pair in pairs)
        )
        cotangents = truth.step_cotangents(step)
        found = truth.model.gradients(truth.inputs, cotangents, training)
        return port.by_reference_names(found, truth.model)

    def model(step: int, weights: Tensors) -> Tensors:
        port.model.remote.load_weights(
            _merged(pair.to_target(weights[pair.source.name]) for pair in pairs)
        )
        cotangents = truth.step_cotangents(step)
        found = port.model.gradients(truth.inputs, cotangents, training)
        return port.by_reference_names(found, port.model)

    scaled_optimizer = msgspec.structs.replace(
        optimizer, learning_rate=optimizer.learning_rate * (1 + STEP_SCALE)
    )
    try:
        expected = _step_changes(reference, start, optimizer)
        perturbed = _step_changes(reference, start, scaled_optimizer)
        actual = _step_changes(model, start, optimizer)
    finally:
        # Other models are compared with the same reference.
        truth.model.remote.load_weights(dict(port.weights))
        port.model.remote.load_weights(port.carried_weights)
    growth = {step: error_growth(expected[step], perturbed[step]) for step in expected}
    steps, finding = comparable_steps(expected, growth)
    least = norm_floor(expected[steps], SMALL)
    compared = worst_first(
        figure(name, actual[steps][name], expected[steps][name], least) for name in start
    )
    return check.result(compared, FLOAT64_TOLERANCE, (finding,))


def _merged(parts: Iterable[Tensors]) -> dict[str, Array]:
    return {name: array for part in parts for name, array in part.items()}


def _step_changes(
    gradients: Callable[[int, Tensors], Tensors], start: Tensors, optimizer: SGD
) -> dict[int, dict[str, Array]]:
    """The changes of weights after each observed step.

    Args:
        gradients: computes the gradients of a step at given weights.
    """
    updates, observed = Updates(optimizer, start), observed_steps(PORT_STEPS)
    moved: dict[int, dict[str, Array]] = {}
    for step in range(PORT_STEPS):
        updates.step(gradients(step, updates.weights), optimizer.learning_rate)
        if step + 1 in observed:
            moved[step + 1] = {name: updates.weights[name] - start[name] for name in start}
    return moved


def check_update(
    adapter: str,
    steps: int,
    start: Tensors,
    after: Tensors,
    truth: Tensors,
    running: Tensors,
    losses: Losses = (),
) -> CheckResult:
    """Compare the changes of one step, state and running statistics included, with the definition."""
    check = Check("update", "update", adapter, DEFINITION)
    return check_changes(check, steps, start, after, truth, running, losses)


def check_trajectory(
    adapter: str,
    steps: int,
    start: Tensors,
    after: Tensors,
    truth: Tensors,
    running: Tensors,
    losses: Losses = (),
) -> CheckResult:
    """Compare the changes of many steps with the definition, applied to the adapter's own gradients."""
    check = Check("trajectory", "trajectory", adapter, DEFINITION)
    return check_changes(check, steps, start, after, truth, running, losses)


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
