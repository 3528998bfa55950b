"""Single steps that the trajectory of an adapter does not take: clipped ones, and those of the timed batch."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.execution.models import Stage, drop_at_end
from dlb.proof.certificate import CheckResult
from dlb.proof.checks.backward import (
    loss_gradients,
    own_gradients,
    step_gradients,
)
from dlb.proof.checks.updates import Steps, check_changes
from dlb.proof.engine import Check, judged, run
from dlb.proof.findings import Finding
from dlb.proof.findings.workload import Clipping, SmallerBatch
from dlb.proof.reference import Reference
from dlb.proof.subject import Sides
from dlb.proof.update_batches import as_dtype
from dlb.supervision.group import Group
from dlb.supervision.remote import RemoteModel, scratch_file, write_arrays
from dlb_graph.comparing.tolerances import FLOAT64_TOLERANCE, Tensors
from dlb_graph.comparing.updates import Updates
from dlb_graph.workload import learning_rate, state_names
from dlb_graph.workload.shapes import trained_names

__all__ = ["prove_clipping", "prove_timed_batch", "smaller_batch"]

#: How far the other limit of clipping is from the gradient's norm, its largest element, or the largest norm
#: of a parameter's.
CLIPPED, UNCLIPPED = 0.5, 4.0


def prove_clipping(stage: Stage, group: Group) -> None:
    """Check one step on the other side of the limit: clipped where ``update`` is not, or the reverse.

    The limit is moved, and not the gradient, since no weights give every network a gradient of any norm.
    """
    reference = stage.prepared.references.first_update
    optimizer = stage.request.workload.optimizer
    name = optimizer.clipping
    limit = getattr(optimizer, name)
    by_value, by_variable = name == "clip_value", name == "clip_variable_norm"
    size = reference.gradient_norm
    if by_value or by_variable:
        size = reference.largest_gradient if by_value else reference.largest_norm
    other = size * (CLIPPED if size <= limit else UNCLIPPED)
    cause = Clipping(
        norm=size, limit=limit, other=other, by_value=by_value, by_variable=by_variable
    )
    note = Finding(cause=cause)
    check = Check.of("clipping", stage.adapter)
    batch = len(reference.inputs)
    notes = (note, *stage.maps)
    with drop_at_end(stage.build(group, "float64", batch, clip=other, of=reference)) as model:
        stage.keep(run(check, lambda check: _one_step(check, model, reference, "memory", *notes)))


def prove_timed_batch(stage: Stage, group: Group) -> None:
    """Check forward pass, gradients and a step at the batch size of one worker.

    A kernel may be wrong for some sizes alone, and a pipeline may lose the last samples of a large batch.
    """
    request, reference = stage.request, stage.prepared.references.timed
    samples = len(reference.inputs)
    notes = smaller_batch(stage)
    last = reference.model.nodes[-1].name
    names = [node.name for node in reference.model.nodes]
    inputs = as_dtype(reference.inputs, "float64")

    def forward() -> Sides:
        found = {last: model.forward(inputs)[last], f"{last}, training": values[last]}
        # In this order, logits that are the same in both modes are computed once.
        in_training = reference.training_layers[last]
        truth = {last: reference.logits, f"{last}, training": in_training}
        return Sides(found, truth, tolerance=FLOAT64_TOLERANCE, facts=notes)

    def gradients() -> Sides:
        return loss_gradients(model, reference, values, own(), *notes)

    def step(check: Check) -> CheckResult:
        whole = own() if request.workload.optimizer.accumulate == 1 else None
        return _one_step(check, model, reference, request.input, *notes, gradients=whole)

    with drop_at_end(stage.build(group, "float64", samples)) as model:
        values = model.forward(inputs, training=True, layers=names)
        own = cache(partial(own_gradients, model, reference))
        for name, compare in (
            ("forward float64, timed batch", judged(forward)),
            ("gradients float64, timed batch", judged(gradients)),
            ("update, timed batch", step),
        ):
            check = Check.of(name, stage.adapter)
            if check.group in request.groups:
                stage.keep(run(check, compare))


def smaller_batch(stage: Stage) -> tuple[Finding, ...]:
    """That the batch which is compared is smaller than the one which is timed, if it is."""
    samples = len(stage.prepared.references.timed.inputs)
    timed = stage.request.shares[0]
    if samples >= timed:
        return ()
    return (Finding(cause=SmallerBatch(samples=samples, timed=timed)),)


def _one_step(
    check: Check,
    model: RemoteModel,
    reference: Reference,
    input_mode: str,
    *notes: Finding,
    gradients: Tensors | None = None,
) -> CheckResult:
    """Compare what one step on the reference's batch changes with the optimizer's definition."""
    workload, start = model.workload, reference.weights
    gradients = gradients or step_gradients(model, reference)
    parts = workload.optimizer.accumulate
    trained = {name: start[name] for name in trained_names(reference.model)}
    updates, taken = Updates(workload.optimizer, trained), Steps(workload, trained)
    taken.add(0, gradients)
    updates.step(gradients, learning_rate(workload.optimizer, workload.schedule, 0))
    data = scratch_file(model.group)
    inputs = as_dtype(reference.inputs, model.dtype)
    labels = as_dtype(reference.labels, model.dtype)
    write_arrays(data, {"inputs": inputs, "labels": labels})
    order = np.arange(len(inputs), dtype=np.int64)[None]
    step = model.train(data, order, input_mode=input_mode)
    after = model.weights_and_slots()
    running: dict[str, npt.NDArray[Any]] = {}
    if state_names(reference.model):
        running = reference.running(start, reference.inputs, parts=parts)
    losses = [(float(step.losses[0]), float(gradients["loss"]))]
    truth = updates.weights | updates.state
    result = check_changes(check, 1, start, after, truth, running, losses, *notes)
    return taken.explained(result, after)
