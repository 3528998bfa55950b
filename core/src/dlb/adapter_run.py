"""One adapter's part of a run: prove it, time it, test it, export it."""

from __future__ import annotations

import math
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dlb import record
from dlb.adapters import Home
from dlb.errors import DlbError, RecordError, UnsupportedError
from dlb.proof import divergence, rungs
from dlb.proof.certificate import Divergence, Figure, Rung
from dlb.proof.ladder import (
    as_dtype,
    batch_gradients,
    prove_dropout,
    prove_export,
    prove_float32,
    prove_float32_updates,
    prove_float64,
    prove_updates,
    timed,
)
from dlb.proof.reference import Reference
from dlb.provenance import OtherWork
from dlb.record import Exported, Quality, Timing
from dlb.request import Prepared, Reporter, Request
from dlb.supervision.group import Group, Launch, worker_group
from dlb.supervision.remote import RemoteModel, Trained, scratch_file, start, write_arrays
from dlb.workload.shapes import state_names, trained_names
from dlb_worker.arrays import read_or_map

__all__ = ["AdapterRun", "Workers", "run_adapter", "start_workers"]

Array = npt.NDArray[Any]
#: Levels whose rungs are of the object that is timed.
TIMED_LEVELS = {"weights", "float32", "structure", "export"}
#: Levels whose rungs run dropouts in training mode, with masks.
MASKED_LEVELS = {"forward", "layers", "gradients", "update", "trajectory", "float32", "distributed"}
#: The contract that has masks.
MASKS_CONTRACT = (1, 2)
#: The contract that augments.
CROPS_CONTRACT = (1, 4)
#: Times that the weights are moved by chance, for what that makes of the gradients; and by how many
#: units in the last place: as far as float32 moves the logits of deep networks, and across as many
#: kinks on the way. Normalisation over a few samples moves them further.
NUDGES, NUDGE_UNITS, NORMALISED_UNITS = 2, 4, 16
#: Steps that K workers and one worker take before their weights are compared.
DISTRIBUTED_STEPS = 10
#: The end of what a failed worker printed, kept beside the records.
KEPT_OUTPUT_BYTES = 1_000_000


@dataclass
class AdapterRun:
    """What came of one adapter, filled in as far as it got.

    Attributes:
        facts: what the framework and its worker say of themselves.
        version: framework and version; deviations: what the adapter declares.
        rungs: what it was held against.
        gradients: in float64, to be compared across adapters.
        changes: what so many float64 steps changed, likewise.
        growths: how far from that the same steps get when they are a little longer, of the first
            adapter.
        masked: whether its dropouts were given masks, where the workload has any; if not, only
            another such adapter can be compared with it.
        rounded: errors of its float32 gradients of a few batches.
        nudged: errors of float64 gradients that moving the weights makes, of the first adapter.
        divergence: how far its float32 steps stray.
        failure: what ended it early, one line.
    """

    adapter: str
    facts: dict[str, Any] = field(default_factory=dict)
    version: str = ""
    deviations: tuple[str, ...] = ()
    rungs: list[Rung] = field(default_factory=list)
    masked: bool = True
    gradients: dict[str, Array] = field(default_factory=dict)
    changes: dict[int, divergence.Changes] = field(default_factory=dict)
    growths: dict[int, float] = field(default_factory=dict)
    rounded: list[tuple[Figure, ...]] = field(default_factory=list)
    nudged: list[tuple[Figure, ...]] = field(default_factory=list)
    divergence: Divergence | None = None
    timing: Timing | None = None
    quality: Quality | None = None
    exported: Exported | None = None
    observed: dict[str, Any] = field(default_factory=dict)
    failure: str = ""


@dataclass(frozen=True)
class Workers:
    """The processes of one adapter, its framework up.

    Attributes:
        facts: what the framework and its worker say of themselves.
        described: what its environment has.
        seconds: what it took to start them.
    """

    group: Group
    facts: dict[str, Any]
    described: dict[str, Any]
    seconds: float


