"""What is to be run, checked, and what every adapter is given: data, order, weights, truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from dlb.adapters import AdapterEnvironment
from dlb.data.batches import draw_visits, sample_order
from dlb.data.source import Source
from dlb.errors import RequestError
from dlb.proof.certificate import CHECK_GROUPS, CheckGroup
from dlb.proof.reference import Reference
from dlb.proof.update_batches import UpdateBatches, as_dtype
from dlb.samples import noise, open_split, random_labels, read_samples, write_samples
from dlb.supervision.remote import write_arrays
from dlb.workload import Model, Workload, multiply_adds
from dlb.workload.initial import initial_weights, proof_masks, proof_weights

if TYPE_CHECKING:
    from dlb.imported import ImportedModel

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
#: Samples that the forward and gradient checks are run on, and of networks that take more than so many
#: multiply-adds for one. With a variant as many as a step of one worker has, if those are more:
#: compilers compile for a size, and can be wrong at one size alone.
PROOF_BATCH, LARGE_PROOF_BATCH, LARGE = 16, 4, 250_000_000
#: Samples in each step that updates are proven on, and how many there are to draw them from. Few,
#: since every step costs a backward pass in float64 more.
UPDATE_BATCH, UPDATE_SAMPLES = 4, 32
#: Test samples of data that must be decoded one by one; of others all are tested on.
DECODED_TESTS = 1000
#: Steps that an update is followed over, unless another number is asked for.
TRAJECTORY_STEPS = 20
#: What ``verify`` trains before it exports: enough that no weight is where it started.
VERIFY_STEPS = 5
#: Options of numbers that the command line calls otherwise.
OPTIONS = {"batch_size": "--batch-size", "trajectory_steps": "--steps"}


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
        environments: on which adapters.
        out: folder for records, or None to keep none (``verify``).
        batch_size, steps, warmup, threads, device, dtype, seed, input_mode: see the command line.
        strategy, workers: "" and 1 alone.
        call_seconds: a worker that makes no progress for so long is ended.
        command: ``run`` or ``verify``, for the record.
        groups: the groups of checks to run.
        trajectory_steps: how many steps the trajectory is followed over.
        at_once: adapters that run at the same time: 1 wherever time is what is measured.
        variants: by adapter, the choices of it that are not at their default. They hold for every
            model that is built, so that what is proven is what is timed.
        imported: the ONNX file that the workload and its weights are read from; None where weights
            are seeded.
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

    @property
    def left_out(self) -> tuple[CheckGroup, ...]:
        """Groups that are not run, in order."""
        return tuple(group for group in CHECK_GROUPS if group not in self.groups)

    def weights(self) -> dict[str, Array]:
        """What training starts from, float32, by ``layer.parameter``."""
        if self.imported is not None:
            return dict(self.imported.weights)
        return dict(initial_weights(self.workload.model, self.seed))

    def variant(self, adapter: str) -> dict[str, str]:
        """Choices of an adapter that are not at their default, by name."""
        return dict(self.variants.get(adapter, {}))


@dataclass(frozen=True)
class Prepared:
    """What every adapter is given, computed once.

    Attributes:
        scratch: folder for arrays.
        weights: seeded, or the file's, float32.
        train, test: .npz files of the run's dtype with ``inputs`` and ``labels``; ``train`` has the
            samples that the steps ask for.
        order: int64 [steps, batch_size], samples of ``train``.
        crops: int32 [steps, batch_size, 3], what is cut out of them; None where nothing is.
        test_inputs: the first of ``test``, as many as a batch has, or all if there are fewer.
        test_labels: all of ``test``.
        reference: the truth, at weights for proofs, on a small batch of noise, with the masks that
            dropouts are given.
        seeded: the truth at the weights that the timed model starts from.
        update_batches: what updates are proven on, noise too.
        canonical: the canonical graph at the seeded weights.
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
    seeded: Reference
    update_batches: UpdateBatches
    canonical: Any
    where: str


def check(request: Request) -> None:
    """Raises RequestError for numbers that cannot be meant, and for weights that are not there."""
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
    """How many adapters run at once where nothing is timed, and threads of each worker.

    Much of a proof is one thread's work (imports, exports), and a device is not shared.
    """
    per_adapter = workers * max(1, threads or 1)
    at_once = max(1, min(adapters, cores // per_adapter)) if device == "cpu" else 1
    return at_once, max(1, cores // (workers * at_once)) if threads is None else threads


def proof_batch(model: Model) -> int:
    """Samples that the forward and gradient checks are run on."""
    return LARGE_PROOF_BATCH if sum(multiply_adds(model).values()) > LARGE else PROOF_BATCH


def prepare(request: Request, scratch: Path) -> Prepared:
    """Data, order, weights and truth.

    Raises:
        RequestError: the data set is not there, or does not fit the model or the batch size.
    """
    from dlb.graph.canonical import canonical_graph

    workload = request.workload
    training, test = open_split(workload, "train"), open_split(workload, "test")
    visits = draw_visits(
        workload.data.augmentation, training.count, request.batch_size, request.steps, request.seed
    )
    weights = request.weights()
    # Noise, not images: an even background ties in every max pooling, where the loss has no
    # gradient that finite differences could agree with.
    share = request.batch_size // request.workers if request.variants else 0
    batch = max(share, proof_batch(workload.model))
    inputs = noise(workload.model, request.seed, batch)
    labels = random_labels(workload.model, request.seed, batch)
    update_batches = UpdateBatches(
        folder=scratch,
        inputs=as_dtype(noise(workload.model, request.seed + 1, UPDATE_SAMPLES), "float64"),
        labels=random_labels(workload.model, request.seed + 1, UPDATE_SAMPLES),
        order=sample_order(UPDATE_SAMPLES, UPDATE_BATCH, request.trajectory_steps, request.seed),
    )
    tested = _tested(test)
    if request.out is None:  # The export is compared on a batch; nobody is told an accuracy.
        tested = tested[: request.batch_size]
    to = scratch / "train.npz"
    write_samples(workload, training, visits.samples, request.dtype, to, visits.parts)
    write_samples(workload, test, tested, request.dtype, scratch / "test.npz")
    for dtype in ("float64", "float32"):
        arrays = {"inputs": as_dtype(update_batches.inputs, dtype), "labels": update_batches.labels}
        write_arrays(update_batches.path(dtype), arrays)
    proven = proof_weights(weights, request.seed)
    # Only with a strategy are whole batches of the run given to a model that is built for proofs.
    rows = max(len(inputs), UPDATE_BATCH, request.batch_size if request.strategy else 0)
    masks = proof_masks(workload.model, request.seed, rows)
    return Prepared(
        scratch=scratch,
        weights=weights,
        train=to,
        test=scratch / "test.npz",
        order=visits.order,
        crops=visits.crops,
        test_inputs=read_samples(workload, test, tested[: request.batch_size], request.dtype),
        test_labels=test.labels[tested],
        reference=Reference(workload.model, proven, inputs, labels, masks, workload.loss),
        seeded=Reference(workload.model, weights, inputs, labels),
        update_batches=update_batches,
        canonical=canonical_graph(workload.model, weights),
        where=training.where,
    )


def _tested(test: Source) -> Array:
    """The test samples of a run, all or evenly spread ones."""
    count = min(test.count, DECODED_TESTS) if test.decoded else test.count
    return np.arange(count, dtype=np.int64) * test.count // count
