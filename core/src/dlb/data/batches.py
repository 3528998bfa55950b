"""The order of samples in training, and their crops, drawn once for all frameworks."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dlb.data.augmentation import draw_crops, draw_resized_crops
from dlb.errors import RequestError

if TYPE_CHECKING:
    from dlb_graph.workload import Augmentation

__all__ = ["SampleSchedule", "draw_sample_schedule", "sample_order"]


def sample_order(n_samples: int, batch_size: int, steps: int, seed: int) -> npt.NDArray[np.int64]:
    """The samples of each training step.

    Each epoch is a new permutation of all samples, cut into batches. The remainder, which is less
    than a batch, is dropped, so that every batch has the same shape.

    To repeat a record, the order must be the same on every machine and with every version of NumPy.
    NumPy guarantees that for the raw stream of a bit generator, but not for
    ``Generator.permutation``. Therefore the samples are sorted by 64-bit keys, which SHAKE-256
    (FIPS 202) draws from the seed and the epoch's number. The sort is stable, so that equal keys
    have a fixed order too.

    Args:
        n_samples: the number of samples.
        batch_size: samples per step, 1 to ``n_samples``.
        steps: training steps, over as many epochs as necessary.
        seed: any integer.

    Returns:
        int64 [steps, batch_size], indices in 0..n_samples-1.

    Raises:
        RequestError: ``batch_size`` or ``steps`` is below 1, or ``batch_size`` above
            ``n_samples``.
    """
    if steps < 1:
        raise RequestError(f"steps is {steps}; it must be 1 or more")
    if not 1 <= batch_size <= n_samples:
        raise RequestError(
            f"batch size is {batch_size}; it must be from 1 to the number of samples, {n_samples}"
        )
    per_epoch = n_samples // batch_size
    order = np.empty((steps, batch_size), dtype=np.int64)
    for epoch, first in enumerate(range(0, steps, per_epoch)):
        count = min(per_epoch, steps - first)
        samples = _permutation(n_samples, seed, epoch)[: count * batch_size]
        order[first : first + count] = samples.reshape(count, batch_size)
    return order


def _permutation(n_samples: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    text = f"dlb sample order 1; seed {seed}; epoch {epoch}"
    keys = np.frombuffer(hashlib.shake_256(text.encode()).digest(8 * n_samples), dtype="<u8")
    return np.argsort(keys, kind="stable").astype(np.int64)


@dataclass(frozen=True)
class SampleSchedule:
    """The samples of each training step, and their augmentation.

    Attributes:
        samples: int64 [n], indices of the data set's samples that an adapter receives.
        resized_crops: uint32 [n, 22], the random numbers of each sample's resized crop
            (:func:`dlb.data.augmentation.crop_box`); None for whole images.
        order: int64 [steps, batch], the samples of each step, as indices into ``samples``.
        crops: int32 [steps, batch, 3], the crop of each sample (:func:`dlb_worker.crops.cut`); None
            without cropping and mirroring.
    """

    samples: npt.NDArray[np.int64]
    resized_crops: npt.NDArray[np.uint32] | None
    order: npt.NDArray[np.int64]
    crops: npt.NDArray[np.int32] | None


def draw_sample_schedule(
    augmentation: Augmentation, n_samples: int, batch_size: int, steps: int, seed: int
) -> SampleSchedule:
    """Draw the order and the augmentation of a run's samples.

    An adapter receives each sample once, even if several steps use it. With resized crops, each use
    is a sample of its own.

    Args:
        augmentation: the workload's augmentation.
        n_samples, batch_size, steps, seed: as in :func:`sample_order`.

    Raises:
        RequestError: as :func:`sample_order`.
    """
    order = sample_order(n_samples, batch_size, steps, seed)
    crops = resized_crops = None
    if augmentation.moves:
        crops = draw_crops(order, n_samples, seed, augmentation)
    if augmentation.resizes:
        drawn = draw_resized_crops(order, n_samples, seed)
        samples, resized_crops = order.reshape(-1), drawn.reshape(-1, drawn.shape[-1])
        indices = np.arange(order.size)
    else:
        samples, indices = np.unique(order, return_inverse=True)
    order = indices.reshape(order.shape).astype(np.int64)
    return SampleSchedule(samples, resized_crops, order, crops)
