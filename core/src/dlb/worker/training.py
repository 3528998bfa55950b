"""The timed loop: one place, the same for every framework."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

from dlb.contract import BuildRequest, LoadRequest, TrainableModel
from dlb.errors import DlbError
from dlb.workload import learning_rate

if TYPE_CHECKING:
    from dlb.worker.calls import Calls

#: Seconds between two progress events: rare enough to cost nothing.
REPORT_SECONDS = 0.2
#: A thread that worked for at least this share of the time was really used.
BUSY_SHARE = 0.05


def train(
    calls: Calls,
    model: TrainableModel,
    built: BuildRequest,
    load: LoadRequest,
    first_step: int,
    observe: bool,
    to: str,
) -> dict[str, Any]:
    """Train over every batch, timing each step from idle device to idle device.

    Args:
        first_step: number of the first step, for the learning-rate schedule.
        observe: whether plugins that observe are called.
        to: .npz file for ``step_seconds``, ``data_seconds`` (waiting for the batch), ``losses``,
            each float64 [steps].

    Returns:
        seconds of the whole loop, CPU seconds of the process, threads that really worked.
    """
    from dlb.worker.calls import write_arrays

    workload, steps = built.workload, len(load.order)
    step_seconds, data_seconds, losses = np.zeros((3, steps))
    clock = calls.hooked("dlb_clock", device=built.device)
    watch_step = calls.plugins.hook.dlb_observe_step if observe else None
    if watch_step is not None and not watch_step.get_hookimpls():
        watch_step = None
    context = {
        "workload": workload.name,
        "dtype": built.dtype,
        "device": built.device,
        "batch_size": built.batch_size,
        "steps": steps,
        "rank": calls.rank,
    }
    observed: dict[str, Any] = {}
    rate: float | None = None
    with ExitStack() as stack:
        if observe:
            stack.enter_context(observers(calls, context, observed))
        batches = iter(calls.hooked("dlb_load_data", request=load))
        process = psutil.Process()
        cpu_before, threads_before = process.cpu_times(), thread_seconds(process)
        reported = began = time.perf_counter()
        for step in range(steps):
            wanted = learning_rate(workload.optimizer, workload.schedule, first_step + step)
            if wanted != rate:
                model.set_learning_rate(wanted)
                rate = wanted
            asked = time.perf_counter()
            inputs, labels = next(batches)
            data_seconds[step] = time.perf_counter() - asked
            clock.start()
            loss = model.train_step(inputs, labels)
            step_seconds[step] = clock.stop()
            losses[step] = float(loss)
            if watch_step is not None:
                watch_step(
                    framework=calls.framework,
                    step=first_step + step,
                    seconds=step_seconds[step],
                    loss=losses[step],
                )
            now = time.perf_counter()
            if now - reported > REPORT_SECONDS or step + 1 == steps:
                calls.progress(step=step + 1, loss=losses[step])
                reported = now
        seconds = time.perf_counter() - began
        cpu_after, threads_after = process.cpu_times(), thread_seconds(process)
    costs = {"step_seconds": step_seconds, "data_seconds": data_seconds, "losses": losses}
    write_arrays(to, costs.items())
    worked = {key: now - threads_before.get(key, 0.0) for key, now in threads_after.items()}
    return {
        "seconds": seconds,
        "cpu_seconds": sum(cpu_after[:2]) - sum(cpu_before[:2]),
        "busy_threads": sum(share > BUSY_SHARE * seconds for share in worked.values()),
        "memory_bytes": process.memory_info().rss,
        "observed": observed,
    }


def thread_seconds(process: psutil.Process) -> dict[int, float]:
    """CPU seconds of each thread so far, by its number."""
    return {thread.id: thread.user_time + thread.system_time for thread in process.threads()}


@contextmanager
def observers(calls: Calls, context: Mapping[str, Any], observed: dict[str, Any]) -> Any:
    """Run every plugin's ``dlb_observe_run`` around the training; gather what they yield.

    Each is run by itself, so that its record carries its plugin's name and its failure is its own.
    """
    hook = calls.plugins.hook.dlb_observe_run
    with ExitStack() as stack:
        for implementation in hook.get_hookimpls():
            generator = implementation.function(
                **{
                    name: {"framework": calls.framework, "context": context}[name]
                    for name in implementation.argnames
                }
            )
            stack.enter_context(_observer(implementation.plugin_name, generator, observed))
        yield


@contextmanager
def _observer(name: str, generator: Any, observed: dict[str, Any]) -> Any:
    wrapped = contextmanager(lambda: generator)()
    try:
        seen = wrapped.__enter__()
    except Exception as error:
        raise DlbError(f"observer '{name}' failed: {type(error).__name__}: {error}") from error
    try:
        yield
    finally:
        wrapped.__exit__(None, None, None)
        observed[name] = dict(seen)
