"""A request, and what makes it one that can be carried out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import numpy.typing as npt

from dlb.adapters import AdapterEnvironment
from dlb.errors import RequestError, SettingError
from dlb.proof.certificate import CHECK_GROUPS, CheckGroup
from dlb.record import Options
from dlb.samples import Splits
from dlb.settings import SETTINGS, Settings
from dlb.supervision.callers import own_address
from dlb.supervision.group import Host
from dlb_graph.workload import Workload, workload_hash
from dlb_graph.workload.initial import initial_weights
from dlb_graph.workload.training import with_epoch
from dlb_worker.parts import shares

if TYPE_CHECKING:
    from dlb.record import Record
    from dlb_graph.files.read import ImportedModel

__all__ = ["TRAJECTORY_STEPS", "Reporter", "Request", "check"]

Array = npt.NDArray[Any]
#: Steps of the trajectory by default.
TRAJECTORY_STEPS = 20


class Reporter(Protocol):
    """Receives the progress of a run."""

    def phase(self, adapter: str, text: str) -> None:
        """An adapter enters another phase of its run."""

    def steps(self, adapter: str, done: int, total: int, loss: float) -> None:
        """An adapter has trained ``done`` of ``total`` steps."""

    def finished(self, adapter: str, text: str) -> None:
        """An adapter has finished, successfully or not."""

    def cell(self, place: int) -> None:
        """A cell of a sweep is proven and trained now."""

    def cell_ended(self, place: int, ended: Record | None) -> None:
        """A cell of a sweep has ended, with its record; None if it has none."""

    def trial(self, place: int, number: int, count: int) -> None:
        """The trial ``number`` of ``count``, from 0, of the cell or adapter ``place`` begins."""

    def recorded(self, ended: Record) -> None:
        """An adapter's run is recorded, with the status of its proof next to the adapters before it."""

    def round_ended(self, measurement: Any) -> None:
        """A round of a measurement has ended, and another follows."""


