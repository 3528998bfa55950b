"""One adapter's part of a run: prove it, time it, test it, export it."""

from __future__ import annotations

import math
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb import record
from dlb.adapters import Home
from dlb.errors import DlbError, RecordError
from dlb.proof import rungs
from dlb.proof.certificate import Rung
from dlb.proof.ladder import (
    FEW_SAMPLES,
    batch_gradients,
    prove_export,
    prove_float32,
    prove_float64,
    prove_updates,
    timed,
)
from dlb.record import Exported, Quality, Timing
from dlb.request import PRACTICE_BATCH, Prepared, Reporter, Request
from dlb.supervision.group import Group, Launch, worker_group
from dlb.supervision.remote import RemoteModel, Trained, start, write_arrays

__all__ = ["AdapterRun", "run_adapter"]

Array = npt.NDArray[Any]
#: Levels whose rungs are of the object that is timed.
TIMED_LEVELS = {"weights", "float32", "structure", "export"}
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
        gradients, changes: its float64 gradients, and what its float64 steps changed, to be
            compared across adapters.
        exact, rounded: its gradients of a few batches, in float64 and in float32.
        failure: what ended it early, one line.
    """

    adapter: str
    facts: dict[str, Any] = field(default_factory=dict)
    version: str = ""
    deviations: tuple[str, ...] = ()
    rungs: list[Rung] = field(default_factory=list)
    gradients: dict[str, Array] = field(default_factory=dict)
    changes: dict[str, Array] = field(default_factory=dict)
    exact: list[dict[str, Array]] = field(default_factory=list)
    rounded: list[dict[str, Array]] = field(default_factory=list)
    timing: Timing | None = None
    quality: Quality | None = None
    exported: Exported | None = None
    observed: dict[str, Any] = field(default_factory=dict)
    failure: str = ""


def run_adapter(home: Home, request: Request, prepared: Prepared, reporter: Reporter) -> AdapterRun:
    """Run one adapter; whatever goes wrong with it is in the result.

    Raises:
        RecordError: its exported model cannot be kept.
    """
    ran = AdapterRun(home.adapter)
    climb = _Climb(home, request, prepared, reporter, ran)
    reporter.phase(home.adapter, "starting")
    try:
        climb.run()
    except RecordError:
        raise
    except DlbError as error:
        ran.failure = climb.keep_output(str(error))
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
    ) -> None:
        self.home = home
        self.request = request
        self.prepared = prepared
        self.reporter = reporter
        self.ran = ran
        self.scratch = prepared.scratch / home.adapter
        self.scratch.mkdir()

    def run(self) -> None:
        """Prove in float64, then build, train, test and export what is timed.

        Processes that work together carry one model at a time, so with a strategy the models
        that are only there for the proof have processes of their own.
        """
        request = self.request
        spread: list[dict[str, Array]] = []
        if request.strategy:
            with worker_group(self.launch("spread")) as group:
                self.start(group)
                model = self.prove(group)
                if self.is_synchronous(group):
                    spread = self.some_steps(model)
                group.call("leave")
        began = time.perf_counter()
        with worker_group(self.launch("timed")) as group:
            self.start(group)
            started = time.perf_counter() - began
            if not request.strategy:
                self.prove(group).drop()
                self.prove_alone(group)
            if request.levels & TIMED_LEVELS:
                self.time(group, started)
            group.call("leave")
        if request.strategy:
            with worker_group(self.launch("alone", alone=True)) as group:
                self.start(group)
                if spread:
                    self.compare_alone(group, spread)
                self.prove_alone(group)

    def keep(self, rung: Rung) -> None:
        """Keep a rung, if its level is asked for."""
        if rung.level in self.request.levels:
            self.ran.rungs.append(rung)

    def launch(self, name: str, *, alone: bool = False) -> Launch:
        """What to start, with a folder of its own."""
        folder = self.scratch / name
        folder.mkdir()
        request = self.request
        return Launch(
            adapter=self.home.adapter,
            python=self.home.python,
            scratch=folder,
            threads=request.threads,
            strategy="" if alone else request.strategy,
            workers=1 if alone else request.workers,
            device=request.device,
            call_seconds=request.call_seconds,
        )

    def start(self, group: Group) -> None:
        """Bring the framework up, and note what it says of itself."""
        request, ran = self.request, self.ran
        facts = start(group, threads=request.threads, device=request.device, seed=request.seed)[0]
        ran.facts, ran.version = facts, f"{facts['framework']} {facts['version']}"
        adapters = group.call("describe")[0]["adapters"]
        described = next(one for one in adapters if one["name"] == ran.adapter)
        ran.deviations = tuple(described["deviations"])

    def is_synchronous(self, group: Group) -> bool:
        """Whether the strategy must end as one worker does; if not, the rung says so."""
        strategies = group.call("describe")[0]["strategies"]
        named = [one for one in strategies if one["name"] == self.request.strategy]
        if all(one["synchronous"] for one in named):
            return True
        reason = f"'{self.request.strategy}' is asynchronous: it need not end as one worker does"
        self.ran.rungs.append(
            rungs.not_run("distributed", "distributed", self.ran.adapter, "one worker", reason)
        )
        return False

    def build_for_proof(self, group: Group, dtype: str, batch_size: int) -> RemoteModel:
        """Build a model without dropout, from weights of which none is constant."""
        prepared = self.prepared
        return RemoteModel(
            group,
            prepared.proven,
            prepared.reference.weights,
            dtype=dtype,
            batch_size=batch_size,
            variant=self.request.variant(self.home.adapter),
        )

    def prove(self, group: Group) -> RemoteModel:
        """Climb in float64 with a model built for it, dropout at rate 0."""
        self.reporter.phase(self.ran.adapter, "proving in float64")
        model = self.build_for_proof(group, "float64", self.request.batch_size)
        self.ran.gradients = prove_float64(
            model,
            self.prepared.reference,
            self.ran.adapter,
            self.request.seed,
            self.request.levels,
            self.keep,
        )
        return model

    def prove_alone(self, group: Group) -> None:
        """Updates in float64, and gradients in float32, of models built for it in one worker."""
        request, prepared, ran = self.request, self.prepared, self.ran
        if request.levels & {"update", "trajectory"}:
            self.reporter.phase(ran.adapter, "proving updates")
            model = self.build_for_proof(group, "float64", PRACTICE_BATCH)
            ran.changes = prove_updates(
                model,
                prepared.reference,
                prepared.practice,
                ran.adapter,
                via=request.via,
                levels=request.levels,
                keep=self.keep,
            )
            model.drop()
        if request.dtype == "float32" and "float32" in request.levels:
            for dtype, found in (("float64", ran.exact), ("float32", ran.rounded)):
                model = self.build_for_proof(group, dtype, FEW_SAMPLES)
                found += batch_gradients(model, prepared.reference)
                model.drop()

    def some_steps(self, model: RemoteModel) -> list[dict[str, Array]]:
        """Every worker's weights after some steps in float64."""
        data = self.prepared.scratch / "train-float64.npz"
        if not data.exists():
            with np.load(self.prepared.train, allow_pickle=False) as stored:
                inputs, labels = stored["inputs"], stored["labels"]
            write_arrays(data, {"inputs": inputs.astype(np.float64), "labels": labels})
        model.train(data, self.prepared.order[:DISTRIBUTED_STEPS])
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

    def time(self, group: Group, started: float) -> None:
        """Build what is timed, train it, test it, export it, and hold the file against it."""
        request, prepared, ran = self.request, self.prepared, self.ran
        self.reporter.phase(ran.adapter, "building")
        began = time.perf_counter()
        model = RemoteModel(
            group,
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
        trained = model.train(
            prepared.train,
            prepared.order,
            via=request.via,
            observe=True,
            on_progress=lambda event: self.reporter.steps(
                ran.adapter, event["step"], request.steps, event["loss"]
            ),
        )
        ran.observed = trained.facts[0]["observed"]
        ran.timing = summary(trained, request, started, built)

        self.reporter.phase(ran.adapter, "testing")
        logits = model.predict(prepared.test)
        correct = np.isfinite(logits).all(axis=-1) & (logits.argmax(-1) == prepared.test_labels)
        ran.quality = Quality(
            losses=tuple(float(loss) if math.isfinite(loss) else None for loss in trained.losses),
            test_accuracy=float(correct.mean()),
            test_samples=len(prepared.test_labels),
        )

        if not request.levels & {"structure", "export"}:
            return
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


def summary(trained: Trained, request: Request, started: float, built: float) -> Timing:
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
    )
