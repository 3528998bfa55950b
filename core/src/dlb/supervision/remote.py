"""A proxy of a model in worker processes. Arrays are exchanged as .npz files."""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.errors import UnsupportedError, WorkerError
from dlb.supervision.group import Group, Progress
from dlb_graph.regular_files import open_regular, read_numbers
from dlb_graph.workload import Workload, infer_shapes, learning_rate
from dlb_graph.workload.lower import lower
from dlb_worker.arrays import WEIGHTS_READ, no_room
from dlb_worker.arrays import write_arrays as write_npz
from dlb_worker.parts import in_parts, mean_gradients, rows_by_rank, shares
from dlb_worker.placement import assemble, of_replicas

__all__ = [
    "ClockReading",
    "Draw",
    "PhaseTimes",
    "Predicted",
    "RemoteModel",
    "RemoteTraining",
    "Taken",
    "Trained",
    "check_exported",
    "read_arrays",
    "read_written",
    "scratch_file",
    "start",
    "write_arrays",
]

Array = npt.NDArray[Any]
#: Bytes that the arrays of a compressed file may have together. Large files are not compressed.
MOST_READ = 1 << 30
_UNTOLD = {"untold_seconds"}
#: No clock resolves less, and nobody waits longer.
SHORTEST_SECONDS, LONGEST_SECONDS = 1e-9, 1e9
_numbers = itertools.count(1)


def start(group: Group, *, threads: int, device: str, seed: int) -> list[dict[str, Any]]:
    """Start the framework and the strategy in every worker; returns facts by rank."""
    launch = group.launch
    arguments = {
        "framework": launch.adapter,
        "threads": threads,
        "device": device,
        "seed": seed,
        "strategy": launch.strategy,
        "workers": launch.workers,
    }
    return group.call("start", arguments)


class Trained:
    """The times and losses of training.

    Attributes:
        step_seconds, data_seconds: float64 [steps], of rank 0.
        untold_seconds: float64 [steps], what a step took until its loss was read, less ``step_seconds``;
            the largest of any worker. 0 if it was not asked for.
        accounted_seconds: float64 [workers, steps], all that a step took by the worker's own words.
        losses: float64 [steps], the mean over samples of all workers.
        facts: the facts that each worker returned, by rank.
    """

    def __init__(
        self,
        facts: list[dict[str, Any]],
        arrays: list[dict[str, Array]],
        steps: int,
        adapter: str,
        shares: tuple[int, ...],
    ) -> None:
        """Check what each worker wrote of ``steps`` steps, in which it had so many samples.

        Raises:
            WorkerError: a series has another length, or holds a time that no clock shows.
        """
        for own in arrays:
            _check_costs(own, steps, adapter)
        self.facts = facts
        self.step_seconds = arrays[0]["step_seconds"]
        self.data_seconds = arrays[0]["data_seconds"]
        untold = [own.get("untold_seconds", np.zeros(steps)) for own in arrays]
        self.untold_seconds = np.max(untold, axis=0)
        self.accounted_seconds = np.array(
            [
                own["step_seconds"] + own["data_seconds"] + more
                for own, more in zip(arrays, untold, strict=True)
            ]
        )
        weights = shares if len(set(shares)) > 1 else None
        self.losses = np.average([own["losses"] for own in arrays], axis=0, weights=weights)


def _check_costs(arrays: Mapping[str, Array], steps: int, adapter: str) -> None:
    """Raises WorkerError unless times and losses of steps are such as a clock and a model have them."""

    def wrong(reason: str) -> WorkerError:
        return WorkerError(f"its worker's clock shows what no clock can: {reason}", adapter=adapter)

    for name in ("step_seconds", "data_seconds", "losses", *_UNTOLD & arrays.keys()):
        if arrays[name].shape != (steps,) or arrays[name].dtype.kind != "f":
            raise WorkerError(
                f"the file that its worker wrote has '{name}' of {arrays[name].dtype} "
                f"{list(arrays[name].shape)}; {steps} real numbers are needed, one of each step",
                adapter=adapter,
            )
    for name in ("step_seconds", "data_seconds", *_UNTOLD & arrays.keys()):
        if not np.isfinite(arrays[name]).all():
            raise wrong(f"'{name}' holds NaN or infinity")
        if (np.abs(arrays[name]) > LONGEST_SECONDS).any():
            raise wrong(f"'{name}' holds more than {LONGEST_SECONDS:g} s")
    if not (arrays["step_seconds"] >= SHORTEST_SECONDS).all():
        step = int(np.argmin(arrays["step_seconds"] >= SHORTEST_SECONDS))
        raise wrong(f"step {step} took {arrays['step_seconds'][step]:.3g} s")
    if not (arrays["data_seconds"] >= 0).all():
        step = int(np.argmin(arrays["data_seconds"] >= 0))
        raise wrong(f"step {step} waited {arrays['data_seconds'][step]:.3g} s for its batch")


