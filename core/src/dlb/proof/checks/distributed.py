"""``distributed``: several workers compared with one worker."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from typing import Any

import numpy as np

from dlb.proof.findings import Finding
from dlb.proof.findings.workload import SchedulePlayed, WorkersCompared, WorkersDisagree
from dlb.proof.subject import Sides
from dlb.supervision.remote import Draw
from dlb_graph.comparing.asynchronous import Play, counted
from dlb_graph.comparing.distance import figures, same_bits
from dlb_graph.comparing.reduction import known_gradients, other_samples, reductions
from dlb_graph.comparing.tolerances import FLOAT64_TOLERANCE, Tensors
from dlb_graph.comparing.updates import Updates
from dlb_graph.workload import Workload
from dlb_graph.workload.shapes import trained_names
from dlb_worker.parts import shares as shares_of
from dlb_worker.sampling import drawn

__all__ = ["ScheduleTaken", "StepsTaken", "compare_schedule", "compare_workers"]

Gradients = Callable[[Any, Any, int], Tensors]
#: Steps that lie this near are one: a step is a small difference of weights.
STEP = 1e-6


@dataclass(frozen=True)
class StepsTaken:
    """Steps that K workers took, or one.

    Attributes:
        workers: how many; one process may hold them all, as replicas.
        steps: how many.
        draw: which elements of gradients the workers wrote.
        audited: of the first steps, by rank, what :meth:`dlb.supervision.remote.RemoteTraining.audit` wrote.
        end: by rank, weights, and the optimizer's state as ``optimizer/NAME``, after the last step.
        shares: into how many shares a batch was divided; 0: one for each rank.
    """

    workers: int
    steps: int
    draw: Draw
    audited: Sequence[Sequence[Tensors]]
    end: Sequence[Tensors]
    shares: int = 0


@dataclass(frozen=True)
class ScheduleTaken:
    """Steps that asynchronous workers took in parts, one at a time.

    Attributes:
        parts: ranks and the parts of their steps, in the order of time.
        end: by rank, weights and more.
        staleness: by rank, of each push; empty where a worker does not know it.
    """

    parts: Sequence[tuple[int, str]]
    end: Sequence[Tensors]
    staleness: Sequence[Sequence[int]]


def compare_schedule(taken: ScheduleTaken, play: Play) -> Sides:
    """What asynchronous workers hold, and NumPy, after the same schedule."""
    compared, faults, right = play.compare(taken.parts, taken.end, taken.staleness)
    fact = SchedulePlayed(
        workers=play.workers, steps=len(right.staleness[0]), staleness=counted(right.staleness)
    )
    return Sides(
        figures=compared,
        tolerance=FLOAT64_TOLERANCE,
        faults=tuple(Finding(cause=cause) for cause in faults),
        facts=(Finding(cause=fact),),
    )


def compare_workers(
    workers: StepsTaken,
    single_worker: StepsTaken,
    gradients: Gradients,
    workload: Workload,
    own_states: Collection[str] = (),
) -> Sides:
    """What K workers hold and one worker, after the same steps on the same global batches.

    Args:
        gradients: of inputs and labels in one worker, of which the first has a row of the dropout masks.
        own_states: states that each worker has of its own, such as statistics of its share.
    """
    (single,), ends = single_worker.end, workers.end
    expected = {name: array for name, array in single.items() if name not in own_states}
    weights = [name for name in expected if not name.startswith("optimizer/")]
    # An adapter need not tell the state of an optimizer that runs elsewhere.
    compared = [
        figures(end, {n: expected[n] for n in expected if n in weights or n in end}) for end in ends
    ]
    apart = [name for name in weights if any(not same_bits(e[name], ends[0][name]) for e in ends)]
    (whole,), optimizer = single_worker.audited[0], workload.optimizer
    shares = shares_of(len(whole["labels"]), workers.shares or len(ends), optimizer.accumulate)
    faults: list[Any] = []
    for step, (parts, (batch,)) in enumerate(zip(workers.audited, single_worker.audited)):
        faults = faults or [*other_samples(parts, batch, shares, step)]
    told, held = (
        [_named(each, prefix) for each in workers.audited[0]]
        for prefix in ("reduced/", "placed/after/")
    )
    names, draw = trained_names(workload.model), workers.draw
    if all(told):

        def of_rows(first: int, end: int, row: int) -> dict[str, Any]:
            rows = slice(first, end)
            found = gradients(whole["inputs"][rows], whole["labels"][rows], row)
            return {name: found[name] for name in names}

        def elements(whole: Tensors) -> dict[str, Any]:
            return {n: drawn(n, array, draw.elements, draw.seed) for n, array in whole.items()}

        mean = of_rows(0, sum(shares), 0)
        scales, limit = Updates(optimizer, mean).scales(mean), optimizer.clip_value or np.inf
        clipped = {n: np.clip(a * scales.get(n, 1.0), -limit, limit) for n, a in mean.items()}
        known = cache(partial(known_gradients, lambda *rows: elements(of_rows(*rows)), shares))
        # A strategy may tell them before or after they are clipped.
        true = (elements(clipped), elements(mean))
        found = (reductions(told, m, held, FLOAT64_TOLERANCE, known) for m in true)
        faults += sorted(found, key=len)[0]
    if not faults and any(item.distance > FLOAT64_TOLERANCE for item in chain(*compared)):
        steps = [_moves(each, names) for each in workers.audited[0]]
        faults += reductions(steps, _moves(single_worker.audited[0][0], names), held, STEP)
    facts: list[Any] = [WorkersDisagree(tensors=tuple(apart))] if apart else []
    facts.append(WorkersCompared(workers=workers.workers, steps=workers.steps, gradients=all(told)))
    return Sides(
        figures=tuple(item for by_tensor in compared for item in by_tensor),
        tolerance=FLOAT64_TOLERANCE,
        faults=tuple(Finding(cause=cause) for cause in faults),
        facts=tuple(Finding(cause=cause) for cause in facts),
    )


def _named(arrays: Tensors, prefix: str) -> dict[str, Any]:
    """The arrays whose names begin so, by the rest of their names; marks as true and false."""
    found = {n[len(prefix) :]: array for n, array in arrays.items() if n.startswith(prefix)}
    return {n: array != 0 for n, array in found.items()} if prefix[:7] == "placed/" else found


def _moves(step: Tensors, names: Collection[str]) -> dict[str, Any]:
    """What an audited step added to weights."""
    return {name: step[f"after/{name}"] - step[f"before/{name}"] for name in names}
