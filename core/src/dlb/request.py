"""A request, its checks, and what every adapter receives: data, order, weights, reference."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from dlb.adapters import AdapterEnvironment
from dlb.data.batches import draw_sample_schedule, sample_order
from dlb.data.source import Source
from dlb.errors import RequestError
from dlb.proof.certificate import CHECK_GROUPS, CheckGroup
from dlb.proof.checks.float32_layers import small_references
from dlb.proof.extremes import ExtremeKind, check_domains, extremes
from dlb.proof.reference import Reference
from dlb.proof.update_batches import UpdateBatches, as_dtype, step_numbers
from dlb.samples import (
    count_samples,
    open_split,
    proof_inputs,
    proof_labels,
    read_labels,
    read_samples,
    write_samples,
)
from dlb.supervision.remote import write_arrays
from dlb.workload import Model, Workload, infer_shapes, multiply_adds
from dlb.workload.initial import initial_weights, proof_masks, proof_weights
from dlb.workload.training import with_epoch

if TYPE_CHECKING:
    from dlb.imported import ImportedModel
    from dlb.record import Record
    from dlb.results.measurement import Measurement

__all__ = [
    "VERIFY_STEPS",
    "Prepared",
    "Reporter",
    "Request",
    "check",
    "prepare",
    "proof_batch",
    "share_cores",
]

Array = npt.NDArray[Any]
#: Samples of the forward and gradient checks. Networks with more than ``LARGE`` multiply-adds per sample
#: use the smaller number. With a variant, the checks use at least the batch of one worker: compilers
#: compile for one batch size, and can be wrong for that size alone.
PROOF_BATCH, LARGE_PROOF_BATCH, LARGE = 16, 4, 250_000_000
#: Samples of the checks at extremes, for which more show nothing more; two for a batch's statistics.
EXTREME_BATCH, LARGE_EXTREME_BATCH = 4, 2
#: The batch that is timed is compared with the truth as far as it costs at most these multiply-adds in a
#: forward pass, and this many values of layers. NumPy takes seconds for either.
TIMED_MULTIPLY_ADDS, TIMED_VALUES = 10_000_000_000, 50_000_000
#: Samples in each step of the update checks, and samples that these are drawn from. Both are small,
#: since every step costs a backward pass in float64.
UPDATE_BATCH, UPDATE_SAMPLES = 4, 32
#: Test samples that a run uses of data that must be decoded; it uses all samples of other data.
DECODED_TESTS = 1000
#: Steps of the trajectory by default.
TRAJECTORY_STEPS = 20
#: Steps that ``verify`` trains before it exports: enough to change every weight.
VERIFY_STEPS = 5
#: Command-line options whose name differs from the field's.
OPTIONS = {"batch_size": "--batch-size", "trajectory_steps": "--steps"}


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

    def round_ended(self, measurement: Measurement) -> None:
        """A round of a measurement has ended, and another follows."""


@dataclass(frozen=True)
class Request:
    """What to run.

    Attributes:
        workload: the workload.
        environments: the environments of the adapters.
        out: folder for records; None to keep none (``verify``).
        batch_size, steps, warmup, threads, device, dtype, seed, input_mode: see the command line.
        strategy, workers: the distributed strategy and its worker processes; "" and 1 for none.
        call_seconds: a worker without progress for this time is ended.
        command: ``run`` or ``verify``, for the record.
        groups: the groups of checks to run.
        trajectory_steps: steps of the trajectory.
        at_once: adapters that run at the same time; 1 wherever time is measured.
        variants: by adapter, its choices that differ from their default. They apply to every model
            that is built, so that the proven model is the timed one.
        imported: the ONNX file that the workload and its weights come from; None if weights are
            seeded.
        prove_again: whether a proof that was kept is made again.
        proven: whether a kept proof is used, so that only the timed run is checked.
        trial_draws: the run is a trial of a measurement, which is not tested, and this many steps are drawn
            for its audit, beside the first and the last; None for a run that stands alone.
        test_steps, test_seconds: test the model every so many steps, or seconds of training; None for the
            end alone.
        variables: environment variables of the workers' processes, beside those of this process.
    """

    workload: Workload
    environments: Sequence[AdapterEnvironment]
    out: Path | None
    batch_size: int
    steps: int
    warmup: int
    threads: int
    device: str = "cpu"
    dtype: str = "float32"
    seed: int = 0
    input_mode: str = "pipeline"
    strategy: str = ""
    workers: int = 1
    call_seconds: float = 300.0
    command: str = "run"
    groups: frozenset[CheckGroup] = frozenset(CHECK_GROUPS)
    trajectory_steps: int = TRAJECTORY_STEPS
    at_once: int = 1
    variants: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    imported: ImportedModel | None = None
    prove_again: bool = False
    proven: bool = False
    trial_draws: int | None = None
    test_steps: int | None = None
    test_seconds: float | None = None
    variables: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Tell a schedule by epochs how many steps one has."""
        if getattr(self.workload.schedule, "unit", "") == "epoch":
            epoch = max(1, count_samples(self.workload) // max(1, self.batch_size))
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

    def variant(self, adapter: str) -> dict[str, str]:
        """An adapter's choices that differ from their default, by name."""
        return dict(self.variants.get(adapter, {}))


@dataclass(frozen=True)
class Prepared:
    """What every adapter receives, computed once.

    Attributes:
        scratch: folder for arrays.
        weights: initial weights, float32: seeded, or those of the ONNX file.
        train, test: .npz files of the run's dtype with ``inputs`` and ``labels``. ``train`` has only
            the samples that the steps use.
        order: int64 [steps, batch_size], indices of samples in ``train``.
        crops: int32 [steps, batch_size, 3], the crop of each sample; None without augmentation.
        test_inputs: the first samples of ``test``, at most a batch.
        test_labels: the labels of all samples in ``test``.
        reference: the reference at the proof's weights, on a small batch of noise, with dropout
            masks.
        timed: the same on a batch as large as a step of one worker, or as large as NumPy permits.
        extremes: the same at weights and inputs that take layers to their bounds.
        seeded: the reference at the weights that the timed model starts from.
        update_batches: the batches of the update checks, noise too.
        first_update: the reference on the first of these batches.
        small_references: the reference on some small batches, for float32.
        canonical: the canonical graph at the initial weights.
        where: where the training samples were read from.
        epoch: steps of an epoch.
    """

    scratch: Path
    weights: dict[str, Array]
    train: Path
    test: Path
    order: Array
    crops: Array | None
    test_inputs: Array
    test_labels: Array
    reference: Reference
    timed: Reference
    extremes: Mapping[ExtremeKind, Reference]
    seeded: Reference
    update_batches: UpdateBatches
    first_update: Reference
    small_references: Sequence[Reference]
    canonical: Any
    where: str
    epoch: int


def check(request: Request) -> None:
    """Check the numbers of a request, and that its weights are available.

    Raises:
        RequestError: a number is out of range, or the weights' ONNX file is missing.
    """
    if request.workload.onnx and request.imported is None:
        raise RequestError(
            f"workload '{request.workload.name}' starts from the weights of an ONNX file (SHA-256 "
            f"{request.workload.onnx}); give the path of that file instead"
        )
    for name in ("batch_size", "steps", "threads", "workers", "trajectory_steps"):
        if getattr(request, name) < 1:
            option = OPTIONS.get(name, f"--{name}")
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
    parts, samples = request.workload.optimizer.accumulate, request.batch_size // request.workers
    if samples % parts:
        raise RequestError(
            f"--batch-size {request.batch_size} gives each worker {samples} samples a step, which do not "
            f"divide into {parts} equal parts (optimizer.accumulate)"
        )
    if request.input_mode == "memory" and request.workload.data.augmentation.moves:
        raise RequestError(
            f"--input memory keeps samples as they are, and workload '{request.workload.name}' "
            "cuts or mirrors them (data.augmentation); use --input pipeline"
        )
    if request.workers > 1 and not request.strategy:
        raise RequestError(
            f"--workers {request.workers} needs a --strategy; see: dlb list strategies"
        )


def share_cores(
    cores: int, adapters: int, threads: int | None, *, workers: int = 1, device: str = "cpu"
) -> tuple[int, int]:
    """How many adapters run at the same time when nothing is timed, and the threads of each worker.

    Much of a proof uses one thread alone (imports, exports). Adapters never share a GPU.
    """
    per_adapter = workers * max(1, threads or 1)
    at_once = max(1, min(adapters, cores // per_adapter)) if device == "cpu" else 1
    return at_once, max(1, cores // (workers * at_once)) if threads is None else threads


def proof_batch(model: Model) -> int:
    """The number of samples of the forward and gradient checks."""
    return LARGE_PROOF_BATCH if sum(multiply_adds(model).values()) > LARGE else PROOF_BATCH


def extreme_batch(model: Model) -> int:
    """The number of samples of the checks at extremes."""
    large = proof_batch(model) == LARGE_PROOF_BATCH
    return LARGE_EXTREME_BATCH if large else EXTREME_BATCH


def timed_batch_in_numpy(model: Model, per_worker_batch: int) -> int:
    """How many samples of a worker's step are compared: all that NumPy computes in some seconds."""
    work = max(1, sum(multiply_adds(model).values()))
    values = sum(math.prod(shape) for shape in infer_shapes(model).values())
    affordable = min(TIMED_MULTIPLY_ADDS // work, TIMED_VALUES // values)
    return min(per_worker_batch, max(affordable, proof_batch(model)))


def prepare(request: Request, scratch: Path) -> Prepared:
    """Read the data and compute what every adapter receives.

    Raises:
        RequestError: the data set is missing, or does not fit the model or the batch size.
    """
    from dlb.graph.canonical import canonical_graph

    workload = request.workload
    training, test = open_split(workload, "train"), open_split(workload, "test")
    sample_schedule = draw_sample_schedule(
        workload.data.augmentation, training.count, request.batch_size, request.steps, request.seed
    )
    weights = request.weights()
    # Noise, not images: a uniform background ties in every max pooling, where the loss has no
    # gradient that finite differences could match.
    model, per_worker_batch = workload.model, request.batch_size // request.workers
    batch = max(per_worker_batch if request.variants else 0, proof_batch(model))
    parts = workload.optimizer.accumulate
    timed_batch = _in_whole(timed_batch_in_numpy(model, per_worker_batch), parts)
    update_batch = _in_whole(UPDATE_BATCH, parts)
    update_samples = max(UPDATE_SAMPLES, update_batch)
    numbers = step_numbers(workload.optimizer, workload.schedule, request.trajectory_steps)
    update_batches = UpdateBatches(
        folder=scratch,
        inputs=as_dtype(proof_inputs(model, request.seed + 1, update_samples), "float64"),
        labels=as_dtype(
            proof_labels(model, request.seed + 1, update_samples, workload.loss), "float64"
        ),
        order=sample_order(update_samples, update_batch, len(numbers), request.seed),
        numbers=numbers,
    )
    test_samples = _choose_test_samples(test)
    if request.out is None:  # The export is compared on one batch; no accuracy is reported.
        test_samples = test_samples[: request.batch_size]
    train_path, test_path = scratch / "train.npz", scratch / "test.npz"
    write_samples(
        workload,
        training,
        sample_schedule.samples,
        request.dtype,
        train_path,
        sample_schedule.resized_crops,
    )
    write_samples(workload, test, test_samples, request.dtype, test_path)
    for dtype in ("float64", "float32"):
        arrays = {
            "inputs": as_dtype(update_batches.inputs, dtype),
            "labels": as_dtype(update_batches.labels, dtype),
        }
        write_arrays(update_batches.path(dtype), arrays)
    weights_of_proof = proof_weights(weights, request.seed)
    # A model that is built for proofs also receives whole batches of the run.
    rows = max(batch, timed_batch, update_batch, request.batch_size)
    masks = proof_masks(model, request.seed, rows)
    if request.workers > 1 and parts > 1:
        # Each part begins with the first masks: those of several workers and of one are then the same.
        again = np.arange(rows) % (per_worker_batch // parts)
        masks = {name: mask[again] for name, mask in masks.items()}

    def reference(samples: int) -> Reference:
        inputs = proof_inputs(model, request.seed, samples)
        labels = proof_labels(model, request.seed, samples, workload.loss)
        return Reference(model, weights_of_proof, inputs, labels, masks, workload.loss)

    ordinary, few = reference(batch), reference(extreme_batch(model))
    check_domains(ordinary)
    return Prepared(
        scratch=scratch,
        weights=weights,
        train=train_path,
        test=test_path,
        order=sample_schedule.order,
        crops=sample_schedule.crops,
        test_inputs=read_samples(workload, test, test_samples[: request.batch_size], request.dtype),
        test_labels=read_labels(test, test_samples, request.dtype),
        reference=ordinary,
        timed=ordinary if timed_batch == batch else reference(timed_batch),
        extremes={
            case.kind: Reference(model, case.weights, case.inputs, few.labels, masks, workload.loss)
            for case in extremes(model, weights_of_proof, few.inputs)
        },
        seeded=Reference(model, weights, ordinary.inputs, ordinary.labels, loss=workload.loss),
        update_batches=update_batches,
        first_update=Reference(
            model,
            weights_of_proof,
            update_batches.inputs[update_batches.order[0]],
            update_batches.labels[update_batches.order[0]],
            masks,
            workload.loss,
        ),
        small_references=small_references(
            model, weights_of_proof, update_batches, masks, workload.loss
        ),
        canonical=canonical_graph(model, weights),
        where=training.where,
        epoch=training.count // request.batch_size,
    )


def _in_whole(samples: int, parts: int) -> int:
    """So many samples, or a few more, which divide into equal parts."""
    return samples + -samples % parts


def _choose_test_samples(test: Source) -> Array:
    """The indices of the test samples of a run: all, or evenly spread ones."""
    count = min(test.count, DECODED_TESTS) if test.decoded else test.count
    return np.arange(count, dtype=np.int64) * test.count // count