@contextmanager
def start_workers(launch: Launch, seed: int) -> Iterator[Workers]:
    """Start processes and the framework in each, and end them all on every way out.

    Raises:
        WorkerError: a process or a framework did not come up.
    """
    began = time.perf_counter()
    with worker_group(launch) as group:
        facts = start(group, threads=launch.threads, device=launch.device, seed=seed)[0]
        seconds = time.perf_counter() - began
        yield Workers(group, facts, group.call("describe")[0], seconds)
        group.call("leave")


def run_adapter(
    home: Home,
    request: Request,
    prepared: Prepared,
    reporter: Reporter,
    stop: threading.Event,
    workers: Workers | None = None,
) -> AdapterRun:
    """Run one adapter; whatever goes wrong with it is in the result.

    Args:
        workers: to run it in, of a run without a strategy; otherwise it has its own.

    Raises:
        RecordError: its exported model cannot be kept.
        KeyboardInterrupt: ``stop`` was set; its processes have been ended.
    """
    ran = AdapterRun(home.adapter)
    if request.imported is not None:
        # What all other rungs are held against is the file that was asked for.
        rung = msgspec.structs.replace(request.imported.rung, adapter=home.adapter)
        ran.rungs.append(rung)
    climb = _Climb(home, request, prepared, reporter, ran, stop)
    reporter.phase(home.adapter, "starting")
    try:
        climb.run(workers)
    except RecordError:
        raise
    except DlbError as error:
        # Wherever it is shown, it stands beside the adapter's name.
        ran.failure = climb.keep_output(str(error)).removeprefix(f"{home.adapter}: ")
    reporter.finished(home.adapter, ran.failure or "done")
    return ran


