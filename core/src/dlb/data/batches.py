"""The order in which samples are seen, and what of them, decided once for every framework."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dlb.data.augmentation import draw_crops, draw_parts
from dlb.errors import RequestError

if TYPE_CHECKING:
    from dlb.workload import Augmentation

__all__ = ["Visits", "draw_visits", "sample_order"]


def sample_order(n_samples: int, batch_size: int, steps: int, seed: int) -> npt.NDArray[np.int64]:
    """The samples of each training step.

    Each epoch is a fresh permutation of all samples, cut into batches; what is left over, less
    than a batch, is dropped, so that every batch has the same shape.

    The order must be the same bits on every machine, and in years, for a record to be repeated.
    NumPy promises that for a bit generator's raw stream but not for ``Generator.permutation``,
    which may change between versions. So the permutation comes from a published function instead:
    the samples are sorted by 64-bit keys drawn with SHAKE-256 (FIPS 202) from the seed and the
    epoch's number. The sort is stable, hence equal keys, should there be any, have one order too.

    Args:
        n_samples: how many samples there are.
        batch_size: samples a step, 1 to ``n_samples``.
        steps: training steps, over as many epochs as they need.
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
class Visits:
    """What the steps of a run train on.

    Attributes:
        samples: int64 [n], those of the data set that an adapter is given.
        parts: uint32 [n, 22], the part that is resized of each (:func:`dlb.data.augmentation.part_of`);
            None where it is the image.
        order: int64 [steps, batch], the samples of each step, by their place in ``samples``.
        crops: int32 [steps, batch, 3], what is cut out of them (:func:`dlb.data.augmentation.cut`);
            None where nothing is.
    """

    samples: npt.NDArray[np.int64]
    parts: npt.NDArray[np.uint32] | None
    order: npt.NDArray[np.int64]
    crops: npt.NDArray[np.int32] | None


def draw_visits(
    augmentation: Augmentation, n_samples: int, batch_size: int, steps: int, seed: int
) -> Visits:
    """Order and augmentation of a run's samples.

    An adapter is given each sample once, however often it is visited, but where parts of images
    are resized: there every visit is another sample.

    Args:
        augmentation: of the workload.
        n_samples, batch_size, steps, seed: as in :func:`sample_order`, and raises what that raises.
    """
    order = sample_order(n_samples, batch_size, steps, seed)
    crops = parts = None
    if augmentation.moves:
        crops = draw_crops(order, n_samples, seed, augmentation)
    if augmentation.resizes:
        drawn = draw_parts(order, n_samples, seed)
        samples, parts = order.reshape(-1), drawn.reshape(-1, drawn.shape[-1])
        places = np.arange(order.size)
    else:
        samples, places = np.unique(order, return_inverse=True)
    return Visits(samples, parts, places.reshape(order.shape).astype(np.int64), crops)
