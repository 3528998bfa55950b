"""Random crops and mirrorings of training images, drawn once for all frameworks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from dlb_graph.workload import Augmentation

__all__ = ["CropBox", "crop_box", "draw_crops", "draw_resized_crops"]

#: Tries to draw a resized crop that fits into the image, before the centre is used.
_TRIES = 10
#: Decimal logarithms and roots are the same on every machine; those of the C library are not.
_DECIMAL = Context(prec=28)


def draw_crops(
    order: npt.NDArray[np.int64], n_samples: int, seed: int, augmentation: Augmentation
) -> npt.NDArray[np.int32]:
    """The crop of each sample of each step, and whether it is mirrored.

    The draw of sample I in an epoch depends only on the seed, the epoch and I. It does not depend on
    the batch size, the order, the workers, or earlier draws.

    The draw is three 32-bit numbers: bytes 12 I to 12 I + 11 of the output of SHAKE-256 (FIPS 202),
    which is the same on every machine. Multiplication brings the first two to a range (Lemire 2019,
    arXiv:1805.10941, without rejection: probabilities differ by at most 1e-6). The highest bit of
    the third says whether the image is mirrored.

    Args:
        order: int64 [steps, batch], as :func:`dlb.data.batches.sample_order` returns it.
        n_samples: the number of samples.
        seed: any integer.
        augmentation: the padding, and whether to mirror.

    Returns:
        int32 [steps, batch, 3], see :func:`dlb_worker.crops.cut`.
    """
    crops = np.empty((*order.shape, 3), dtype=np.int32)
    for epoch_steps, drawn in _draw_by_epoch("augmentation", 3, order, n_samples, seed):
        offsets = drawn[..., :2].astype(np.uint64) * np.uint64(2 * augmentation.pad + 1)
        crops[epoch_steps, :, :2] = (offsets >> np.uint64(32)).astype(np.int32) - augmentation.pad
        crops[epoch_steps, :, 2] = (drawn[..., 2] >> np.uint32(31)) * np.uint32(augmentation.flip)
    return crops


def _draw_by_epoch(
    purpose: str, numbers: int, order: npt.NDArray[np.int64], n_samples: int, seed: int
) -> Iterator[tuple[slice, npt.NDArray[np.uint32]]]:
    """The steps of each epoch, and the numbers that their samples draw, [steps, batch, numbers]."""
    steps, batch = order.shape
    steps_per_epoch = n_samples // batch
    for epoch, first in enumerate(range(0, steps, steps_per_epoch)):
        epoch_steps = slice(first, first + steps_per_epoch)
        text = f"dlb {purpose} 1; seed {seed}; epoch {epoch}"
        stream = hashlib.shake_256(text.encode()).digest(4 * numbers * n_samples)
        drawn = np.frombuffer(stream, dtype="<u4").reshape(n_samples, numbers)
        yield epoch_steps, drawn[order[epoch_steps]]


@dataclass(frozen=True, slots=True)
class CropBox:
    """A crop of an image, in pixels: its first row and column, its height and width."""

    top: int
    left: int
    height: int
    width: int


def draw_resized_crops(
    order: npt.NDArray[np.int64], n_samples: int, seed: int
) -> npt.NDArray[np.uint32]:
    """The random numbers from which :func:`crop_box` computes the crop of each sample of each step.

    Sample I draws 22 numbers of 32 bits in an epoch: bytes 88 I to 88 I + 87 of the output of
    SHAKE-256, as in :func:`draw_crops`.

    Args:
        order, n_samples, seed: as in :func:`draw_crops`.

    Returns:
        uint32 [steps, batch, 22].
    """
    draws = np.empty((*order.shape, 2 * _TRIES + 2), dtype=np.uint32)
    for epoch_steps, drawn in _draw_by_epoch("parts", draws.shape[-1], order, n_samples, seed):
        draws[epoch_steps] = drawn
    return draws


def crop_box(
    drawn: npt.NDArray[np.uint32], height: int, width: int, augmentation: Augmentation
) -> CropBox:
    """The crop of an image that a step trains on, after resizing.

    The area is uniform between its bounds, and so is the logarithm of the aspect. The crop is the
    first of ten tries that fits into the image, at a uniform position. If none fits, it is the
    largest crop in the centre whose aspect is within the bounds.

    Args:
        drawn: uint32 [22], an area and an aspect for each of ten tries, a row and a column.
        height, width: the image's size, in pixels.
        augmentation: the bounds of area and aspect.
    """
    *tries, row, column = drawn.tolist()
    for area, aspect in zip(tries[::2], tries[1::2]):
        high, wide = _size(area, aspect, height * width, augmentation)
        if 0 < high <= height and 0 < wide <= width:
            top, left = row * (height - high + 1) >> 32, column * (width - wide + 1) >> 32
            return CropBox(top, left, high, wide)
    least, largest = augmentation.aspect
    high = min(height, max(1, round(width / least)))
    wide = min(width, max(1, round(height * largest)))
    return CropBox((height - high) // 2, (width - wide) // 2, high, wide)


def _size(area: int, aspect: int, pixels: int, augmentation: Augmentation) -> tuple[int, int]:
    """The height and width of a try, in whole pixels."""
    least, largest = (Decimal(bound) for bound in augmentation.area)
    covered = _DECIMAL.multiply(_between(least, largest, area), Decimal(pixels))
    low, high = (Decimal(bound).ln(_DECIMAL) for bound in augmentation.aspect)
    ratio = _between(low, high, aspect).exp(_DECIMAL)
    height = _DECIMAL.divide(covered, ratio).sqrt(_DECIMAL)
    width = _DECIMAL.multiply(covered, ratio).sqrt(_DECIMAL)
    return round(height), round(width)


def _between(low: Decimal, high: Decimal, drawn: int) -> Decimal:
    """The point between two bounds where a 32-bit number is between 0 and 2^32."""
    fraction = _DECIMAL.divide(Decimal(drawn), Decimal(1 << 32))
    return _DECIMAL.fma(_DECIMAL.subtract(high, low), fraction, low)
