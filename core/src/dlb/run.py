"""``dlb run`` and ``dlb verify``: build, prove, time, record, one adapter after the other."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from dlb import __version__, record
from dlb.adapters import Home
from dlb.catalogue import data_set
from dlb.data.batches import sample_order
from dlb.data.load import load_described, normalise
from dlb.errors import DlbError, RecordError, RequestError
from dlb.proof import rungs
from dlb.proof.certificate import Certificate, Rung
from dlb.proof.ladder import prove_export, prove_float32, prove_float64, timed, without_dropout
from dlb.proof.reference import Reference
from dlb.provenance import git_state, machine_facts
from dlb.record import Options, Quality, Record, Timing
from dlb.supervision.group import Launch, worker_group
from dlb.supervision.remote import RemoteModel, start, write_arrays
from dlb.workload import Workload, workload_hash
from dlb.workload.files import to_document
from dlb.workload.initial import initial_weights

__all__ = ["Outcome", "Reporter", "Request", "run"]

Array = npt.NDArray[Any]
#: Samples that the forward and gradient rungs are run on.
PROOF_BATCH = 16
#: Steps that K workers and one worker take before their weights are compared.
DISTRIBUTED_STEPS = 10
#: What ``verify`` trains before it exports: enough that no weight is where it started.
VERIFY_STEPS = 5


class Reporter(Protocol):
    """Hears how a run is getting on."""

    def phase(self, adapter: str, text: str) -> None:
        """An adapter has come to another part of its run."""

    def steps(self, adapter: str, done: int, total: int, loss: float) -> None:
        """An adapter has trained so many steps."""

    def finished(self, adapter: str, text: str) -> None:
        """An adapter is done, well or not."""


@dataclass(frozen=True)
class Request:
    """What to run.

    Attributes:
        workload: what.
        homes: on which adapters.
        out: folder for records, or None to keep none (``verify``).
        batch_size, steps, warmup, threads, device, dtype, seed, via: see the command line.
        strategy, workers: "" and 1 alone.
        call_seconds: a worker that makes no progress for so long is ended.
        command: ``run`` or ``verify``, for the record.
    """

    workload: Workload
    homes: Sequence[Home]
    out: Path | None
    batch_size: int
    steps: int
    warmup: int
    threads: int
    device: str = "cpu"
    dtype: str = "float32"
    seed: int = 0
    via: str = "pipeline"
    strategy: str = ""
    workers: int = 1
    call_seconds: float = 300.0
    command: str = "run"


@dataclass
class Outcome:
    """What came of a run: a record for each adapter, where they lie, and the certificate."""

    records: list[Record]
    certificate: Certificate
    paths: list[Path] = field(default_factory=list)
    interrupted: bool = False

    @property
    def proven(self) -> bool:
        """Whether every adapter finished and was proven."""
        return bool(self.records) and all(
            one.proof == "proven" and not one.failure for one in self.records
        )


@dataclass(frozen=True)
class Prepared:
    """What every adapter is given, computed once.

    Attributes:
        scratch: folder for arrays.
        weights: seeded, float32.
        train, test: .npz files of the run's dtype with ``inputs`` and ``labels``.
        order: int64 [steps, batch_size].
        test_inputs, test_labels: what is in ``test``.
        reference: the truth, on a small batch of noise with labels of the training data.
        canonical: the canonical graph at the seeded weights.
    """

    scratch: Path
    weights: dict[str, Array]
    train: Path
    test: Path
    order: Array
    test_inputs: Array
    test_labels: Array
    reference: Reference
    canonical: Any
    where: str


def check(request: Request) -> None:
    """Raises RequestError for numbers that cannot be meant."""
    for name in ("batch_size", "steps", "threads", "workers"):
        if getattr(request, name) < 1:
            option = f"--{name.replace('_', '-')}"
            raise RequestError(f"{option} is {getattr(request, name)}; it must be 1 or more")
    if not 0 <= request.warmup < request.steps:
        raise RequestError(
            f"--warmup is {request.warmup}; it must be from 0 to less than the {request.steps} "
            "steps that are run"
        )
    if request.batch_size % request.workers:
        raise RequestError(
            f"--batch-size {request.batch_size} does not divide into {request.workers} equal "
            "shares; every worker needs the same number of samples"
        )
    if request.workers > 1 and not request.strategy:
        raise RequestError(
            f"--workers {request.workers} needs a --strategy; see: dlb list strategies"
        )


def run(request: Request, reporter: Reporter) -> Outcome:
    """Run a workload on adapters, prove them the same, and record each.

    An adapter that fails costs its own run and nothing else. Records are written as each adapter
    ends, and again when the certificate is whole.

    Raises:
        RequestError: the request cannot be carried out; nothing was started.
        RecordError: a record cannot be written; those before it are kept.
    """
    check(request)
    if request.out is not None:
        record.check_folder(request.out)
    with tempfile.TemporaryDirectory(prefix="dlb-") as folder:
        prepared = prepare(request, Path(folder))
        return _Session(request, prepared, reporter).run()


def prepare(request: Request, scratch: Path) -> Prepared:
    """Data, order, weights and truth.

    Raises:
        RequestError: the data set is not there, or does not fit the model or the batch size.
    """
    from dlb.graph.canonical import canonical_graph

    workload = request.workload
    described = data_set(workload.data.name)
    training, test = load_described(described, "train"), load_described(described, "test")
    if training.images.shape[1:] != workload.model.input.shape:
        raise RequestError(
            f"workload '{workload.name}' reads samples of shape {list(workload.model.input.shape)}; "
            f"data set '{workload.data.name}' has {list(training.images.shape[1:])}"
        )
    order = sample_order(len(training.images), request.batch_size, request.steps, request.seed)
    weights = initial_weights(workload.model, request.seed)
    mean, std = workload.data.mean, workload.data.std
    try:
        for split, name in ((training, "train"), (test, "test")):
            inputs = normalise(split.images, mean, std, request.dtype)
            write_arrays(scratch / f"{name}.npz", {"inputs": inputs, "labels": split.labels})
    except OSError as error:
        raise RequestError(
            f"cannot write to {scratch}: {error.strerror or error}; set TMPDIR to a folder with space"
        ) from None
    proven = without_dropout(workload).model
    # Noise, not images: an even background ties in every max pooling, where the loss has no
    # gradient that finite differences could agree with.
    noise = np.random.default_rng(request.seed).standard_normal(
        (PROOF_BATCH, *workload.model.input.shape), dtype=np.float32
    )
    return Prepared(
        scratch=scratch,
        weights=dict(weights),
        train=scratch / "train.npz",
        test=scratch / "test.npz",
        order=order,
        test_inputs=normalise(test.images, mean, std, request.dtype),
        test_labels=test.labels,
        reference=Reference(proven, weights, noise, training.labels[:PROOF_BATCH]),
        canonical=canonical_graph(workload.model, weights),
        where=str(training.folder),
    )


class _Session:
    """One run over all its adapters."""

    def __init__(self, request: Request, prepared: Prepared, reporter: Reporter) -> None:
        self.request = request
        self.prepared = prepared
        self.reporter = reporter
        self.rungs: list[Rung] = []
        self.gradients: dict[str, dict[str, Array]] = {}
        self.versions: dict[str, str] = {}
        self.deviations: dict[str, tuple[str, ...]] = {}
        self.machine = machine_facts()
        self.core = {"version": __version__, "git": git_state(Path(__file__).parent)}

    def run(self) -> Outcome:
        records: list[Record] = []
        interrupted = False
        for home in self.request.homes:
            try:
                records.append(self._adapter(home))
            except KeyboardInterrupt:
                interrupted = True
                break
            self._write(records[-1])
        self.rungs += self._across()
        certificate = self._certificate()
        final = [
            msgspec.structs.replace(
                one, certificate=certificate, proof=self._word(certificate, one)
            )
            for one in records
        ]
        paths = [path for one in final if (path := self._write(one)) is not None]
        return Outcome(final, certificate, paths, interrupted)

    @staticmethod
    def _word(certificate: Certificate, one: Record) -> Any:
        word = certificate.word(one.adapter)
        return "unproven" if word == "proven" and one.failure else word

    def _across(self) -> list[Rung]:
        """What needs several adapters."""
        if len(self.gradients) > 1:
            return rungs.agreement_rungs("gradients", self.gradients)
        return []

    def _certificate(self) -> Certificate:
        workload = self.request.workload
        return Certificate(
            workload=workload.name,
            workload_hash=workload_hash(workload),
            seed=self.request.seed,
            adapters=dict(self.versions),
            rungs=tuple(self.rungs),
            deviations=dict(self.deviations),
        )

    def _write(self, one: Record) -> Path | None:
        return record.write(one, self.request.out) if self.request.out is not None else None

    # --- one adapter ---------------------------------------------------------------------

    def _adapter(self, home: Home) -> Record:
        """Prove, time and export one adapter; whatever goes wrong with it is in its record."""
        moment = record.now()
        parts: dict[str, Any] = {}
        failure = ""
        scratch = self.prepared.scratch / home.adapter
        scratch.mkdir()
        self.reporter.phase(home.adapter, "starting")
        try:
            self._climb(home, scratch, parts)
        except RecordError:
            raise
        except DlbError as error:
            failure = self._keep_output(str(error), home.adapter, scratch)
        certificate = self._certificate()
        request, workload = self.request, self.request.workload
        facts = parts.get("facts", {})
        one = Record(
            format=record.FORMAT,
            name=record.new_name(workload.name, home.adapter, moment),
            started=moment.isoformat(timespec="seconds"),
            command=request.command,
            adapter=home.adapter,
            framework=facts.get("framework", ""),
            framework_version=facts.get("version", ""),
            workload_name=workload.name,
            workload=to_document(workload),
            workload_hash=workload_hash(workload),
            data={"name": workload.data.name, "from": self.prepared.where},
            options=Options(
                batch_size=request.batch_size,
                steps=request.steps,
                warmup=request.warmup,
                threads=request.threads,
                device=request.device,
                dtype=request.dtype,
                seed=request.seed,
                input=request.via,
                strategy=request.strategy,
                workers=request.workers,
            ),
            proof="deviates" if certificate.word(home.adapter) == "deviates" else "unproven",
            certificate=certificate,
            timing=parts.get("timing"),
            quality=parts.get("quality"),
            exported=parts.get("exported"),
            failure=failure,
            machine=self.machine,
            worker=facts,
            core=self.core,
            observed=parts.get("observed", {}),
        )
        self.reporter.finished(home.adapter, failure or "done")
        return one

    def _keep_output(self, failure: str, adapter: str, scratch: Path) -> str:
        """Keep what the workers printed where the failure can still point to it."""
        if self.request.out is None:
            return failure
        for log in sorted(scratch.glob("*.log")):
            kept = self.request.out / f"{adapter}-{log.name}"
            try:
                kept.write_bytes(log.read_bytes()[-1_000_000:])
            except OSError:
                continue
            failure = failure.replace(str(log), str(kept))
        return failure

    def _launch(self, home: Home, scratch: Path, *, alone: bool = False) -> Launch:
        request = self.request
        return Launch(
            adapter=home.adapter,
            python=home.python,
            scratch=scratch,
            threads=request.threads,
            strategy="" if alone else request.strategy,
            workers=1 if alone else request.workers,
            device=request.device,
            call_seconds=request.call_seconds,
        )

    def _climb(self, home: Home, scratch: Path, parts: dict[str, Any]) -> None:
        request, prepared, adapter = self.request, self.prepared, home.adapter
        began = time.perf_counter()
        with worker_group(self._launch(home, scratch)) as group:
            facts = start(group, threads=request.threads, device=request.device, seed=request.seed)
            parts["facts"] = facts[0]
            started = time.perf_counter() - began
            self.versions[adapter] = f"{facts[0]['framework']} {facts[0]['version']}"
            described = group.call("describe")[0]["adapters"]
            declared = next(one for one in described if one["name"] == adapter)["deviations"]
            if declared:
                self.deviations[adapter] = tuple(declared)

            self.reporter.phase(adapter, "proving in float64")
            spread = self._prove(group, adapter)

            self.reporter.phase(adapter, "building")
            began = time.perf_counter()
            model = RemoteModel(
                group,
                request.workload,
                prepared.weights,
                dtype=request.dtype,
                batch_size=request.batch_size,
            )
            built = time.perf_counter() - began
            if request.dtype == "float32":
                self.rungs += prove_float32(model, prepared.reference, adapter)
            self._train(model, adapter, parts, started, built)
            self._test(model, adapter, parts)
            self._export(model, adapter, scratch, parts)
            group.call("leave")
        if spread is not None:
            self._compare_alone(home, scratch / "alone", spread)

    def _prove(self, group: Any, adapter: str) -> list[dict[str, Array]] | None:
        """Climb in float64; with a strategy, also train some steps, and give every worker's weights."""
        request, prepared = self.request, self.prepared
        workload = without_dropout(request.workload)
        model = RemoteModel(
            group, workload, prepared.weights, dtype="float64", batch_size=request.batch_size
        )
        found, gradients = prove_float64(model, prepared.reference, adapter, request.seed)
        self.rungs += found
        self.gradients[adapter] = gradients
        spread = self._some_steps(model) if request.strategy else None
        model.drop()
        return spread

    def _some_steps(self, model: RemoteModel) -> list[dict[str, Array]]:
        data, order = self._float64_data()
        model.train(data, order)
        return model.weights()

    def _float64_data(self) -> tuple[Path, Array]:
        path = self.prepared.scratch / "train-float64.npz"
        if not path.exists():
            with np.load(self.prepared.train, allow_pickle=False) as stored:
                inputs, labels = stored["inputs"], stored["labels"]
            write_arrays(path, {"inputs": inputs.astype(np.float64), "labels": labels})
        return path, self.prepared.order[:DISTRIBUTED_STEPS]

    def _compare_alone(self, home: Home, scratch: Path, spread: list[dict[str, Array]]) -> None:
        """The distributed rung: the same steps by one worker."""
        request, prepared = self.request, self.prepared
        self.reporter.phase(home.adapter, "comparing with one worker")
        scratch.mkdir()
        with worker_group(self._launch(home, scratch, alone=True)) as group:
            start(group, threads=request.threads, device=request.device, seed=request.seed)
            model = RemoteModel(
                group,
                without_dropout(request.workload),
                prepared.weights,
                dtype="float64",
                batch_size=request.batch_size,
            )
            alone = self._some_steps(model)[0]
        steps = len(self._float64_data()[1])
        self.rungs.append(
            timed(
                lambda: rungs.distributed_rung(home.adapter, request.workers, steps, spread, alone)
            )
        )

    def _train(
        self, model: RemoteModel, adapter: str, parts: dict[str, Any], started: float, built: float
    ) -> None:
        request, total = self.request, self.request.steps
        self.reporter.phase(adapter, "training")
        trained = model.train(
            self.prepared.train,
            self.prepared.order,
            via=request.via,
            observe=True,
            on_progress=lambda event: self.reporter.steps(
                adapter, event["step"], total, event["loss"]
            ),
        )
        steady, waiting = (
            trained.step_seconds[request.warmup :],
            trained.data_seconds[request.warmup :],
        )
        lower, median, upper = np.percentile(steady, (25, 50, 75))
        facts = trained.facts
        parts["observed"] = facts[0]["observed"]
        parts["losses"] = tuple(
            float(loss) if math.isfinite(loss) else None for loss in trained.losses
        )
        parts["timing"] = Timing(
            step_seconds=tuple(trained.step_seconds.tolist()),
            data_seconds=tuple(trained.data_seconds.tolist()),
            total_seconds=facts[0]["seconds"],
            start_seconds=started,
            build_seconds=built,
            median=float(median),
            lower_quartile=float(lower),
            upper_quartile=float(upper),
            samples_per_second=float(
                len(steady) * request.batch_size / (steady.sum() + waiting.sum())
            ),
            cpu_seconds=sum(one["cpu_seconds"] for one in facts),
            busy_threads=max(one["busy_threads"] for one in facts),
            memory_bytes=max(one["memory_bytes"] for one in facts),
        )

    def _test(self, model: RemoteModel, adapter: str, parts: dict[str, Any]) -> None:
        """Accuracy of the trained object on the whole test split."""
        self.reporter.phase(adapter, "testing")
        logits = model.predict(self.prepared.test)
        correct = np.isfinite(logits).all(axis=-1) & (
            logits.argmax(axis=-1) == self.prepared.test_labels
        )
        parts["quality"] = Quality(
            losses=parts["losses"],
            test_accuracy=float(correct.mean()),
            test_samples=len(self.prepared.test_labels),
        )

    def _export(
        self, model: RemoteModel, adapter: str, scratch: Path, parts: dict[str, Any]
    ) -> None:
        """Export the object that was timed, and hold the file against the object."""
        self.reporter.phase(adapter, "exporting and verifying")
        exported = scratch / "exported.onnx"
        inputs = np.resize(
            self.prepared.test_inputs, (model.share, *self.prepared.test_inputs.shape[1:])
        )
        self.rungs += prove_export(model, self.prepared.canonical, adapter, inputs, exported)
        if self.request.out is not None and exported.exists():
            parts["exported"] = record.keep_model(exported, self.request.out)
