"""The timed loop: one place, the same for every framework."""

import time
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional, Tuple

import numpy as np

from dlb_worker.arrays import digests, write_arrays
from dlb_worker.contract import PHASES, BuildRequest, DataRequest
from dlb_worker.errors import UnsupportedError
from dlb_worker.facts import cpu_seconds, memory_bytes, thread_seconds
from dlb_worker.native import BuiltModel
from dlb_worker.parts import in_parts
from dlb_worker.placement import of_replica, with_marks
from dlb_worker.plugins import observer
from dlb_worker.protocol import REPORT_SECONDS
from dlb_worker.sampling import drawn

if TYPE_CHECKING:
    from dlb_worker.calls import Calls

#: A thread that worked for at least this share of the time was really used.
BUSY_SHARE = 0.05


class Training:
    """One training of a model, in as many parts as the core asks for; each step is timed.

    A step of an audit is timed as any other. Before and after it, outside its time, what it got and
    what it changed is written for the core.

    Args:
        calls: the worker.
        model: what is trained.
        build: what it was built from.
        data: the batches of all steps.
        rates: float64 [steps], the learning rate of each step.
        first_step: number of the first step, for observers.
        observe: whether plugins that observe are called.
    """

    def __init__(
        self,
        calls: "Calls",
        model: BuiltModel,
        build: BuildRequest,
        data: DataRequest,
        rates: np.ndarray,
        first_step: int,
        observe: bool,
    ) -> None:
        self.calls, self.model, self.rates, self.first_step = calls, model, rates, first_step
        self.steps, self.done = len(data.order), 0
        self._parts = build.workload.optimizer.accumulate
        nodes = build.workload.model.nodes
        self._dropouts = [node.name for node in nodes if node.kind == "dropout" and node.rate]
        self.step_seconds, self.data_seconds, self.losses = np.zeros((3, self.steps))
        self.untold_seconds = np.zeros(self.steps)
        self.observed: Dict[str, Any] = {}
        #: After how many steps, and the digests of weights and state then.
        self._left: Tuple[int, Dict[str, int]] = (-1, {})
        self._rate: Optional[float] = None
        #: Of each replica, the parts of the step that it takes in parts, and how many such it has taken.
        self._phases: Dict[int, Iterator[Tuple[str, Any]]] = {}
        self._taken: Dict[int, int] = {}
        #: By step, batches that a replica has begun with, and not every one has ended with.
        self._ahead: Dict[int, Tuple[Any, Any]] = {}
        self._clock = calls.ask("dlb_clock", device=build.device)
        self._measured = Measured()
        self._observe_step = calls.plugins.hook.dlb_observe_step if observe else None
        if self._observe_step is not None and not self._observe_step.get_hookimpls():
            self._observe_step = None
        context = {
            "workload": build.workload.name,
            "dtype": build.dtype,
            "device": build.device,
            "batch_size": build.batch_size,
            "steps": self.steps,
            "rank": calls.rank,
        }
        self._open = ExitStack()
        if observe:
            self._open.enter_context(observers(calls, context, self.observed))
        self._batches = iter(calls.ask("dlb_load_data", request=data))
        self._reported = time.perf_counter()

    def clock(self) -> float:
        """Seconds that the clock shows which steps are timed with."""
        return time.perf_counter()

    def run(self, steps: int) -> None:
        """Take the next steps."""
        with self._measured.interval():
            for _ in range(steps):
                self._step(*self._next_batch())

    def advance(self, replica: int = 0) -> str:
        """Take the next part of a replica's step, until its work is over: one of ``PHASES``.

        Between two parts, a worker of an asynchronous strategy waits while its peers go on.
        """
        session = self.calls.session
        count = session.replicas if session else 1
        if session:
            session.replica = replica
        step = self._taken.setdefault(replica, self.done)
        if step not in self._ahead:
            self._ahead[step] = self._next_batch()
        self._set_rate(step)
        self._clock.start()
        taken = next(self._phases.get(replica, iter(())), None)
        if taken is None:
            self._phases[replica] = iter(self.model.step_phases(*self._ahead[step]))
            taken = next(self._phases[replica])
        phase, result = taken
        self.step_seconds[step] += self._clock.stop(result)
        if phase == PHASES[-1]:
            self.losses[step] += float(result) / count
            self._taken[replica] += 1
            self.done = min(self._taken.get(number, self.done) for number in range(count))
            self._ahead.pop(self.done - 1, None)
        if session:
            session.replica = 0
        return phase

    def audit(
        self, to: Path, dropout_seed: Optional[int], elements: Optional[int], seed: int, whole: bool
    ) -> Dict[str, Any]:
        """Take the next step, and write what it got and what it changed.

        Args:
            to: .npz file for ``inputs`` and ``labels`` (the batch as the step got it), ``masks/LAYER``
                (what each dropout keeps), ``loss``, ``before/NAME`` and ``after/NAME``: elements of
                weights, and of the optimizer's state as ``optimizer/NAME``; ``reduced/NAME``, the gradients
                that the optimizer had, where a strategy tells them. Further replicas: :func:`of_replica`.
            dropout_seed: from which dropouts draw the step's masks; None where there are none.
            elements: how many elements of each array; None for all.
            seed: from which the elements are drawn.
            whole: also write ``weights/NAME``, all weights before the step. A worker that holds parts of
                parameters always does, and ``placed/NAME`` next to each array of which it holds a part.

        Returns:
            seconds to read the state before the step, after it, and once more, and for how many of them
            threads waited for a processor: a step whose work is not over when its clock stops makes the
            second longer. Why the masks are not known, where they are not. What changed before the step
            and after the one before it.
        """

        def draw(name: str, array: Any) -> np.ndarray:
            return drawn(name, array, elements, seed)

        left = self._left[1] if self._left[0] == self.done else self.digests()
        with self._measured.interval():
            batch = self._next_batch()
        parts = [self.model.read_batch(*batch) for _ in self.model.replicas()]
        changed = differing(left, self.digests())
        arrays: List[Dict[str, Any]] = [{"inputs": part[0], "labels": part[1]} for part in parts]
        unknown = ""
        try:
            for _, own in zip(self.model.replicas(), arrays):
                own.update(self._draw_masks(own["inputs"], dropout_seed))
        except UnsupportedError as error:
            unknown = str(error)
        for each in self.model.parameters[:1]:  # so that nothing is left to wait for
            self.model.canonical(each)
        began, waited = time.perf_counter(), processor_wait()
        before = self._held()
        read_before, waited_before = time.perf_counter() - began, processor_wait() - waited
        if dropout_seed is not None and not unknown:
            self.model.seed_dropout(dropout_seed)
        with self._measured.interval():
            self._step(*batch)
        began, waited = time.perf_counter(), processor_wait()
        after = self._held()
        read_after, waited_after = time.perf_counter() - began, processor_wait() - waited
        # Once more, when nothing can be left to wait for: a step may leave caches and memory another state.
        began, waited = time.perf_counter(), processor_wait()
        again = self._held()
        read_again, waited_again = time.perf_counter() - began, processor_wait() - waited
        del again
        self._left = (self.done, digests(*after[0]))
        for number, own in zip(self.model.replicas(), arrays):
            own["loss"] = self.losses[self.done - 1]
            marks = self.model.marks()
            for when, (held, kept) in (("before", before[number]), ("after", after[number])):
                named = dict(held, **{f"optimizer/{name}": array for name, array in kept.items()})
                own.update(with_marks(named, marks, f"{when}/", draw))
            own.update(with_marks(self._reduced(), marks, "reduced/", draw))
            if whole or marks:
                own.update(with_marks(before[number][0], marks, "weights/"))
            write_arrays(of_replica(to, number), own.items())
        return {
            "read_before": read_before,
            "read_after": read_after,
            "read_again": read_again,
            "waited_before": waited_before,
            "waited_after": waited_after,
            "waited_again": waited_again,
            "masks_unknown": unknown,
            "changed": changed,
            "placed": bool(marks),
            "replicas": len(arrays),
        }

    def _held(self) -> List[Tuple[Dict[str, np.ndarray], Dict[str, np.ndarray]]]:
        """Weights, and the optimizer's state, of each replica."""
        of = self.model
        return [(of.weights(), of.optimizer_state()) for _ in of.replicas()]

    def _reduced(self) -> Dict[str, np.ndarray]:
        """What the optimizer had in the last step; empty without a strategy, or if that does not tell."""
        session = self.calls.session
        try:
            return self.model.gather(session.gradient_after_reduction) if session else {}
        except UnsupportedError:
            return {}

    def digests(self) -> Dict[str, int]:
        """A digest of each weight, and of each array of the optimizer's state."""
        return digests(self.model.weights(), self.model.optimizer_state())

    def end(self, to: Path) -> Dict[str, Any]:
        """End the training.

        Args:
            to: .npz file for ``step_seconds``, ``data_seconds`` (waiting for the batch, until the
                device is idle), ``losses``, and ``untold_seconds``: what a step took until its loss
                was read, less what the clock told; each float64 [steps].

        Returns:
            seconds of all steps, CPU seconds of the process, threads that really worked, what the clock
            shows now, and the staleness of pushes, where a strategy tells it, one replica after the other.
        """
        memory, session = memory_bytes(), self.calls.session
        lags = [
            lag for _ in self.model.replicas() for lag in (session.staleness() if session else ())
        ]
        self._open.close()
        costs = {
            "step_seconds": self.step_seconds,
            "data_seconds": self.data_seconds,
            "losses": self.losses,
            "untold_seconds": self.untold_seconds,
        }
        write_arrays(to, costs.items())
        measured = self._measured
        return {
            "seconds": measured.seconds,
            "clock": self.clock(),
            "cpu_seconds": measured.cpu_seconds,
            "busy_threads": measured.busy_threads(BUSY_SHARE),
            "memory_bytes": memory,
            "observed": self.observed,
            "staleness": lags,
        }

    def _draw_masks(self, inputs: np.ndarray, seed: Optional[int]) -> Dict[str, np.ndarray]:
        """What each dropout keeps when it draws from a seed; where it reads 0, that is unknown."""
        if seed is None:
            return {}
        self.model.seed_dropout(seed)
        parts = [
            self.model.forward(part, training=True, layers=self._dropouts)
            for (part,) in in_parts(self._parts, inputs)
        ]
        return {
            f"masks/{name}": np.concatenate([part[name] != 0 for part in parts]).astype("float32")
            for name in self._dropouts
        }

    def _set_rate(self, step: int) -> None:
        rate = float(self.rates[step])
        if rate != self._rate:
            self.model.set_learning_rate(rate)
            self._rate = rate

    def _next_batch(self) -> Tuple[Any, Any]:
        self._set_rate(self.done)
        asked = time.perf_counter()
        batch: Tuple[Any, Any] = next(self._batches)
        self.data_seconds[self.done] = time.perf_counter() - asked
        return batch

    def _step(self, inputs: Any, labels: Any) -> None:
        """One step, timed from idle device to idle device."""
        step, asked = self.done, time.perf_counter()
        self._clock.start()
        started = time.perf_counter()
        loss = self.model.train_step(inputs, labels)
        seconds = self._clock.stop(loss)
        self.losses[step] = float(loss)
        self.untold_seconds[step] = time.perf_counter() - started - seconds
        self.step_seconds[step] = seconds
        self.data_seconds[step] += started - asked
        self.done += 1
        if self._observe_step is not None:
            self._observe_step(
                framework=self.calls.framework,
                step=self.first_step + step,
                seconds=self.step_seconds[step],
                loss=self.losses[step],
            )
        now = time.perf_counter()
        if now - self._reported > REPORT_SECONDS or self.done == self.steps:
            self.calls.progress(step=self.done, loss=self.losses[step])
            self._reported = now


