"""A model that lives in workers, used as if it were here. Arrays cross as .npz files."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from dlb.errors import WorkerError
from dlb.supervision.group import Group, Progress
from dlb.workload import Workload, learning_rate
from dlb.workload.lower import lower
from dlb_worker.arrays import WEIGHTS_READ, no_room, read_or_map

__all__ = ["RemoteModel", "Trained", "read_arrays", "scratch_file", "start", "write_arrays"]

Array = npt.NDArray[Any]
_numbers = itertools.count(1)


def start(group: Group, *, threads: int, device: str, seed: int) -> list[dict[str, Any]]:
    """Bring the framework up in every worker, and the strategy with it; facts by rank."""
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
    """What training cost and lost.

    Attributes:
        step_seconds, data_seconds: float64 [steps] of rank 0.
        losses: float64 [steps], the mean over workers.
        facts: of each worker, by rank.
    """

    def __init__(self, facts: list[dict[str, Any]], arrays: list[dict[str, Array]]) -> None:
        self.facts = facts
        self.step_seconds = arrays[0]["step_seconds"]
        self.data_seconds = arrays[0]["data_seconds"]
        self.losses = np.mean([one["losses"] for one in arrays], axis=0)


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
    ) -> None:
        """Build it.

        Args:
            batch_size: samples in a step of all workers together.
            masks: of dropouts by layer name, in the order of the samples of such a step, and no
                fewer rows than any batch that is asked for. Each worker's begin where its share
                of the step does.
            variant: choices of the adapter's that are not at their default.
            seed: for randomness that belongs to the model.
        """
        self.group = group
        self.workload = workload
        self.dtype = dtype
        self.batch_size = batch_size
        self.share = batch_size // group.launch.workers
        self.last = workload.model.nodes[-1].name
        seeded = self._path()
        write_arrays(seeded, weights)
        arguments: dict[str, Any] = {
            "workload": lower(workload).document(),
            "weights": str(seeded),
            "dtype": dtype,
            "batch_size": self.share,
            "variant": dict(variant or {}),
            "seed": seed,
        }
        paths = [self._path() for _ in range(group.launch.workers)] if masks else []
        for rank, path in enumerate(paths):
            begin = -rank * self.share
            write_arrays(path, {n: np.roll(mask, begin, 0) for n, mask in (masks or {}).items()})
        built = group.call(
            "build", lambda rank: {**arguments, "masks": str(paths[rank]) if paths else ""}
        )[0]
        for path in (seeded, *paths):  # of a large network every model would leave its own
            path.unlink()
        self.number = built["model"]
        #: What the framework says of the layers it built; nothing where the worker does not tell.
        self.native_layers: dict[str, str] = built.get("layers", {})

    def drop(self) -> None:
        """Forget it, so that its memory can go."""
        self.group.call("drop", {"model": self.number})

    def weights(self) -> list[dict[str, Array]]:
        """Parameters and states of every worker, by rank."""
        return [
            {name: array for name, array in arrays.items() if not name.startswith("optimizer/")}
            for arrays in self._fetch("weights", {})
        ]

    def optimizer_state(self) -> dict[str, Array]:
        """The optimizer's state by ``layer.parameter.slot``, of worker 0."""
        return {
            name.removeprefix("optimizer/"): array
            for name, array in self._fetch("weights", {})[0].items()
            if name.startswith("optimizer/")
        }

    def forward(
        self, inputs: Array, *, training: bool = False, layers: Sequence[str] = ()
    ) -> dict[str, Array]:
        """Values of layers and the logits, by layer name, of worker 0."""
        given = self._path()
        write_arrays(given, {"inputs": inputs})
        arguments = {"inputs": str(given), "training": training, "layers": list(layers)}
        results, arrays = self._fetch_with_results("forward", arguments)
        return {
            call["layer"]: arrays[0][f"values/{call['output']}"] for call in results[0]["calls"]
        }

    def gradients(self, inputs: Array, labels: Array) -> dict[str, Array]:
        """``loss``, ``input`` (unless integers) and every parameter's gradient, of worker 0."""
        given = self._path()
        write_arrays(given, {"inputs": inputs, "labels": labels})
        found = self._fetch("gradients", {"inputs": str(given), "training": True})[0]
        named = {name.removeprefix("parameters/"): array for name, array in found.items()}
        if "inputs" in named:
            named["input"] = named.pop("inputs")
        return named

    def train(
        self,
        data: Path,
        order: Array,
        *,
        crops: Array | None = None,
        input_mode: str = "pipeline",
        first_step: int = 0,
        observe: bool = False,
        on_progress: Progress | None = None,
    ) -> Trained:
        """Train over the rows of ``order``, each worker on its equal share of every row.

        Args:
            data: .npz file with ``inputs`` and ``labels``.
            order: int64 [steps, batch_size].
            crops: int32 [steps, batch_size, 3], where images are augmented.
            first_step: number of the first of them, for the learning-rate schedule.
        """
        rows = {"order": order} if crops is None else {"order": order, "crops": crops}
        workers = self.group.launch.workers
        shares = {name: np.split(array, workers, axis=1) for name, array in rows.items()}
        optimizer, schedule = self.workload.optimizer, self.workload.schedule
        steps = range(first_step, first_step + len(order))
        rates = np.array([learning_rate(optimizer, schedule, step) for step in steps])
        paths = [self._path() for _ in range(workers)]
        for rank, path in enumerate(paths):
            own = {n: np.ascontiguousarray(of[rank]) for n, of in shares.items()}
            write_arrays(path, {**own, "rates": rates})
        results = [self._path() for _ in paths]

        def arguments(rank: int) -> dict[str, Any]:
            return {
                "model": self.number,
                "data": str(data),
                "order": str(paths[rank]),
                "input_mode": input_mode,
                "first_step": first_step,
                "observe": observe,
                "to": str(results[rank]),
            }

        facts = self.group.call("train", arguments, on_progress)
        return Trained(facts, [self._read(path) for path in results])

    def predict(self, data: Path, on_progress: Progress | None = None) -> Array:
        """Logits of every sample in a file with ``inputs``, of worker 0."""
        arguments = {"data": str(data), "batch_size": self.share}
        return self._fetch("predict", arguments, on_progress)[0]["logits"]

    def export(self, to: Path) -> dict[str, Any]:
        """Write it as ONNX; only worker 0's file is kept."""
        arguments = [{"model": self.number, "to": str(to)}]
        arguments += [
            {"model": self.number, "to": str(self._path(".onnx"))}
            for _ in range(self.group.launch.workers - 1)
        ]
        return self.group.call("export", lambda rank: arguments[rank])[0]

    def _fetch(
        self, call: str, arguments: Mapping[str, Any], on_progress: Progress | None = None
    ) -> list[dict[str, Array]]:
        """Make a call that writes arrays, and read what each worker wrote."""
        return self._fetch_with_results(call, arguments, on_progress)[1]

    def _fetch_with_results(
        self, call: str, arguments: Mapping[str, Any], on_progress: Progress | None = None
    ) -> tuple[list[dict[str, Any]], list[dict[str, Array]]]:
        """As :meth:`_fetch`, with what each worker answered."""
        paths = [self._path() for _ in range(self.group.launch.workers)]
        results = self.group.call(
            call,
            lambda rank: {"model": self.number, **arguments, "to": str(paths[rank])},
            on_progress,
        )
        return results, [self._read(path) for path in paths]

    def _path(self, suffix: str = ".npz") -> Path:
        return scratch_file(self.group, suffix)

    def _read(self, path: Path) -> dict[str, Array]:
        return read_arrays(self.group, path)


def scratch_file(group: Group, suffix: str = ".npz") -> Path:
    """A file that is not there yet, where the group and this process see it."""
    return group.launch.scratch / f"{next(_numbers)}{suffix}"


def read_arrays(group: Group, path: Path) -> dict[str, Array]:
    """Read, and remove, an .npz file that a worker of the group wrote.

    A large one is read where it is looked at, so that gradients of large models need not all be
    in memory; it goes from the disk with the last array of it.

    Raises:
        WorkerError: it cannot be read.
    """
    try:
        arrays = read_or_map(path, WEIGHTS_READ)
    except (OSError, ValueError, BadZipFile) as error:
        raise WorkerError(
            f"what its worker wrote cannot be read: {error}", adapter=group.launch.adapter
        ) from None
    path.unlink()
    return arrays


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write an .npz file.

    Raises:
        RequestError: there is no room for it.
    """
    try:
        with path.open("wb") as file:
            np.savez(file, **dict(arrays))  # type: ignore[arg-type]
    except OSError as error:
        raise no_room(path, error) from None
