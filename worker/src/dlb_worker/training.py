"""The timed loop: one place, the same for every framework."""

import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterator, Mapping, Optional

import numpy as np

from dlb_worker.arrays import write_arrays
from dlb_worker.contract import BuildRequest, DataRequest
from dlb_worker.errors import DlbError
from dlb_worker.facts import cpu_seconds, memory_bytes, thread_seconds
from dlb_worker.native import BuiltModel

if TYPE_CHECKING:
    from dlb_worker.calls import Calls

#: Seconds between two progress events: rare enough to cost nothing.
REPORT_SECONDS = 0.2
#: A thread that worked for at least this share of the time was really used.
BUSY_SHARE = 0.05


def train(
    calls: "Calls",
    model: BuiltModel,
    build: BuildRequest,
    data: DataRequest,
    rates: np.ndarray,
    first_step: int,
    observe: bool,
    to: Path,
) -> Dict[str, Any]:
    """Train over every batch, timing each step from idle device to idle device.

    Args:
        rates: float64 [steps], the learning rate of each step.
        first_step: number of the first step, for observers.
        observe: whether plugins that observe are called.
        to: .npz file for ``step_seconds``, ``data_seconds`` (waiting for the batch), ``losses``,
            each float64 [steps].

    Returns:
        seconds of the whole loop, CPU seconds of the process, threads that really worked.
    """
    steps = len(data.order)
    step_seconds, data_seconds, losses = np.zeros((3, steps))
    clock = calls.ask("dlb_clock", device=build.device)
    observe_step = calls.plugins.hook.dlb_observe_step if observe else None
    if observe_step is not None and not observe_step.get_hookimpls():
        observe_step = None
    context = {
        "workload": build.workload.name,
        "dtype": build.dtype,
        "device": build.device,
        "batch_size": build.batch_size,
        "steps": steps,
        "rank": calls.rank,
    }
    observed: Dict[str, Any] = {}
    current: Optional[float] = None
    with ExitStack() as stack:
        if observe:
            stack.enter_context(observers(calls, context, observed))
        batches = iter(calls.ask("dlb_load_data", request=data))
        cpu_before, threads_before = cpu_seconds(), thread_seconds()
        reported = began = time.perf_counter()
        for step in range(steps):
            rate = float(rates[step])
            if rate != current:
                model.set_learning_rate(rate)
                current = rate
            asked = time.perf_counter()
            inputs, labels = next(batches)
            data_seconds[step] = time.perf_counter() - asked
            clock.start()
            loss = model.train_step(inputs, labels)
            step_seconds[step] = clock.stop(loss)
            losses[step] = float(loss)
            if observe_step is not None:
                observe_step(
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
        cpu_after, threads_after = cpu_seconds(), thread_seconds()
    costs = {"step_seconds": step_seconds, "data_seconds": data_seconds, "losses": losses}
    write_arrays(to, costs.items())
    return {
        "seconds": seconds,
        "cpu_seconds": cpu_after - cpu_before,
        "busy_threads": _busy(threads_before, threads_after, BUSY_SHARE * seconds),
        "memory_bytes": memory_bytes(),
        "observed": observed,
    }


def _busy(
    before: Optional[Mapping[int, float]], after: Optional[Mapping[int, float]], least: float
) -> Optional[int]:
    """How many threads worked for more than ``least`` seconds; None where the system is silent."""
    if before is None or after is None:
        return None
    return sum(now - before.get(thread, 0.0) > least for thread, now in after.items())


@contextmanager
def observers(
    calls: "Calls", context: Mapping[str, Any], observed: Dict[str, Any]
) -> Iterator[None]:
    """Run every plugin's ``dlb_observe_run`` around the training; gather what they yield.

    Each runs by itself, so that its record carries its plugin's name and its failure is its own.
    """
    passed = {"framework": calls.framework, "context": context}
    with ExitStack() as stack:
        for implementation in calls.plugins.hook.dlb_observe_run.get_hookimpls():
            arguments = {name: passed[name] for name in implementation.argnames}
            generator = implementation.function(**arguments)
            stack.enter_context(_observer(implementation.plugin_name, generator, observed))
        yield


@contextmanager
def _observer(name: str, generator: Any, observed: Dict[str, Any]) -> Iterator[None]:
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
