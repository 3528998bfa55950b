"""Windows cut out of images, as the core drew them."""

from typing import Any

import numpy as np

__all__ = ["cut"]


def cut(images: Any, crops: Any) -> Any:
    """A window of its own size out of each image, which is zero beyond its borders.

    Args:
        images: [n, C, H, W].
        crops: int [n, 3]: the row and the column that the window begins at, below 0 where it begins
            outside, and 1 where the window is then mirrored, left to right.

    Returns:
        A new array [n, C, H, W] of the same type.
    """
    samples, channels, height, width = images.shape
    edge = int(np.abs(crops[:, :2]).max()) if len(crops) else 0
    padded = np.zeros((samples, channels, height + 2 * edge, width + 2 * edge), images.dtype)
    padded[:, :, edge : edge + height, edge : edge + width] = images
    windows = np.empty(images.shape, images.dtype)
    for image, window, (top, left, mirrored) in zip(padded, windows, crops.tolist()):
        part = image[:, edge + top :, edge + left :][:, :height, :width]
        window[:] = part[:, :, ::-1] if mirrored else part
    return windows
