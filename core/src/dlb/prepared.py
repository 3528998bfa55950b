"""What every adapter receives of a request, computed once: data, order, weights, references."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.data.batches import draw_sample_schedule, sample_order
from dlb.data.source import Source
from dlb.proof.checks.float32_layers import BATCHES
from dlb.proof.extremes import ExtremeKind, check_domains, extremes
from dlb.proof.reference import Reference
from dlb.proof.update_batches import UpdateBatches, as_dtype, step_numbers
from dlb.request import Request
from dlb.samples import proof_inputs, proof_labels, read_labels, read_samples, write_samples
from dlb.supervision.remote import write_arrays
from dlb_graph.workload import Model, infer_shapes, multiply_adds
from dlb_graph.workload.initial import proof_masks, proof_weights
from dlb_graph.workload.smaller_maps import on_smaller_maps

__all__ = [
    "Prepared",
    "References",
    "TrainingData",
    "prepare",
    "proof_batch",
    "timed_batch_in_numpy",
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


@dataclass(frozen=True)
class TrainingData:
    """The samples that the timed model trains on and is tested with.

    Attributes:
        train, test: .npz files of the run's dtype with ``inputs`` and ``labels``. ``train`` has only
            the samples that the steps use.
        order: int64 [steps, batch_size], indices of samples in ``train``.
        crops: int32 [steps, batch_size, 3], the crop of each sample; None without augmentation.
        test_inputs: the first samples of ``test``, at most a batch.
        test_labels: the labels of all samples in ``test``.
        where: where the training samples were read from.
        epoch: steps of an epoch.
    """

    train: Path
    test: Path
    order: Array
    crops: Array | None
    test_inputs: Array
    test_labels: Array
    where: str
    epoch: int

    def first(self, steps: int) -> TrainingData:
        """The same for the first steps alone."""
        crops = None if self.crops is None else self.crops[:steps]
        return replace(self, order=self.order[:steps], crops=crops)


@dataclass(frozen=True)
class References:
    """What NumPy computes of the model, to compare with.

    Attributes:
        ordinary: at the proof's weights, on a small batch of noise, with dropout masks.
        timed: the same on a batch as large as a step of one worker, or as large as NumPy permits.
        extremes: the same at weights and inputs that take layers to their bounds; of a large network on
            smaller maps.
        seeded: at the weights that the timed model starts from.
        first_update: on the first of the batches of the update checks; of a large network on smaller maps.
        small_references: on some small batches, for float32.
    """

    ordinary: Reference
    timed: Reference
    extremes: Mapping[ExtremeKind, Reference]
    seeded: Reference
    first_update: Reference
    small_references: Sequence[Reference]


@dataclass(frozen=True)
class Prepared:
    """What every adapter receives, computed once.

    Attributes:
        scratch: folder for arrays.
        weights: initial weights, float32: seeded, or those of the ONNX file.
        canonical: the canonical graph at the initial weights.
        data: what the timed model trains on.
        update_batches: the batches of the update checks, noise.
        references: what NumPy computes.
    """

    scratch: Path
    weights: dict[str, Array]
    canonical: Any
    data: TrainingData
    update_batches: UpdateBatches
    references: References


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
    from dlb_graph.truth.canonical import canonical_graph

    data = _write_training_data(request, scratch)
    weights, model = request.weights(), request.workload.model
    # Workers that train together hold one model at a time, and it has the run's size.
    if proof_batch(model) == LARGE_PROOF_BATCH and not request.strategy:
        model = on_smaller_maps(model)
    batches = _draw_update_batches(request, model, scratch)
    return Prepared(
        scratch=scratch,
        weights=weights,
        canonical=canonical_graph(request.workload.model, weights),
        data=data,
        update_batches=batches,
        references=_make_references(request, weights, batches, model),
    )


def _write_training_data(request: Request, scratch: Path) -> TrainingData:
    """Draw the steps' samples, and write them and the test's; the data are closed afterwards."""
    workload, splits = request.workload, request.splits
    training, test = splits.training, splits.test
    schedule = draw_sample_schedule(
        workload.data.augmentation, training.count, request.batch_size, request.steps, request.seed
    )
    test_samples = _choose_test_samples(test)
    if request.out is None:  # The export is compared on one batch; no accuracy is reported.
        test_samples = test_samples[: request.batch_size]
    train_path, test_path = scratch / "train.npz", scratch / "test.npz"
    write_samples(
        workload, training, schedule.samples, request.dtype, train_path, schedule.resized_crops
    )
    write_samples(workload, test, test_samples, request.dtype, test_path)
    data = TrainingData(
        train=train_path,
        test=test_path,
        order=schedule.order,
        crops=schedule.crops,
        test_inputs=read_samples(workload, test, test_samples[: request.batch_size], request.dtype),
        test_labels=read_labels(test, test_samples, request.dtype),
        where=training.where,
        epoch=training.count // request.batch_size,
    )
    splits.close()
    return data


def _draw_update_batches(request: Request, model: Model, folder: Path) -> UpdateBatches:
    """Draw the noise of the update checks, and write it in both dtypes."""
    workload, batch = request.workload, _update_batch(request)
    samples = max(UPDATE_SAMPLES, batch)
    inputs, labels = _update_samples(request, model, samples)
    numbers = step_numbers(workload.optimizer, workload.schedule, request.trajectory_steps)
    batches = UpdateBatches(
        folder=folder,
        inputs=as_dtype(inputs, "float64"),
        labels=as_dtype(labels, "float64"),
        order=sample_order(samples, batch, len(numbers), request.seed),
        numbers=numbers,
    )
    for dtype in ("float64", "float32"):
        arrays = {
            "inputs": as_dtype(batches.inputs, dtype),
            "labels": as_dtype(batches.labels, dtype),
        }
        write_arrays(batches.path(dtype), arrays)
    return batches


def _update_samples(request: Request, model: Model, samples: int) -> tuple[Array, Array]:
    """Noise for the update checks, which is none of the ordinary reference's, and its labels."""
    seed = request.seed + 1
    labels = proof_labels(model, seed, samples, request.workload.loss)
    return proof_inputs(model, seed, samples), labels


