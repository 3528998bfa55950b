"""Build the model that is measured, prove its float32 forward pass, train and time it."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.execution.audit import Audit, train_audited
from dlb.execution.models import Stage
from dlb.execution.periodic_tests import PeriodicTests
from dlb.execution.workers import Workers
from dlb.observers import observe_processes
from dlb.proof.checks.float32 import prove_timed_model
from dlb.provenance import OtherWork
from dlb.record import Tested, Timing
from dlb.request import Request
from dlb.supervision.remote import PhaseTimes, RemoteModel, Trained
from dlb_graph.comparing.asynchronous import counted

__all__ = ["TimedRun", "time_phases", "time_training"]

#: Steps are taken in parts for so many seconds, but so many at least and at most.
PHASE_SECONDS, FEWEST_PHASES, MOST_PHASES = 0.5, 3, 20


@dataclass(frozen=True)
class TimedRun:
    """A model that was trained and timed.

    Attributes:
        model: the trained model.
        timing: the measurements.
        losses: float64 [steps], the mean over workers.
        audit: what was kept of audited steps.
        tests: of the model while it trained.
        periodic: what makes them, and the one at the end.
        observed: what observers recorded.
    """

    model: RemoteModel
    timing: Timing
    losses: npt.NDArray[np.float64]
    observed: dict[str, Any]
    audit: Audit
    periodic: PeriodicTests
    tests: tuple[Tested, ...] = ()


def time_training(stage: Stage, workers: Workers, features: Collection[str]) -> TimedRun:
    """Build the model, prove its forward pass before training, and train it.

    Args:
        features: features of the adapter.
    """
    request, prepared = stage.request, stage.prepared
    stage.phase("building")
    began = time.perf_counter()
    model = stage.build_plain(
        workers.group, request.dtype, request.batch_size, prepared.weights, mixed=True
    )
    built = time.perf_counter() - began
    if request.dtype == "float32":
        prove_timed_model(
            model, prepared.references.seeded, stage.adapter, stage.keep, stage.rounding
        )
    stage.phase("training")
    other_work, tests = OtherWork(), PeriodicTests(stage, model)
    with observe_processes(stage.adapter, workers.group.processes, request.device) as observed:
        trained, audit = train_audited(
            stage,
            model,
            features,
            tests,
            lambda event: stage.reporter.steps(
                stage.adapter, event["step"], request.steps, event["loss"]
            ),
            any(
                "dlb_observe_step" in plugin.get("hooks", ())
                for plugin in workers.described["plugins"]
            ),
        )
    timing = summarise(
        trained, request, workers.seconds, built, other_work.cores(), audit.step_numbers
    )
    seen = {**trained.facts[0]["observed"], **observed}
    tested = tests.results(trained.step_seconds + trained.data_seconds)
    return TimedRun(model, timing, trained.losses, seen, audit, tests, tested)


def time_phases(stage: Stage, timed: TimedRun) -> PhaseTimes:
    """Take some more steps, in their parts. The model is then no longer the one that was timed."""
    request, prepared = stage.request, stage.prepared
    if request.strategy:
        return PhaseTimes({}, "with a strategy, a step is one piece")
    enough = math.ceil(PHASE_SECONDS / timed.timing.median)
    count = min(max(enough, FEWEST_PHASES), MOST_PHASES, request.steps)
    data = prepared.data.first(count)
    return timed.model.time_phases(
        data.train,
        data.order,
        crops=data.crops,
        input_mode=request.input,
        numbers=range(request.steps, request.steps + count),
    )


def summarise(
    trained: Trained,
    request: Request,
    started: float,
    built: float,
    other_cores: float,
    audited: tuple[int, ...],
) -> Timing:
    """The timing of a record.

    Args:
        trained: measurements of the training, in seconds and bytes.
        started: seconds to start the workers.
        built: seconds to build the model.
        other_cores: cores that other processes used during training.
        audited: steps that were audited.
    """
    steady = trained.step_seconds[request.warmup :]
    waiting = trained.data_seconds[request.warmup :]
    lower, median, upper = np.percentile(steady, (25, 50, 75))
    samples = len(steady) * request.batch_size
    return Timing(
        step_seconds=tuple(trained.step_seconds.tolist()),
        data_seconds=tuple(trained.data_seconds.tolist()),
        total_seconds=trained.facts[0]["seconds"],
        start_seconds=started,
        build_seconds=built,
        median=float(median),
        lower_quartile=float(lower),
        upper_quartile=float(upper),
        samples_per_second=float(samples / (steady.sum() + waiting.sum())),
        cpu_seconds=sum(facts["cpu_seconds"] for facts in trained.facts),
        busy_threads=_largest(facts["busy_threads"] for facts in trained.facts),
        memory_bytes=_largest(facts["memory_bytes"] for facts in trained.facts),
        other_cores=other_cores,
        audited_steps=audited,
        staleness=counted(each.get("staleness", ()) for each in trained.facts),
    )


def _largest(numbers: Iterable[int | None]) -> int | None:
    """The largest measurement of all workers; None if one worker could not measure."""
    measured = list(numbers)
    return None if None in measured else max(number for number in measured if number is not None)
