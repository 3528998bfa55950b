"""K workers of a strategy are one worker, in every case that it claims."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from dlb.execution.distributed import take_schedule, take_steps
from dlb.execution.models import drop_at_end
from dlb.execution.workers import start_workers
from dlb.proof.certificate import CheckResult
from dlb.proof.checks.distributed import StepsTaken, compare_schedule, compare_workers
from dlb.proof.engine import Check, judge
from dlb.report.sentences import sentence
from dlb.supervision.group import Group, Launch
from dlb.supervision.remote import Draw, RemoteModel, read_arrays, write_arrays
from dlb_graph import workload as W
from dlb_graph.comparing.asynchronous import Play, held_back, mixed
from dlb_graph.comparing.distance import figures
from dlb_graph.comparing.tolerances import FLOAT64_TOLERANCE
from dlb_graph.comparing.updates import Updates
from dlb_graph.workload.initial import proof_masks
from dlb_graph.workload.shapes import trained_names
from dlb_graph.workload.strategy_cases import STRATEGY_CASES
from dlb_worker.parts import mean_gradients

from . import truth
from .closeness import FLOAT64, distance
from .models import random_batch, random_weights
from .subject import Adapter, Arrays

STEPS = 4
Start = Callable[[str, int], Group]


@pytest.fixture(scope="module")
def start(adapter: Adapter, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Workers of a strategy; "" for one worker without one. They serve one case after another."""
    with ExitStack() as running:

        @cache
        def started(strategy: str, workers: int) -> Group:
            scratch, python = tmp_path_factory.mktemp("workers"), Path(sys.executable)
            launch = Launch(adapter.name, python, scratch, strategy=strategy, workers=workers)
            return running.enter_context(start_workers(launch, seed=0)).group

        yield started


def test_workers_are_one_worker(
    adapter: Adapter, start: Start, strategy: str, case: str, workers: int
) -> None:
    described = STRATEGY_CASES[case]
    adapter.require(described.model, "float64", described.optimizer, described.loss)
    differing = differences(start(strategy, workers), start("", 1), case)
    assert not differing, "; ".join(differing)


def differences(group: Group, single: Group, name: str) -> list[str]:
    """What the workers of a group do otherwise than one worker, in sentences; empty if nothing."""
    case, local, workers = STRATEGY_CASES[name], name == "local_statistics", group.launch.workers
    described = {each["name"]: each for each in group.call("describe")[0]["strategies"]}
    strategy = described[group.launch.strategy]
    period = strategy["averages_every"]
    model, batch_size, count = case.model, case.batch_size, 2 * period + 1 if period else STEPS
    inputs, labels = random_batch(model, samples=count * batch_size, loss=case.loss)
    order, data = np.arange(len(inputs)).reshape(count, -1), group.launch.scratch / "data.npz"
    write_arrays(data, {"inputs": inputs, "labels": labels})
    weights, masks = random_weights(model), proof_masks(model, 0, batch_size)

    def build(group: Group, described: W.Workload) -> RemoteModel:
        return RemoteModel(
            group, described, weights, dtype="float64", batch_size=batch_size, masks=masks
        )

    def steps(group: Group, described: W.Workload) -> StepsTaken:
        with drop_at_end(build(group, described)) as built:
            return take_steps(built, data, order, count, Draw(None, 0))

    def gradients(inputs: np.ndarray, labels: np.ndarray, row: int) -> dict[str, np.ndarray]:
        rolled = {name: np.roll(mask, -row, 0)[: len(inputs)] for name, mask in masks.items()}
        parts = workers if local and len(inputs) == batch_size else 1
        return mean_gradients(
            truth.gradients(model, weights, *part, rolled, case.loss)
            for part in zip(np.split(inputs, parts), np.split(labels, parts))
        )

    def gradient(rank: int, step: int, held: Arrays) -> dict[str, np.ndarray]:
        size = batch_size // workers
        own = slice(rank * size, (rank + 1) * size)
        rows = {n: mask[own] for n, mask in masks.items()}
        batch = inputs[order[step][own]], labels[order[step][own]]
        return truth.gradients(model, {**weights, **held}, *batch, rows, case.loss)

    def start() -> Updates:
        return Updates(case.optimizer, {n: weights[n] for n in trained_names(model)})

    if strategy["asynchronous"] and workers > 1:
        rate = partial(W.learning_rate, case.optimizer, case.schedule)
        play = Play(workers, start, gradient, rate, strategy.get("pulls_first", False))
        with drop_at_end(build(group, case)) as built:
            if name == "every_push_counts":
                return list(_every_push(built, data, order, play))
            late = name == "stale_gradients"
            ranks = held_back(workers, count) if late else mixed(workers, count, seed=0)
            scheduled = take_schedule(built, data, order, ranks)
        sides = compare_schedule(scheduled, play)
        return _said(judge(Check.of("distributed", group.launch.adapter), sides))
    # Of one batch that all have, each has the statistics of one worker.
    taken, own = steps(group, case), local and group.shares != 1
    states = W.state_names(model) if own else ()
    running = list(_running_statistics(taken, model)) if own else []
    if period:
        batches = zip(np.split(inputs, count), np.split(labels, count))
        return [*_local_sgd(taken, case, weights, masks, period, batches), *running]
    optimizer = replace(case.optimizer, accumulate=workers) if local else case.optimizer
    one = steps(single, replace(case, optimizer=optimizer))
    sides = compare_workers(taken, one, gradients, case, states)
    return _said(judge(Check.of("distributed", group.launch.adapter), sides)) or running