def time_phases(
    calls: "Calls", model: BuiltModel, build: BuildRequest, data: DataRequest
) -> Dict[str, List[float]]:
    """Take the steps of some batches in their parts; seconds of each, by part.

    The device is idle between two parts. So the steps are none of those that are timed as a whole.

    Raises:
        UnsupportedError: the model's step is one piece.
    """
    clock = calls.ask("dlb_clock", device=build.device)
    seconds: Dict[str, List[float]] = {phase: [] for phase in PHASES}
    for batch in calls.ask("dlb_load_data", request=data):
        took = dict.fromkeys(PHASES, 0.0)
        clock.start()
        for phase, result in model.step_phases(*batch):
            took[phase] += clock.stop(result)
            clock.start()
        for phase in PHASES:
            seconds[phase].append(took[phase])
    return seconds


def differing(before: Mapping[str, int], after: Mapping[str, int]) -> List[str]:
    """The names whose digests differ, or that are on one side alone."""
    names = list(before) + [name for name in after if name not in before]
    return [name for name in names if before.get(name) != after.get(name)]


def processor_wait() -> float:
    """Seconds that this process's threads have been ready and had no processor; 0 where nobody tells."""
    nanoseconds = 0
    for path in Path("/proc/self/task").glob("*/schedstat"):
        try:
            nanoseconds += int(path.read_text().split()[1])
        except (OSError, IndexError, ValueError):  # the thread has ended
            continue
    return nanoseconds * 1e-9


class Measured:
    """What some intervals took together.

    Attributes:
        seconds: their length.
        cpu_seconds: CPU seconds of the process in them.
    """

    def __init__(self) -> None:
        self.seconds = self.cpu_seconds = 0.0
        self._threads: Optional[Dict[int, float]] = {}

    @contextmanager
    def interval(self) -> Iterator[None]:
        """Measure what is done in the block."""
        cpu_before, threads_before = cpu_seconds(), thread_seconds()
        began = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - began
        self.cpu_seconds += cpu_seconds() - cpu_before
        threads_after = thread_seconds()
        if threads_before is None or threads_after is None or self._threads is None:
            self._threads = None
            return
        for thread, after in threads_after.items():
            worked = after - threads_before.get(thread, 0.0)
            self._threads[thread] = self._threads.get(thread, 0.0) + worked

    def busy_threads(self, share: float) -> Optional[int]:
        """How many threads worked for more than a share of the time; None where nobody knows."""
        if self._threads is None:
            return None
        return sum(worked > share * self.seconds for worked in self._threads.values())


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
            start = partial(implementation.function, **arguments)
            stack.enter_context(observer(implementation.plugin_name, start, observed))
        yield
