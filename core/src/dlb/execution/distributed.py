"""Training with several workers and with one worker on the same global batches."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.capabilities import Capabilities
from dlb.errors import UnsupportedError
from dlb.execution.models import Stage, drop_at_end
from dlb.execution.workers import Workers
from dlb.proof.checks.distributed import (
    ScheduleTaken,
    StepsTaken,
    compare_schedule,
    compare_workers,
)
from dlb.proof.engine import Check, judged, run
from dlb.proof.update_batches import as_dtype
from dlb.request import Request
from dlb.supervision.group import Group
from dlb.supervision.remote import Draw, RemoteModel, read_arrays, write_arrays
from dlb_graph.comparing.asynchronous import Play, mixed
from dlb_graph.comparing.tolerances import Tensors
from dlb_graph.comparing.updates import Updates
from dlb_graph.workload import learning_rate
from dlb_graph.workload.shapes import trained_names
from dlb_worker.arrays import read_or_map

__all__ = [
    "check_unequal_shares",
    "compare_with_schedule",
    "compare_with_single_worker",
    "is_synchronous",
    "take_few_parts",
    "take_schedule",
    "take_steps",
    "train_few_steps",
]

Array = npt.NDArray[Any]
#: Steps that K workers and one worker take before their weights are compared.
DISTRIBUTED_STEPS = 10
#: Steps that each asynchronous worker takes by a schedule.
SCHEDULED_STEPS = 4
#: Elements of each gradient that are compared, drawn at random.
ELEMENTS = 4096


def is_synchronous(stage: Stage, workers: Workers) -> tuple[bool, bool]:
    """Whether the workers must have the weights of one worker.

    Returns:
        also whether the strategy is asynchronous: a single worker of one is synchronous.
    """
    own = _described(stage, workers)
    shared = any(each.get("asynchronous") for each in own)
    alone = shared and stage.request.workers == 1
    return alone or all(each["synchronous"] for each in own), shared


def _described(stage: Stage, workers: Workers) -> list[Mapping[str, Any]]:
    strategies = workers.described["strategies"]
    return [each for each in strategies if each["name"] == stage.request.strategy]


def check_unequal_shares(
    adapter: Capabilities, described: Mapping[str, Any], request: Request
) -> None:
    """Raises UnsupportedError unless the strategy claims unequal shares, and the adapter weighs them."""
    entries = [each for each in described["strategies"] if each["name"] == request.strategy]
    claimed = all("unequal_shares" in each.get("cases", ()) for each in entries)
    if claimed and "unequal_shares" in adapter.features:
        return
    raise UnsupportedError(
        f"unequal shares of {list(request.shares)} samples are not claimed by strategy '{request.strategy}'; "
        f"choose a batch size that divides into {request.workers} equal shares",
        adapter=adapter.name,
    )


def take_steps(
    model: RemoteModel, data: Path, order: Array, audited: int, draw: Draw
) -> StepsTaken:
    """Train on the rows of ``order``.

    Args:
        audited: of how many first steps the workers write what they got and changed.
        draw: which elements of weights, state and gradients they write of these.
    """
    training = model.begin_training(data, order)
    written = []
    for _ in range(audited):
        paths, _ = training.audit(None, draw)
        written.append([read_arrays(model.group, path) for path in paths])
    training.run(len(order) - audited)
    training.end()
    group, end = model.group, model.weights_and_state()
    return StepsTaken(group.launch.workers, len(order), draw, written, end, group.shares)


def take_schedule(model: RemoteModel, data: Path, order: Array, ranks: list[int]) -> ScheduleTaken:
    """Train on the rows of ``order``, one worker at a time: of each in ``ranks`` the next part of its step."""
    training = model.begin_training(data, order)
    parts = [(rank, training.advance(rank)) for rank in ranks]
    told = [facts["staleness"] for facts in training.end().facts]
    sizes = [len(each) // training.held for each in told]
    replicas = range(training.held)
    staleness = [e[n * size : (n + 1) * size] for e, size in zip(told, sizes) for n in replicas]
    return ScheduleTaken(parts, model.weights_and_state(), staleness)


def train_few_steps(stage: Stage, model: RemoteModel) -> StepsTaken:
    """Train for a few steps in float64."""
    data, order = _first_batches(stage)
    return take_steps(model, data, order, 1, Draw(ELEMENTS, stage.request.seed))


def take_few_parts(stage: Stage, model: RemoteModel) -> ScheduleTaken:
    """Train for a few steps in float64, in parts by chance: one worker at a time."""
    data, order = _first_batches(stage)
    request, steps = stage.request, order[:SCHEDULED_STEPS]
    parts = request.workload.optimizer.accumulate
    return take_schedule(
        model, data, steps, mixed(request.workers, len(steps), request.seed, parts)
    )


def _first_batches(stage: Stage) -> tuple[Path, Array]:
    """The samples of a few steps in float64, and the rows of each."""
    prepared = stage.prepared
    data = prepared.scratch / "train-float64.npz"
    rows = prepared.data.order[:DISTRIBUTED_STEPS]
    samples, indices = np.unique(rows, return_inverse=True)
    if not data.exists():
        stored = read_or_map(prepared.data.train)
        inputs, labels = stored["inputs"][samples], stored["labels"][samples]
        arrays = {"inputs": inputs, "labels": labels}
        write_arrays(data, {name: as_dtype(array, "float64") for name, array in arrays.items()})
    return data, indices.reshape(rows.shape).astype(np.int64)


def compare_with_schedule(stage: Stage, workers: Workers, taken: ScheduleTaken) -> None:
    """Run the check ``distributed, schedule``: NumPy takes the same steps in the same order.

    Args:
        workers: one worker without the strategy, which computes gradients.
    """
    stage.phase("playing the schedule again")
    request, prepared = stage.request, stage.prepared
    stored, order = read_or_map(prepared.data.train), prepared.data.order
    optimizer, start = request.workload.optimizer, prepared.references.ordinary.weights
    names, ends = trained_names(request.workload.model), np.cumsum(request.shares)

    def updates() -> Updates:
        return Updates(optimizer, {name: start[name] for name in names})

    with ExitStack() as held:
        models = [
            held.enter_context(
                drop_at_end(
                    stage.build(workers.group, "float64", share, first_row=int(end - share))
                )
            )
            for share, end in zip(request.shares, ends)
        ]

        def gradient(rank: int, step: int, weights: Tensors) -> Tensors:
            rows = order[step][ends[rank] - request.shares[rank] : ends[rank]]
            models[rank].load_weights(weights)
            batch = (as_dtype(stored[name][rows], "float64") for name in ("inputs", "labels"))
            return models[rank].step_gradients(*batch)

        rate = partial(learning_rate, optimizer, request.workload.schedule)
        first = any(each.get("pulls_first") for each in _described(stage, workers))
        play = Play(request.workers, updates, gradient, rate, first)
        compared = judged(lambda: compare_schedule(taken, play))
        stage.keep(run(Check.of("distributed, schedule", stage.adapter), compared))


def compare_with_single_worker(stage: Stage, group: Group, workers: StepsTaken) -> None:
    """Run the check ``distributed``: one worker takes the same steps.

    Args:
        group: one worker without the strategy.
        workers: result of :func:`train_few_steps` with the strategy.
    """
    stage.phase("comparing with one worker")
    request = stage.request
    with drop_at_end(stage.build(group, "float64", request.batch_size)) as model:
        single = train_few_steps(stage, model)

    def gradients(inputs: Array, labels: Array, first_row: int) -> Tensors:
        built = stage.build(group, "float64", len(inputs), first_row=first_row)
        with drop_at_end(built) as model:
            return model.step_gradients(inputs, labels)

    compared = judged(lambda: compare_workers(workers, single, gradients, request.workload))
    stage.keep(run(Check.of("distributed", stage.adapter), compared))