def _said(result: CheckResult) -> list[str]:
    """What a comparison has found, in sentences; empty if nothing."""
    if result.verdict == "passed":
        return []
    return [sentence(each, "") for each in result.findings] + [str(result.figures[0])]


def _every_push(model: RemoteModel, data: Path, order: np.ndarray, play: Play) -> Iterator[str]:
    """What weights have moved by, if not by the sum of what workers pushed as they would."""
    training, server = model.begin_training(data, order), play.start()
    for _ in order:
        paths, _ = training.audit(None, Draw(None, 0))
        for part in [read_arrays(model.group, path) for path in paths]:
            pushed = {n: part[f"reduced/{n}"].reshape(w.shape) for n, w in server.weights.items()}
            server.step(pushed, play.rate(0))
    ends = model.weights()
    for name, expected in server.weights.items():
        # Who pushed a parameter last pulled it last.
        if min(distance(end[name], expected) for end in ends) > FLOAT64_TOLERANCE:
            yield f"{name} is not moved by the sum of all pushes"


def _local_sgd(
    taken: StepsTaken,
    case: W.Workload,
    weights: Arrays,
    masks: Arrays,
    period: int,
    batches: Iterable[tuple[np.ndarray, np.ndarray]],
) -> Iterator[str]:
    """What workers end with that is not so in NumPy, where each steps alone and weights are averaged."""
    optimizer, workers = case.optimizer, len(taken.end)
    own = [
        Updates(optimizer, {n: weights[n] for n in trained_names(case.model)}) for _ in taken.end
    ]
    for step, batch in enumerate(batches, 1):
        parts = zip(own, *(np.split(array, workers) for array in batch))
        for rank, (each, inputs, labels) in enumerate(parts):
            size, now = len(inputs), {**weights, **each.weights}
            rows = {n: mask[rank * size : (rank + 1) * size] for n, mask in masks.items()}
            found = truth.gradients(case.model, now, inputs, labels, rows, case.loss)
            each.step(found, optimizer.learning_rate)
        if step % period == 0:
            for name in own[0].weights:
                mean = np.mean([each.weights[name] for each in own], axis=0)
                for each in own:
                    each.weights[name] = mean.copy()
    for rank, (each, end) in enumerate(zip(own, taken.end)):
        state = {f"optimizer/{name}": array for name, array in each.state.items()}
        for figure in figures(end, {**each.weights, **state}):
            if figure.distance > FLOAT64_TOLERANCE:
                yield f"{figure.tensor} on rank {rank} is not that of local SGD: {figure.distance:.2g} off"


def _running_statistics(taken: StepsTaken, model: W.Model) -> Iterator[str]:
    """States that a step did not move as the worker's own share of its batch does."""
    shapes, states = W.parameter_shapes(model), W.state_names(model)
    for step, parts in enumerate(taken.audited):
        before = [{n: part[f"before/{n}"].reshape(shapes[n]) for n in shapes} for part in parts]
        for rank, part in enumerate(parts):
            # A strategy may hand those of worker 0 to all before a step.
            starts = [{**before[rank], **{n: before[by][n] for n in states}} for by in (rank, 0)]
            moved = [truth.values(model, each, part["inputs"], training=True) for each in starts]
            for name in states:
                after = part[f"after/{name}"].reshape(shapes[name])
                if min(distance(after, each[f"{name}/running"]) for each in moved) > FLOAT64:
                    yield f"step {step}: {name} on rank {rank} is not that of its share"