class _Climb:
    """The climb of one adapter."""

    def __init__(
        self,
        home: Home,
        request: Request,
        prepared: Prepared,
        reporter: Reporter,
        ran: AdapterRun,
        stop: threading.Event,
    ) -> None:
        self.home = home
        self.request = request
        self.prepared = prepared
        self.reporter = reporter
        self.ran = ran
        self.stop = stop
        self.reference: Reference = prepared.reference
        self.scratch = prepared.scratch / home.adapter
        self.scratch.mkdir()

    def run(self, lent: Workers | None) -> None:
        """Prove in float64, then build, train, test and export what is timed.

        Processes that work together carry one model at a time, so with a strategy the models
        that are only there for the proof have processes of their own.
        """
        if not self.request.strategy:
            with nullcontext(lent) if lent else self.started("timed") as workers:
                self.note(workers)
                self.prove(workers.group).drop()
                self.prove_alone(workers.group)
                if self.request.levels & TIMED_LEVELS:
                    self.time(workers).drop()
                self.prove_rounded(workers.group)
            return
        spread: list[dict[str, Array]] = []
        with self.started("spread") as workers:
            self.note(workers)
            model = self.prove(workers.group)
            if self.is_synchronous(workers):
                spread = self.some_steps(model)
        with self.started("timed") as workers:
            if self.request.levels & TIMED_LEVELS:
                self.time(workers)
        with self.started("alone", alone=True) as workers:
            if spread:
                self.compare_alone(workers.group, spread)
            self.prove_alone(workers.group)
            self.prove_rounded(workers.group)

    def keep(self, rung: Rung) -> None:
        """Keep a rung, if its level is asked for."""
        if rung.level in self.request.levels:
            self.ran.rungs.append(rung)

    def started(self, name: str, *, alone: bool = False) -> AbstractContextManager[Workers]:
        """Workers with a folder of their own."""
        folder = self.scratch / name
        folder.mkdir()
        request = self.request
        launch = Launch(
            adapter=self.home.adapter,
            python=self.home.python,
            scratch=folder,
            threads=request.threads,
            strategy="" if alone else request.strategy,
            workers=1 if alone else request.workers,
            device=request.device,
            call_seconds=request.call_seconds,
            stop=self.stop,
        )
        return start_workers(launch, request.seed)

    def note(self, workers: Workers) -> None:
        """Note what the framework says of itself."""
        ran, facts = self.ran, workers.facts
        ran.facts, ran.version = facts, f"{facts['framework']} {facts['version']}"
        adapters = workers.described["adapters"]
        described = next(one for one in adapters if one["name"] == ran.adapter)
        ran.deviations = tuple(described["deviations"])
        contract = tuple(described.get("contract", (1, 0)))
        if self.prepared.crops is not None and contract < CROPS_CONTRACT:
            raise UnsupportedError(
                f"adapter '{ran.adapter}' is made for a contract before 1.4, which does not augment: "
                "data.augmentation.pad and flip must be left out"
            )
        if ran.masked and self.prepared.reference.masks and contract < MASKS_CONTRACT:
            ran.masked, self.reference = False, self.prepared.without_dropout
            if self.request.levels & MASKED_LEVELS:
                ran.rungs.append(rungs.masks_rung(ran.adapter, contract))

    def is_synchronous(self, workers: Workers) -> bool:
        """Whether the strategy must end as one worker does; if not, the rung says so."""
        strategies = workers.described["strategies"]
        named = [one for one in strategies if one["name"] == self.request.strategy]
        if all(one["synchronous"] for one in named):
            return True
        reason = f"'{self.request.strategy}' is asynchronous: it need not end as one worker does"
        self.ran.rungs.append(
            rungs.not_run("distributed", "distributed", self.ran.adapter, "one worker", reason)
        )
        return False

    def build_for_proof(
        self,
        group: Group,
        dtype: str,
        batch_size: int,
        weights: Mapping[str, Array] | None = None,
        longer: float = 0.0,
    ) -> RemoteModel:
        """Build a model whose dropouts are given masks, from weights of which none is constant.

        Args:
            longer: by what share its steps are to be longer than the workload's.
        """
        reference, replace = self.reference, msgspec.structs.replace
        optimizer = self.request.workload.optimizer
        rate = optimizer.learning_rate * (1.0 + longer)
        return RemoteModel(
            group,
            replace(
                self.request.workload,
                model=reference.model,
                optimizer=replace(optimizer, learning_rate=rate),
            ),
            reference.weights if weights is None else weights,
            dtype=dtype,
            batch_size=batch_size,
            masks=reference.masks,
            variant=self.request.variant(self.home.adapter),
        )

    def prove(self, group: Group) -> RemoteModel:
        """Climb in float64 with a model built for it."""
        self.reporter.phase(self.ran.adapter, "proving in float64")
        model = self.build_for_proof(group, "float64", self.request.batch_size)
        self.ran.gradients = prove_float64(
            model,
            self.reference,
            self.ran.adapter,
            self.request.seed,
            self.request.levels,
            self.keep,
        )
        return model

    def prove_alone(self, group: Group) -> None:
        """Native dropout and updates in float64, of models built for it in one worker."""
        request, prepared, ran = self.request, self.prepared, self.ran
        if prepared.reference.masks and "forward" in request.levels:
            self.prove_dropout(group)
        if request.levels & {"update", "trajectory"}:
            self.reporter.phase(ran.adapter, "proving updates")
            model = self.build_for_proof(group, "float64", prepared.practice.batch)
            ran.changes = prove_updates(
                model,
                self.reference,
                prepared.practice,
                ran.adapter,
                via=request.via,
                levels=request.levels,
                keep=self.keep,
                folder=scratch_file(group, ""),
            )
            model.drop()
            # Of one adapter, or one step, there is nothing to be compared with.
            if self.is_first and len(request.homes) > 1 and len(ran.changes) > 1:
                ran.growths = self.grow(group)

    def prove_rounded(self, group: Group) -> None:
        """Gradients and updates in float32, of models built for it in one worker."""
        if self.request.dtype == "float32" and "float32" in self.request.levels:
            self.round_gradients(group)
            self.follow_float32(group)

    @property
    def is_first(self) -> bool:
        """Whether it is this adapter that shows what rounding alone may do."""
        return self.home == self.request.homes[0]

    def grow(self, group: Group) -> dict[int, float]:
        """How far from what so many steps changed slightly longer steps get."""
        beside = self.follow(group, "float64", self.reference.weights, rungs.LONGER)
        return {
            step: rungs.growth(changes.read_moved(), longer.read())
            for (step, changes), longer in zip(self.ran.changes.items(), beside, strict=True)
        }

    def round_gradients(self, group: Group) -> None:
        """What float32 does to gradients; of the first adapter, what moving the weights does."""
        weights, practice, ran = self.reference.weights, self.prepared.practice, self.ran
        self.reporter.phase(ran.adapter, "proving float32 gradients")
        model = self.build_for_proof(group, "float64", practice.batch)
        # Those of a large network lie on the disk.
        exact = list(batch_gradients(model, practice))
        model.drop()
        seeds = range(self.request.seed, self.request.seed + NUDGES) if self.is_first else ()
        units = NORMALISED_UNITS if state_names(self.request.workload.model) else NUDGE_UNITS
        moved = (divergence.nudged(weights, seed, units) for seed in seeds)
        nudged = (("float64", each, ran.nudged) for each in moved)
        for dtype, given, errors in (("float32", weights, ran.rounded), *nudged):
            model = self.build_for_proof(group, dtype, practice.batch, given)
            errors += map(rungs.gradient_errors, batch_gradients(model, practice), exact)
            if errors is ran.rounded:
                seed = self.request.seed
                self.keep(prove_float32_updates(model, weights, practice, ran.adapter, seed))
            model.drop()

    def follow_float32(self, group: Group) -> None:
        """How far float32 steps stray from float64 ones; of the first adapter the band as well."""
        self.reporter.phase(self.ran.adapter, "following float32")
        weights = self.reference.weights
        trained = trained_names(self.request.workload.model)
        exact = list(self.ran.changes.values()) or self.follow(group, "float64", weights)
        rounded = self.follow(group, "float32", weights)
        perturbed = []
        if self.is_first:
            for seed in range(self.request.seed, self.request.seed + divergence.PERTURBATIONS):
                beside = self.follow(group, "float32", divergence.nudged(weights, seed))
                perturbed.append(divergence.strays(beside, rounded, exact, trained))
        self.ran.divergence = Divergence(
            adapter=self.ran.adapter,
            steps=divergence.looked_at(len(self.prepared.practice.order)),
            distances=divergence.strays(rounded, exact, exact, trained),
            perturbed=tuple(perturbed),
        )

    def follow(
        self, group: Group, dtype: str, weights: Mapping[str, Array], longer: float = 0.0
    ) -> list[divergence.Changes]:
        """What a trajectory from some weights changes of the reference's.

        Args:
            longer: by what share its steps are to be longer than the workload's.
        """
        practice, start = self.prepared.practice, self.reference.weights
        trained = {name: start[name] for name in trained_names(self.reference.model)}
        model = self.build_for_proof(group, dtype, practice.batch, weights, longer)
        path, folder = practice.path(dtype), scratch_file(group, "")
        kept = divergence.follow(model, path, practice.order, folder, trained)
        model.drop()
        return kept

    def prove_dropout(self, group: Group) -> None:
        """What dropouts do that are given no masks, as those of the timed model are."""
        self.reporter.phase(self.ran.adapter, "proving dropout")
        request = self.request
        weights = self.prepared.reference.weights
        model = RemoteModel(
            group,
            request.workload,
            weights,
            dtype="float64",
            batch_size=len(self.reference.inputs),
            variant=request.variant(self.home.adapter),
        )
        prove_dropout(model, request.workload.model, self.ran.adapter, request.seed, self.keep)
        model.drop()

    def some_steps(self, model: RemoteModel) -> list[dict[str, Array]]:
        """Every worker's weights after some steps in float64."""
        data = self.prepared.scratch / "train-float64.npz"
        rows = self.prepared.order[:DISTRIBUTED_STEPS]
        some, places = np.unique(rows, return_inverse=True)
        if not data.exists():
            stored = read_or_map(self.prepared.train)
            inputs, labels = stored["inputs"][some], stored["labels"][some]
            write_arrays(data, {"inputs": as_dtype(inputs, "float64"), "labels": labels})
        model.train(data, places.reshape(rows.shape).astype(np.int64))
        return model.weights()

    def compare_alone(self, group: Group, spread: list[dict[str, Array]]) -> None:
        """The distributed rung: the same steps by one worker."""
        self.reporter.phase(self.ran.adapter, "comparing with one worker")
        model = self.build_for_proof(group, "float64", self.request.batch_size)
        (alone,) = self.some_steps(model)
        model.drop()
        workers, steps = self.request.workers, len(self.prepared.order[:DISTRIBUTED_STEPS])
        self.ran.rungs.append(
            timed(lambda: rungs.distributed_rung(self.ran.adapter, workers, steps, spread, alone))
        )

    def time(self, workers: Workers) -> RemoteModel:
        """Build what is timed, train it, test it, and export it."""
        request, prepared, ran = self.request, self.prepared, self.ran
        self.reporter.phase(ran.adapter, "building")
        began = time.perf_counter()
        model = RemoteModel(
            workers.group,
            request.workload,
            prepared.weights,
            dtype=request.dtype,
            batch_size=request.batch_size,
            variant=request.variant(ran.adapter),
        )
        built = time.perf_counter() - began
        if request.dtype == "float32":
            prove_float32(model, prepared.seeded, ran.adapter, self.keep)

        self.reporter.phase(ran.adapter, "training")
        others = OtherWork()
        trained = model.train(
            prepared.train,
            prepared.order,
            crops=prepared.crops,
            via=request.via,
            observe=True,
            on_progress=lambda event: self.reporter.steps(
                ran.adapter, event["step"], request.steps, event["loss"]
            ),
        )
        ran.observed = trained.facts[0]["observed"]
        ran.timing = summary(trained, request, workers.seconds, built, others.cores())

        self.reporter.phase(ran.adapter, "testing")
        logits = model.predict(prepared.test)
        correct = np.isfinite(logits).all(axis=-1) & (logits.argmax(-1) == prepared.test_labels)
        ran.quality = Quality(
            losses=tuple(float(loss) if math.isfinite(loss) else None for loss in trained.losses),
            test_accuracy=float(correct.mean()),
            test_samples=len(prepared.test_labels),
        )

        if request.levels & {"structure", "export"}:
            self.export(model)
        return model

    def export(self, model: RemoteModel) -> None:
        """Export what was timed, and hold the file against it."""
        request, prepared, ran = self.request, self.prepared, self.ran
        self.reporter.phase(ran.adapter, "exporting and verifying")
        exported = self.scratch / "exported.onnx"
        inputs = np.resize(prepared.test_inputs, (model.share, *prepared.test_inputs.shape[1:]))
        prove_export(model, prepared.canonical, ran.adapter, inputs, exported, self.keep)
        if request.out is not None and exported.exists():
            ran.exported = record.keep_model(exported, request.out)

    def keep_output(self, failure: str) -> str:
        """Keep what the workers printed where the failure can still point to it.

        That is beside the records, or where there are none in a temporary folder that stays.
        """
        logs = sorted(self.scratch.glob("*/*.log"))
        if not logs:
            return failure
        try:
            folder = self.request.out or Path(tempfile.mkdtemp(prefix="dlb-output-"))
        except OSError:
            return failure
        for log in logs:
            kept = folder / f"{self.ran.adapter}-{log.parent.name}-{log.name}"
            try:
                kept.write_bytes(log.read_bytes()[-KEPT_OUTPUT_BYTES:])
            except OSError:
                continue
            failure = failure.replace(str(log), str(kept))
        return failure


def summary(
    trained: Trained, request: Request, started: float, built: float, other_cores: float
) -> Timing:
    """The timing of a record from what training cost."""
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
        cpu_seconds=sum(one["cpu_seconds"] for one in trained.facts),
        busy_threads=max(one["busy_threads"] for one in trained.facts),
        memory_bytes=max(one["memory_bytes"] for one in trained.facts),
        other_cores=other_cores,
    )
