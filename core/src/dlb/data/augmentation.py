"""Random crops and mirrorings of training images, drawn once for every framework."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from dlb.workload import Augmentation

__all__ = ["cut", "draw_crops"]

#: Bytes that one sample draws in an epoch: three 32-bit numbers.
_DRAWN = 12


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
        int32 [steps, batch, 3], see :func:`cut`.
    """
    steps, batch = order.shape
    an_epoch = n_samples // batch
    crops = np.empty((steps, batch, 3), dtype=np.int32)
    for epoch, first in enumerate(range(0, steps, an_epoch)):
        of_epoch = slice(first, first + an_epoch)
        text = f"dlb augmentation 1; seed {seed}; epoch {epoch}"
        stream = hashlib.shake_256(text.encode()).digest(_DRAWN * n_samples)
        drawn = np.frombuffer(stream, dtype="<u4").reshape(n_samples, 3)[order[of_epoch]]
        places = drawn[..., :2].astype(np.uint64) * np.uint64(2 * augmentation.pad + 1)
        crops[of_epoch, :, :2] = (places >> np.uint64(32)).astype(np.int32) - augmentation.pad
        crops[of_epoch, :, 2] = (drawn[..., 2] >> np.uint32(31)) * np.uint32(augmentation.flip)
    return crops


def cut(images: npt.NDArray[Any], crops: npt.NDArray[np.int32]) -> npt.NDArray[Any]:
    """A window of its own size out of each image, which is zero beyond its borders.

    Args:
        images: [n, C, H, W].
        crops: [n, 3]: the row and the column that the window begins at, below 0 where it begins
            outside, and 1 where the window is then mirrored, left to right.

    Returns:
        A new array [n, C, H, W] of the same type.
    """
    samples, channels, height, width = images.shape
    edge = int(np.abs(crops[:, :2]).max(initial=0))
    padded = np.zeros((samples, channels, height + 2 * edge, width + 2 * edge), images.dtype)
    padded[:, :, edge : edge + height, edge : edge + width] = images
    windows = np.empty(images.shape, images.dtype)
    for image, window, (top, left, mirrored) in zip(padded, windows, crops.tolist()):
        found = image[:, edge + top :, edge + left :][:, :height, :width]
        window[:] = found[:, :, ::-1] if mirrored else found
    return windows
