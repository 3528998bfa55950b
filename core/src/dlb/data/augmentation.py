"""Random parts, crops and mirrorings of training images, drawn once for every framework."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from dlb.workload import Augmentation

__all__ = ["Part", "draw_crops", "draw_parts", "part_of"]

#: How often a part is drawn that does not fit into an image, before it is taken from the middle.
_TRIES = 10
#: Its logarithms and roots are the same on every machine, which those of the C library are not.
_DECIMAL = Context(prec=28)


def draw_crops(
    order: npt.NDArray[np.int64], n_samples: int, seed: int, augmentation: Augmentation
) -> npt.NDArray[np.int32]:
    """Where each sample of each step is cut, and whether it is mirrored.

    What sample I draws in an epoch depends on nothing but the seed, the epoch and I: neither on the
    batch size nor on the order, the workers, or what was drawn before. It is bytes 12 I and on of
    the output of SHAKE-256 (FIPS 202), the same on every machine: three 32-bit numbers, of which
    the first two are brought to a range by multiplication (Lemire 2019, arXiv:1805.10941, without
    rejection: no place is likelier than another by more than 1e-6), and the highest bit of the
    third mirrors.

    Args:
        order: int64 [steps, batch], as :func:`dlb.data.batches.sample_order` gives it.
        n_samples: how many samples there are.
        seed: any integer.
        augmentation: what to draw.

    Returns:
        int32 [steps, batch, 3], see :func:`dlb_worker.crops.cut`.
    """
    crops = np.empty((*order.shape, 3), dtype=np.int32)
    for of_epoch, drawn in _drawn("augmentation", 3, order, n_samples, seed):
        places = drawn[..., :2].astype(np.uint64) * np.uint64(2 * augmentation.pad + 1)
        crops[of_epoch, :, :2] = (places >> np.uint64(32)).astype(np.int32) - augmentation.pad
        crops[of_epoch, :, 2] = (drawn[..., 2] >> np.uint32(31)) * np.uint32(augmentation.flip)
    return crops


def _drawn(
    what: str, numbers: int, order: npt.NDArray[np.int64], n_samples: int, seed: int
) -> Iterator[tuple[slice, npt.NDArray[np.uint32]]]:
    """The steps of each epoch, and what their samples draw, [steps, batch, numbers]."""
    steps, batch = order.shape
    an_epoch = n_samples // batch
    for epoch, first in enumerate(range(0, steps, an_epoch)):
        of_epoch = slice(first, first + an_epoch)
        text = f"dlb {what} 1; seed {seed}; epoch {epoch}"
        stream = hashlib.shake_256(text.encode()).digest(4 * numbers * n_samples)
        drawn = np.frombuffer(stream, dtype="<u4").reshape(n_samples, numbers)
        yield of_epoch, drawn[order[of_epoch]]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of an image, in pixels: its first row and column, its height and width."""

    top: int
    left: int
    height: int
    width: int


def draw_parts(order: npt.NDArray[np.int64], n_samples: int, seed: int) -> npt.NDArray[np.uint32]:
    """What :func:`part_of` makes a part of each sample of each step from.

    What sample I draws in an epoch are bytes 88 I and on of the output of SHAKE-256, as in
    :func:`draw_crops`: 32-bit numbers.

    Args:
        order, n_samples, seed: as in :func:`draw_crops`.

    Returns:
        uint32 [steps, batch, 22].
    """
    parts = np.empty((*order.shape, 2 * _TRIES + 2), dtype=np.uint32)
    for of_epoch, drawn in _drawn("parts", parts.shape[-1], order, n_samples, seed):
        parts[of_epoch] = drawn
    return parts


def part_of(
    drawn: npt.NDArray[np.uint32], height: int, width: int, augmentation: Augmentation
) -> Part:
    """The part of an image that is trained on.

    The area is even between its bounds, and so is the logarithm of the aspect. The first of ten
    tries that fits into the image is taken, at a place of which each is as likely; where none fits,
    it is the middle of the image, as much of it as an aspect within the bounds has.

    Args:
        drawn: [22], an area and an aspect for each of ten tries, a row and a column.
        height, width: of the image, in pixels.
        augmentation: the bounds.
    """
    *tries, row, column = drawn.tolist()
    for area, aspect in zip(tries[::2], tries[1::2]):
        high, wide = _size(area, aspect, height * width, augmentation)
        if 0 < high <= height and 0 < wide <= width:
            top, left = row * (height - high + 1) >> 32, column * (width - wide + 1) >> 32
            return Part(top, left, high, wide)
    least, largest = augmentation.aspect
    high = min(height, max(1, round(width / least)))
    wide = min(width, max(1, round(height * largest)))
    return Part((height - high) // 2, (width - wide) // 2, high, wide)


def _size(area: int, aspect: int, pixels: int, augmentation: Augmentation) -> tuple[int, int]:
    """Height and width of a try, rounded."""
    least, largest = (Decimal(bound) for bound in augmentation.area)
    covered = _DECIMAL.multiply(_between(least, largest, area), Decimal(pixels))
    low, high = (Decimal(bound).ln(_DECIMAL) for bound in augmentation.aspect)
    ratio = _between(low, high, aspect).exp(_DECIMAL)
    height = _DECIMAL.divide(covered, ratio).sqrt(_DECIMAL)
    width = _DECIMAL.multiply(covered, ratio).sqrt(_DECIMAL)
    return round(height), round(width)


def _between(low: Decimal, high: Decimal, drawn: int) -> Decimal:
    """As far from one bound to the other as a 32-bit number is from 0 to 2^32."""
    share = _DECIMAL.divide(Decimal(drawn), Decimal(1 << 32))
    return _DECIMAL.fma(_DECIMAL.subtract(high, low), share, low)