@dataclass(frozen=True, kw_only=True)
class Request(Settings):
    """What to run: settings without ``changes``, ``data``, ``epochs`` and ``variants``, and what those made.

    Attributes:
        workload: the workload.
        environments: the environments of the adapters.
        out: folder for records; None to keep none (``verify``).
        command: ``run`` or ``verify``, for the record.
        trajectory_steps: steps of the trajectory.
        at_once: adapters that run at the same time; 1 wherever time is measured.
        choices: by adapter, its variants that differ from their default. They apply to every model
            that is built, so that the proven model is the timed one.
        imported: the ONNX file that the workload and its weights come from; None if weights are
            seeded.
        proven: whether a kept proof is used, so that only the timed run is checked.
        trial_draws: the run is a trial of a measurement, which is not tested, and this many steps are drawn
            for its audit, beside the first and the last; None for a run that stands alone.
        splits: the data of the workload, opened or not; made of the workload if left out.
    """

    workload: Workload
    environments: Sequence[AdapterEnvironment]
    out: Path | None
    batch_size: int
    steps: int
    warmup: int
    threads: int
    command: str = "run"
    trajectory_steps: int = TRAJECTORY_STEPS
    at_once: int = 1
    choices: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    imported: ImportedModel | None = None
    proven: bool = False
    trial_draws: int | None = None
    splits: Splits = field(default=None, compare=False)  # type: ignore[assignment]

    def __post_init__(self) -> None:
        """Tell a schedule by epochs how many steps one has."""
        super().__post_init__()
        if self.splits is None or not self.splits.fit(self.workload):
            object.__setattr__(self, "splits", Splits(self.workload))
        if getattr(self.workload.schedule, "unit", "") == "epoch":
            epoch = max(1, self.splits.count // max(1, self.batch_size))
            schedule = with_epoch(self.workload.schedule, epoch)
            resolved = msgspec.structs.replace(self.workload, schedule=schedule)
            object.__setattr__(self, "workload", resolved)

    @property
    def left_out(self) -> tuple[CheckGroup, ...]:
        """Groups that are not run, in order."""
        return tuple(group for group in CHECK_GROUPS if group not in self.groups)

    def weights(self) -> dict[str, Array]:
        """Initial weights, float32, by ``layer.parameter``."""
        if self.imported is not None:
            return dict(self.imported.weights)
        return dict(initial_weights(self.workload.model, self.seed))

    @property
    def shares(self) -> tuple[int, ...]:
        """How many samples of a batch each worker has."""
        return shares(self.batch_size, self.workers, self.workload.optimizer.accumulate)

    def variant(self, adapter: str) -> dict[str, str]:
        """An adapter's choices that differ from their default, by name."""
        return dict(self.choices.get(adapter, {}))

    def options(self, adapter: str) -> Options:
        """The options that a record of an adapter has."""
        recorded = {
            name: getattr(self, name) for name, setting in SETTINGS.items() if setting.recorded
        }
        return Options(**recorded, variant=self.variant(adapter))

    @property
    def settings(self) -> Settings:
        """What makes a request of the same adapter again, of the changed workload."""
        settings = {name: getattr(self, name) for name in SETTINGS}
        chosen = [pair for choices in self.choices.values() for pair in choices.items()]
        return Settings(**{**settings, "variants": [f"{name}={value}" for name, value in chosen]})

    @property
    def identity(self) -> tuple[str, str, bytes]:
        """What makes two requests of one adapter the same."""
        adapter = self.environments[0].adapter
        options = msgspec.json.encode(self.options(adapter), order="sorted")
        return adapter, workload_hash(self.workload), options


def check(request: Request) -> None:
    """Check the settings of a request, and that its weights are available.

    Raises:
        SettingError: a setting is out of range, or some do not go together.
        RequestError: the weights' ONNX file is missing, or data that must be opened cannot be.
    """
    workload, batch, workers = request.workload, request.batch_size, request.workers
    if workload.onnx and request.imported is None:
        raise RequestError(
            f"workload '{workload.name}' starts from the weights of an ONNX file (SHA-256 "
            f"{workload.onnx}); give the path of that file instead"
        )
    if batch > request.splits.count:
        raise SettingError(
            lambda name: (
                f"{name('batch_size')} is {batch}; it must be from 1 to the "
                f"{request.splits.count} training samples of '{workload.data.name}'"
            )
        )
    SETTINGS["steps"].check(request.trajectory_steps)
    if request.warmup >= request.steps:
        raise SettingError(
            lambda name: (
                f"{name('warmup')} is {request.warmup}; it must be from 0 to less than the "
                f"{request.steps} steps that are run"
            )
        )
    parts = workload.optimizer.accumulate
    if batch % parts:
        raise SettingError(
            lambda name: (
                f"{name('batch_size')} {batch} does not divide into {parts} equal parts "
                "(optimizer.accumulate)"
            )
        )
    if batch // parts < workers:
        raise SettingError(
            lambda name: (
                f"{name('batch_size')} {batch} is too small for {workers} workers; each needs a sample in "
                "every part of a step"
            )
        )
    if request.input == "memory" and workload.data.augmentation.moves:
        raise SettingError(
            lambda name: (
                f"{name('input')} memory keeps samples as they are, and workload "
                f"'{workload.name}' cuts or mirrors them (data.augmentation); use {name('input')} pipeline"
            )
        )
    distributed = [each for each in request.groups if each == "distributed"]
    asked = {
        "workers": [workers] if workers > 1 else [],
        "hosts": request.hosts,
        "groups": distributed,
    }
    for setting, values in asked.items() if not request.strategy else ():
        if values:
            raise SettingError(
                lambda name: (
                    f"{name(setting)} {', '.join(map(str, values))} needs a {name('strategy')}; "  # noqa: B023
                    "see: dlb list strategies"
                )
            )
    for text in request.hosts:
        own_address(Host.of(text).address)