def _make_references(
    request: Request, weights: dict[str, Array], batches: UpdateBatches, smaller: Model
) -> References:
    """All references.

    Args:
        smaller: the model of the update checks and the extremes, perhaps on smaller maps.
    """
    workload, model = request.workload, request.workload.model
    parts = workload.optimizer.accumulate
    per_worker_batch = request.shares[0]
    batch = max(per_worker_batch if request.choices else 0, proof_batch(model))
    timed_batch = _in_whole(timed_batch_in_numpy(model, per_worker_batch), parts)
    weights_of_proof = proof_weights(weights, request.seed)
    # A model that is built for proofs also receives whole batches of the run.
    rows = max(batch, timed_batch, _update_batch(request), request.batch_size)

    def masks_of(model: Model) -> dict[str, Array]:
        masks = proof_masks(model, request.seed, rows)
        if request.workers > 1 and parts > 1:
            # Each part begins with the first masks: those of several workers and of one are then the same.
            again = np.arange(rows) % (math.gcd(*request.shares) // parts)
            masks = {name: mask[again] for name, mask in masks.items()}
        return masks

    masks = masks_of(model)
    smaller_masks = masks if smaller is model else masks_of(smaller)

    def reference(samples: int, model: Model = model, masks: dict[str, Array] = masks) -> Reference:
        # Noise, not images: a uniform background ties in every max pooling, where the loss has no
        # gradient that finite differences could match.
        inputs = proof_inputs(model, request.seed, samples)
        labels = proof_labels(model, request.seed, samples, workload.loss)
        return Reference(model, weights_of_proof, inputs, labels, masks, workload.loss)

    ordinary, few = reference(batch), reference(extreme_batch(model), smaller, smaller_masks)
    check_domains(ordinary)
    first = batches.order[0]
    samples = _update_samples(request, model, BATCHES * batches.batch_size)
    inputs, labels = (np.split(as_dtype(each, "float64"), BATCHES) for each in samples)
    return References(
        ordinary=ordinary,
        timed=ordinary if timed_batch == batch else reference(timed_batch),
        extremes={
            case.kind: Reference(
                smaller, case.weights, case.inputs, few.labels, smaller_masks, workload.loss
            )
            for case in extremes(smaller, weights_of_proof, few.inputs)
        },
        seeded=Reference(model, weights, ordinary.inputs, ordinary.labels, loss=workload.loss),
        first_update=Reference(
            smaller,
            weights_of_proof,
            batches.inputs[first],
            batches.labels[first],
            smaller_masks,
            workload.loss,
        ),
        small_references=tuple(
            Reference(model, weights_of_proof, *each, masks, workload.loss)
            for each in zip(inputs, labels)
        ),
    )


def _update_batch(request: Request) -> int:
    return _in_whole(UPDATE_BATCH, request.workload.optimizer.accumulate)


def _in_whole(samples: int, parts: int) -> int:
    """So many samples, or a few more, which divide into equal parts."""
    return samples + -samples % parts


def _choose_test_samples(test: Source) -> Array:
    """The indices of the test samples of a run: all, or evenly spread ones."""
    count = min(test.count, DECODED_TESTS) if test.decoded else test.count
    return np.arange(count, dtype=np.int64) * test.count // count
