"""Decodes image files and resizes them with Pillow, each when it is read."""

from __future__ import annotations

import io
import os
import struct
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.data.augmentation import CropBox
from dlb.data.resizing import pillow, resize_crop
from dlb.data.source import ChooseCrop, ModelSignature, Source
from dlb.errors import DataError, RequestError

__all__ = ["ENDINGS", "ImageFile", "decode", "image_source"]

#: Endings of image files, in lower case.
ENDINGS = (".jpeg", ".jpg", ".png", ".bmp", ".gif", ".ppm", ".pgm", ".webp")
#: Formats that Pillow may read, whatever the file's name.
_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "PPM", "WEBP")
_MODES = {1: "L", 3: "RGB"}
#: The largest image if Pillow's own limit is switched off. A small file can hold an image that fills the
#: memory.
_MAX_PIXELS = 1 << 27


@dataclass(frozen=True, slots=True)
class ImageFile:
    """An image on this machine: a file, or a range of bytes in one.

    Attributes:
        path: the file.
        offset: the first byte of the image in the file.
        size: the image's bytes; None for all up to the end of the file.
        name: the image's name in the file, for messages.
    """

    path: Path
    offset: int = 0
    size: int | None = None
    name: str = ""

    def read(self) -> bytes:
        """The image's bytes.

        Raises:
            DataError: the file cannot be read, or is truncated.
        """
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                content = file.read() if self.size is None else file.read(self.size)
        except OSError as error:
            raise DataError(f"{self}: cannot be read ({error.strerror or error})") from None
        if self.size is not None and len(content) < self.size:
            raise DataError(f"{self}: truncated: {len(content):,} of {self.size:,} bytes are there")
        return content

    def __str__(self) -> str:
        return f"{self.path}: {self.name}" if self.name else str(self.path)


def image_source(
    files: Sequence[ImageFile], labels: npt.NDArray[np.int64], signature: ModelSignature, where: str
) -> Source:
    """A split of images, decoded when they are read, in the shape of the model's input.

    Args:
        files: the images.
        labels: int64 [N].
        signature: the model's input.
        where: where the images come from, for the record.

    Raises:
        RequestError: the model does not read images of 1 or 3 channels, or Pillow is missing.
    """
    if signature.kind != "real" or len(signature.shape) != 3 or signature.shape[0] not in _MODES:
        kind = "indices" if signature.kind == "index" else "real numbers"
        raise RequestError(
            f"the model reads {kind} of shape {list(signature.shape)}; images need [3, height, width] "
            "or [1, height, width]"
        )
    version = pillow().__version__

    def read_crops(samples: npt.NDArray[np.int64], choose: ChooseCrop | None) -> npt.NDArray[Any]:
        images = np.empty((len(samples), *signature.shape), np.uint8)

        def fill(row: int) -> None:
            file = files[int(samples[row])]
            choose_crop = None if choose is None else partial(choose, row)
            images[row] = decode(file.read(), signature.shape, str(file), choose_crop)

        # Pillow releases Python's lock while it decodes. Results are read in order, so that the error
        # names the first bad file.
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for _ in pool.map(fill, range(len(samples))):
                pass
        return images

    def read(samples: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        return read_crops(samples, None)

    where = f"{where}, decoded by Pillow {version}"
    return Source("pixels", signature.shape, labels, read, read_crops, where, decoded=True)


def decode(
    content: bytes,
    shape: tuple[int, ...],
    name: str,
    choose: Callable[[int, int], CropBox] | None = None,
) -> npt.NDArray[np.uint8]:
    """An image as uint8 [C, H, W].

    The image is converted to grey (1 channel) or RGB (3). It is cropped about its centre to the
    proportions of ``shape`` and resized bilinearly with antialiasing, as ``PIL.ImageOps.fit`` does.
    Orientation tags are ignored. An animation gives its first frame.

    Args:
        content: the content of an image file.
        shape: (C, H, W).
        name: the image's name in messages.
        choose: computes another crop from the image's height and width.

    Raises:
        DataError: Pillow cannot read the image, or it is truncated, corrupt or too large.
    """
    pil = pillow()
    channels, height, width = shape
    try:
        with pil.Image.open(io.BytesIO(content), formats=_FORMATS) as image:
            if image.width * image.height > (pil.Image.MAX_IMAGE_PIXELS or _MAX_PIXELS):
                raise _unreadable(name, f"{image.width} x {image.height} pixels are too many")
            converted = image.convert(_MODES[channels])
        if choose is None:
            fitted = pil.ImageOps.fit(converted, (width, height), pil.Image.BILINEAR)
        else:
            fitted = resize_crop(
                converted, choose(converted.height, converted.width), height, width
            )
    except (*_UNREADABLE, pil.Image.DecompressionBombError) as error:
        reason = str(error)
        if "BytesIO" in reason:  # Pillow's name for the content
            reason = "none of " + ", ".join(_FORMATS)
        raise _unreadable(name, reason) from None
    array: npt.NDArray[np.uint8] = np.asarray(fitted, np.uint8)
    return np.ascontiguousarray(array.reshape(height, width, channels).transpose(2, 0, 1))


#: What Pillow's decoders raise on files that are truncated or corrupt.
_UNREADABLE: tuple[type[Exception], ...] = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    IndexError,
    OverflowError,
    struct.error,
    zlib.error,
)


def _unreadable(name: str, what: str) -> DataError:
    return DataError(f"{name}: not an image that can be read ({what}); replace or remove it")