@dataclass(frozen=True)
class Draw:
    """Which elements of each array are handed over: see :func:`dlb_worker.sampling.drawn`.

    Attributes:
        elements: how many; None for all.
        seed: from which they are drawn.
    """

    elements: int | None
    seed: int


@dataclass(frozen=True)
class Predicted:
    """What a model predicts.

    Attributes:
        logits: of every sample.
        seconds: of all forward passes, until their values were in host memory.
        changed: weights and optimizer state that it changed of a model in training.
    """

    logits: Array
    seconds: float
    changed: tuple[str, ...] = ()


@dataclass(frozen=True)
class PhaseTimes:
    """How long the parts of a step take.

    Attributes:
        seconds: by part, in their order; empty where the step is one piece.
        unknown: why it is; empty where it is not.
    """

    seconds: Mapping[str, float]
    unknown: str


@dataclass(frozen=True)
class ClockReading:
    """What the clocks of workers showed at some moment between two readings of this process's.

    Attributes:
        before, after: seconds, by :func:`time.monotonic`.
        workers: seconds by each worker's clock.
    """

    before: float
    after: float
    workers: tuple[float, ...]

    @classmethod
    def of(cls, before: float, results: Sequence[Mapping[str, Any]]) -> ClockReading:
        """The reading in the results of a call that was sent at ``before`` and has just returned."""
        clocks = tuple(float(result["clock"]) for result in results)
        return cls(before, time.monotonic(), clocks)


@dataclass(frozen=True)
class Taken:
    """Steps that were taken in one call.

    Attributes:
        first, steps: the first of them, from 0, and how many.
        seconds: how long the call took, by this process's clock.
        audited: whether more than the steps was done in it.
    """

    first: int
    steps: int
    seconds: float
    audited: bool = False


