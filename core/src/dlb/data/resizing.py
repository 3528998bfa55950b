"""Crops of images, resized by Pillow, which reads image files too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dlb.data.augmentation import CropBox
from dlb.errors import RequestError

if TYPE_CHECKING:
    from dlb.data.source import ChooseCrop

__all__ = ["pillow", "resize_crop", "resize_crops"]


def resize_crops(images: npt.NDArray[Any], choose: ChooseCrop) -> npt.NDArray[Any]:
    """A crop of each image, resized to the image's size.

    Args:
        images: [n, C, H, W], uint8 or floating; floating images are resized in float32.
        choose: computes the crop of each image.

    Returns:
        an array like ``images``.

    Raises:
        RequestError: Pillow is missing.
    """
    image_of = pillow().Image.fromarray
    height, width = images.shape[2:]
    crops = np.empty(images.shape, images.dtype)
    for row, image in enumerate(images if images.dtype == np.uint8 else images.astype("f4")):
        box = choose(row, height, width)
        for channel, plane in enumerate(image):
            crops[row, channel] = resize_crop(image_of(plane), box, height, width)
    return crops


def resize_crop(image: Any, box: CropBox, height: int, width: int) -> Any:
    """A crop of a Pillow image, resized bilinearly with antialiasing. No pixel outside it counts."""
    edges = (box.left, box.top, box.left + box.width, box.top + box.height)
    return image.crop(edges).resize((width, height), pillow().Image.BILINEAR)


def pillow() -> Any:
    """Pillow.

    Raises:
        RequestError: it is not installed.
    """
    try:
        import PIL.Image
        import PIL.ImageOps
    except ImportError:
        raise RequestError(
            "reading image files needs Pillow; install it next to dlb-core: "
            "pip install 'dlb-core[images]'"
        ) from None
    return PIL