class RemoteTraining:
    """A training in parts, in every worker; made by :meth:`RemoteModel.begin_training`.

    Attributes:
        steps: steps of the whole training.
        done: steps so far.
        clocks: at the beginning and at the end, what the clocks show.
        taken: the calls in which steps were taken.
    """

    def __init__(
        self, model: RemoteModel, steps: int, begun: ClockReading, on_progress: Progress | None
    ) -> None:
        self.group, self.shares, self.steps, self.done = model.group, model.shares, steps, 0
        self.clocks = [begun]
        self.taken: list[Taken] = []
        self._on_progress = on_progress

    def run(self, steps: int) -> None:
        """Take the next steps."""
        if not steps:
            return
        before = time.monotonic()
        self.group.call("train_steps", {"steps": steps}, self._on_progress)
        self.taken.append(Taken(self.done, steps, time.monotonic() - before))
        self.done += steps

    def audit(
        self, dropout_seed: int | None, draw: Draw
    ) -> tuple[list[Path], list[dict[str, Any]]]:
        """Take the next step, of which each worker writes what it got and what it changed.

        Args:
            dropout_seed: from which dropouts draw; None if there are none.
            draw: which elements of weights and of the optimizer's state are written. Worker 0 also
                writes all weights before the step.

        Returns:
            by rank, the file, and by process the answer: ``read_before``, ``read_after`` and ``read_again``,
            the seconds that reading the state took; ``waited_before`` and so on, for how many of them
            threads waited for a processor; ``masks_unknown``, why dropout masks are not known; ``changed``,
            weights and state that changed after the step before and before this one. Older workers leave
            the last one out.
        """
        paths = [scratch_file(self.group) for _ in self.group.workers]
        before = time.monotonic()
        read = self.group.call(
            "audit_step",
            lambda rank: {
                "to": str(paths[rank]),
                "dropout_seed": dropout_seed,
                "elements": draw.elements,
                "seed": draw.seed,
                "whole": rank == 0,
            },
            self._on_progress,
        )
        self.taken.append(Taken(self.done, 1, time.monotonic() - before, audited=True))
        self.done += 1
        paths = of_replicas(paths, read, self.group.launch.workers)
        if read[0].get("placed"):
            arrays = [read_arrays(self.group, path) for path in paths]
            for path, marks, own in zip(paths, assemble(arrays), arrays, strict=True):
                write_arrays(path, {**own, **marks})
        return paths, read

    def advance(self, rank: int) -> str:
        """Let one worker or replica take the next part of its own step, while its peers wait; which part."""
        process, replica = divmod(rank, self.held)
        # Older workers hold one, and do not know the word.
        own = {"replica": replica} if replica else {}
        return str(self.group.call("advance", own, only=process)[0]["phase"])

    @property
    def held(self) -> int:
        """How many workers a process holds."""
        return self.group.launch.workers // len(self.group.workers)

    def end(self) -> Trained:
        """End the training, of which every step was taken."""
        paths = [scratch_file(self.group) for _ in self.group.workers]
        before = time.monotonic()
        facts = self.group.call("end_training", lambda rank: {"to": str(paths[rank])})
        self.clocks.append(ClockReading.of(before, facts))
        arrays = [read_arrays(self.group, path) for path in paths]
        for own in arrays:
            own["untold_seconds"]  # must be there
        return Trained(facts, arrays, self.steps, self.group.launch.label, self.shares)


class RemoteModel:
    """One model, built in each worker of a group from the same weights."""

    def __init__(
        self,
        group: Group,
        workload: Workload,
        weights: Mapping[str, Array],
        *,
        dtype: str,
        batch_size: int,
        masks: Mapping[str, Array] | None = None,
        variant: Mapping[str, str] | None = None,
        seed: int = 0,
        first_row: int = 0,
    ) -> None:
        """Build the model in every worker.

        Args:
            group: the workers.
            workload: the workload.
            weights: initial weights by ``layer.parameter``.
            dtype: dtype of parameters and computation, ``float32`` or ``float64``.
            batch_size: samples in a step of all workers together.
            masks: dropout masks by layer name, in the order of the step's samples, with at least as
                many rows as any batch. Each worker's rows start at its part of the step.
            variant: the adapter's choices that differ from their default.
            seed: seeds the randomness that belongs to the model.
            first_row: the row of the masks that the step's first sample has.
        """
        self.group = group
        self.workload = workload
        self.dtype = dtype
        self.batch_size = batch_size
        count = group.shares or len(group.workers)
        sizes = shares(batch_size, count, workload.optimizer.accumulate)
        self._rows = rows_by_rank(sizes, len(group.workers))
        #: How many samples of a batch each worker has, and the largest of these.
        self.shares = tuple(own.stop - own.start for own in self._rows)
        self.per_worker_batch, equal = self.shares[0], len(set(sizes)) == 1
        self.last = workload.model.nodes[-1].name
        weights_path = self._path()
        write_arrays(weights_path, weights)
        arguments: dict[str, Any] = {
            "workload": lower(workload).document(),
            "weights": str(weights_path),
            "dtype": dtype,
            "variant": dict(variant or {}),
            "seed": seed,
        }
        paths = [self._path() for _ in self.shares] if masks else []
        for rank, path in enumerate(paths):
            row = first_row + self._rows[rank].start
            write_arrays(path, {name: np.roll(m, -row, 0) for name, m in (masks or {}).items()})

        def of_worker(rank: int) -> dict[str, Any]:
            own = {"batch_size": self.shares[rank], "masks": str(paths[rank]) if paths else ""}
            # Older workers, which have equal shares alone, do not know the word.
            if not equal:
                own["share"] = self.shares[rank] * count / batch_size
            return {**arguments, **own}

        built = group.call("build", of_worker)[0]
        for path in (weights_path, *paths):  # the weights of a large network need much space
            path.unlink()
        self.number = built["model"]
        #: The framework's description of each layer, by name; empty if the worker has none.
        self.native_layers: dict[str, str] = built.get("layers", {})

    def drop(self) -> None:
        """Drop the model in every worker, so that its memory is freed."""
        self.group.call("drop", {"model": self.number})

    def weights(self) -> list[dict[str, Array]]:
        """Parameters and states of every worker, by rank."""
        return [
            {name: array for name, array in arrays.items() if not name.startswith("optimizer/")}
            for arrays in self.weights_and_state()
        ]

    def weights_and_state(self) -> list[dict[str, Array]]:
        """As :meth:`weights`, and the optimizer's state as ``optimizer/NAME``."""
        return self._fetch("weights", {})

    def load_weights(self, weights: Mapping[str, Array]) -> None:
        """Set parameters and states of every worker, by ``layer.parameter``."""
        paths = [self._path() for _ in self.shares]
        for path in paths:
            write_arrays(path, weights)
        self.group.call(
            "set_weights", lambda rank: {"model": self.number, "weights": str(paths[rank])}
        )

    def weights_and_slots(self) -> dict[str, Array]:
        """Parameters and states in worker 0, and the optimizer's state by ``layer.parameter.slot``."""
        arrays = self.weights_and_state()[0]
        return {name.removeprefix("optimizer/"): array for name, array in arrays.items()}

    def forward(
        self, inputs: Array, *, training: bool = False, layers: Sequence[str] = ()
    ) -> dict[str, Array]:
        """Values of ``layers`` and the logits in worker 0, by layer name."""
        path = self._path()
        write_arrays(path, {"inputs": inputs})
        arguments = {"inputs": str(path), "training": training, "layers": list(layers)}
        results, arrays = self._fetch_with_results("forward", arguments)
        return {
            call["layer"]: arrays[0][f"values/{call['output']}"] for call in results[0]["calls"]
        }

    def gradients(self, inputs: Array, labels: Array) -> dict[str, Array]:
        """``loss``, and the gradients of ``input`` (if real) and every parameter, in worker 0."""
        path = self._path()
        write_arrays(path, {"inputs": inputs, "labels": labels})
        arrays = self._fetch("gradients", {"inputs": str(path), "training": True})[0]
        path.unlink()
        self._check_loss(arrays)
        gradients = {name.removeprefix("parameters/"): array for name, array in arrays.items()}
        if "inputs" in gradients:
            gradients["input"] = gradients.pop("inputs")
        return gradients

    def _check_loss(self, arrays: Mapping[str, Array]) -> None:
        if arrays["loss"].ndim:
            raise WorkerError(
                f"the file that its worker wrote has a 'loss' of {list(arrays['loss'].shape)}, not one number",
                adapter=self.group.launch.label,
            )

    def step_gradients(self, inputs: Array, labels: Array) -> dict[str, Array]:
        """As :meth:`gradients`, of a step, which may take its batch in parts."""
        parts = self.workload.optimizer.accumulate
        if parts == 1:
            return self.gradients(inputs, labels)
        found = [self.gradients(*part) for part in in_parts(parts, inputs, labels)]
        of_inputs = [part.pop("input") for part in found if "input" in part]
        mean = mean_gradients(found)
        if of_inputs:
            mean["input"] = np.concatenate(of_inputs) / parts
        return mean

    def audit_gradients(
        self, step: Sequence[Path], weights: Mapping[str, Array] | None, draw: Draw
    ) -> dict[str, Array]:
        """``loss``, ``gradients/NAME`` and ``norms/NAME`` on the batch of an audited step, in worker 0.

        Args:
            step: what each worker wrote of the step.
            weights: by ``layer.parameter``; those of the step if left out. The model keeps them.
            draw: which elements of the gradients.
        """
        path = self._path() if weights is not None else None
        if path is not None:
            write_arrays(path, weights or {})
        arguments = {
            "steps": [str(each) for each in step],
            "weights": "" if path is None else str(path),
            "elements": draw.elements,
            "seed": draw.seed,
        }
        arrays = self._fetch("audit_gradients", arguments)[0]
        if path is not None:
            path.unlink()
        self._check_loss(arrays)
        return arrays

    def train(
        self,
        data: Path,
        order: Array,
        *,
        crops: Array | None = None,
        input_mode: str = "pipeline",
        first_step: int = 0,
        numbers: Sequence[int] | None = None,
        observe: bool = False,
        on_progress: Progress | None = None,
    ) -> Trained:
        """Train on the rows of ``order``; each worker trains on its share of every row.

        Args:
            data: .npz file with ``inputs`` and ``labels``.
            order: int64 [steps, batch_size], indices of samples.
            crops: int32 [steps, batch_size, 3], the crop of each sample; None without augmentation.
            input_mode: ``pipeline`` or ``memory``.
            first_step: the number of the first step, for observers and the learning-rate schedule.
            numbers: the number of each step for the schedule, if they do not follow one another.
            observe: whether observer plugins record the training.
            on_progress: receives the progress messages of worker 0.
        """
        steps = range(first_step, first_step + len(order)) if numbers is None else numbers
        arguments = self._training(data, order, crops, input_mode, first_step, observe, steps)
        to = [self._path() for _ in arguments]
        facts = self.group.call(
            "train", lambda rank: {**arguments[rank], "to": str(to[rank])}, on_progress
        )
        arrays = [read_arrays(self.group, path) for path in to]
        return Trained(facts, arrays, len(order), self.group.launch.label, self.shares)

    def begin_training(
        self,
        data: Path,
        order: Array,
        *,
        crops: Array | None = None,
        input_mode: str = "pipeline",
        observe: bool = False,
        on_progress: Progress | None = None,
    ) -> RemoteTraining:
        """Begin a training that goes on in parts; arguments as for :meth:`train`."""
        steps = range(len(order))
        arguments = self._training(data, order, crops, input_mode, 0, observe, steps)
        before = time.monotonic()
        begun = self.group.call("begin_training", lambda rank: arguments[rank])
        return RemoteTraining(self, len(order), ClockReading.of(before, begun), on_progress)

    def _training(
        self,
        data: Path,
        order: Array,
        crops: Array | None,
        input_mode: str,
        first_step: int,
        observe: bool,
        numbers: Sequence[int],
    ) -> list[dict[str, Any]]:
        """Each worker's arguments; the rows of the order are written for each."""
        rows = {"order": order} if crops is None else {"order": order, "crops": crops}
        optimizer, schedule = self.workload.optimizer, self.workload.schedule
        rates = np.array([learning_rate(optimizer, schedule, number) for number in numbers])
        paths = [self._path() for _ in self.shares]
        for path, place in zip(paths, self._rows):
            own = {name: np.ascontiguousarray(array[:, place]) for name, array in rows.items()}
            write_arrays(path, {**own, "rates": rates})
        return [
            {
                "model": self.number,
                "data": str(data),
                "order": str(path),
                "input_mode": input_mode,
                "first_step": first_step,
                "observe": observe,
            }
            for path in paths
        ]

    def time_phases(
        self,
        data: Path,
        order: Array,
        *,
        crops: Array | None = None,
        input_mode: str = "pipeline",
        numbers: Sequence[int],
    ) -> PhaseTimes:
        """Train on the rows of ``order`` in the parts of a step; arguments as for :meth:`train`.

        Returns:
            the median seconds of each part in worker 0.
        """
        arguments = self._training(data, order, crops, input_mode, 0, False, numbers)
        for each in arguments:
            del each["first_step"], each["observe"]
        found = self.group.call("time_phases", lambda rank: arguments[rank])[0]
        seconds = {phase: float(np.median(each)) for phase, each in found["seconds"].items()}
        return PhaseTimes(seconds, found["unknown"])

    def predict(self, data: Path, on_progress: Progress | None = None) -> Predicted:
        """Run every sample in an .npz file with ``inputs`` through the model of worker 0.

        Raises:
            WorkerError: it returned another shape than that of the last layer.
        """
        arguments = {"data": str(data), "batch_size": self.per_worker_batch}
        results, arrays = self._fetch_with_results("predict", arguments, on_progress)
        logits, sample = arrays[0]["logits"], infer_shapes(self.workload.model)[self.last]
        if logits.shape[1:] != sample:
            raise WorkerError(
                f"its model returned samples of shape {list(logits.shape[1:])}, where layer "
                f"'{self.last}' has {list(sample)}",
                adapter=self.group.launch.label,
            )
        changed = tuple(results[0].get("changed", ()))
        return Predicted(logits, float(results[0]["seconds"]), changed)

    def export(self, to: Path) -> dict[str, Any]:
        """Export the model as ONNX to ``to``, from worker 0; other workers write scratch files.

        Raises:
            UnsupportedError: what was written is not a file.
        """
        paths = [to, *(self._path(".onnx") for _ in self.shares[1:])]
        result = self.group.call(
            "export", lambda rank: {"model": self.number, "to": str(paths[rank])}
        )[0]
        check_exported(to)
        return result

    def _fetch(
        self, call: str, arguments: Mapping[str, Any], on_progress: Progress | None = None
    ) -> list[dict[str, Array]]:
        """Make a call that writes arrays; returns each worker's arrays."""
        return self._fetch_with_results(call, arguments, on_progress)[1]

    def _fetch_with_results(
        self, call: str, arguments: Mapping[str, Any], on_progress: Progress | None = None
    ) -> tuple[list[dict[str, Any]], list[dict[str, Array]]]:
        """As :meth:`_fetch`; returns each worker's result too."""
        paths = [self._path() for _ in self.shares]
        results = self.group.call(
            call,
            lambda rank: {"model": self.number, **arguments, "to": str(paths[rank])},
            on_progress,
        )
        written = of_replicas(paths, results, self.group.launch.workers)
        arrays = [read_arrays(self.group, path) for path in written]
        assemble(arrays)
        return results, arrays

    def _path(self, suffix: str = ".npz") -> Path:
        return scratch_file(self.group, suffix)


def scratch_file(group: Group, suffix: str = ".npz") -> Path:
    """The path of a new file in the scratch folder of the group."""
    return group.launch.scratch / f"{next(_numbers)}{suffix}"


def read_arrays(group: Group, path: Path) -> dict[str, Array]:
    """Read and delete an .npz file that a worker of the group wrote.

    Its disk space is freed with its last array.

    Raises:
        WorkerError: the file cannot be read.
    """
    arrays = read_written(path, group.launch.label)
    path.unlink()
    return arrays


def read_written(path: Path, adapter: str) -> dict[str, Array]:
    """Read an .npz file that a worker wrote.

    A large file is mapped, so that gradients of large models need not all be in memory.

    Raises:
        WorkerError: the file cannot be read, or, later, an array is asked for that it does not have.
    """
    try:
        arrays = read_numbers(path, MOST_READ, map_above=WEIGHTS_READ, follow=False)
    except OSError as error:
        raise WorkerError(
            f"the file that its worker wrote cannot be read: {error.strerror or error}",
            adapter=adapter,
        ) from None
    return _Written(arrays, adapter)


class _Written(dict[str, Array]):
    """Arrays that a worker wrote. A missing one is a fault of the worker."""

    def __init__(self, arrays: Mapping[str, Array], adapter: str) -> None:
        super().__init__(arrays)
        self._adapter = adapter

    def __missing__(self, name: str) -> Array:
        raise WorkerError(
            f"the file that its worker wrote has no array '{name}'", adapter=self._adapter
        )


def check_exported(path: Path) -> None:
    """Check that a worker wrote a regular file. Anything else is removed.

    Raises:
        UnsupportedError: it did not.
    """
    try:
        open_regular(path, follow=False).close()
    except OSError as error:
        if path.is_symlink() or not path.is_dir():
            path.unlink(missing_ok=True)
        else:
            shutil.rmtree(path, ignore_errors=True)
        raise UnsupportedError(
            f"what was exported cannot be read: {error.strerror or error}"
        ) from None


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write an .npz file.

    Raises:
        RequestError: the disk has no room for it.
    """
    try:
        write_npz(path, arrays.items())
    except OSError as error:
        raise no_room(path, error) from None
