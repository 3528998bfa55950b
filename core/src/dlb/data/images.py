"""Image files, decoded and brought to one size with Pillow, each when it is asked for."""

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

from dlb.data.augmentation import Part
from dlb.data.source import ChoosePart, Source, Wanted
from dlb.errors import DataError, RequestError

__all__ = ["ENDINGS", "ImageFile", "decode", "of_images", "resize_parts"]

#: Names of files that are taken for images, in small letters.
ENDINGS = (".jpeg", ".jpg", ".png", ".bmp", ".gif", ".ppm", ".pgm", ".webp")
#: What Pillow may take a file for, whatever its name.
_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "PPM", "WEBP")
_MODES = {1: "L", 3: "RGB"}
#: Above this an image is refused, where Pillow was told to have no limit: a file that is small can
#: hold a picture that fills the memory.
_MOST_PIXELS = 1 << 27


@dataclass(frozen=True, slots=True)
class ImageFile:
    """An image on this machine: a file, or a part of one.

    Attributes:
        path: the file.
        offset: where in it the image starts.
        size: its bytes; None: all that follow.
        name: what it is called in messages, where that is not ``path``.
    """

    path: Path
    offset: int = 0
    size: int | None = None
    name: str = ""

    def read(self) -> bytes:
        """Its bytes.

        Raises:
            DataError: it cannot be read, or is cut.
        """
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                content = file.read() if self.size is None else file.read(self.size)
        except OSError as error:
            raise DataError(f"{self}: cannot be read ({error.strerror or error})") from None
        if self.size is not None and len(content) < self.size:
            raise DataError(f"{self}: cut: {len(content):,} of {self.size:,} bytes are there")
        return content

    def __str__(self) -> str:
        return f"{self.path}: {self.name}" if self.name else str(self.path)


def of_images(
    files: Sequence[ImageFile], labels: npt.NDArray[np.int64], wanted: Wanted, where: str
) -> Source:
    """A split of images, decoded as they are asked for, of the shape that the model reads.

    Raises:
        RequestError: the model does not read images of 1 or 3 channels, or there is no Pillow.
    """
    if wanted.kind != "real" or len(wanted.shape) != 3 or wanted.shape[0] not in _MODES:
        kind = "indices" if wanted.kind == "index" else "real numbers"
        raise RequestError(
            f"the model reads {kind} of shape {list(wanted.shape)}; images need [3, height, width] "
            "or [1, height, width]"
        )
    version = _pillow().__version__

    def read_parts(samples: npt.NDArray[np.int64], choose: ChoosePart | None) -> npt.NDArray[Any]:
        images = np.empty((len(samples), *wanted.shape), np.uint8)

        def fill(place: int) -> None:
            file = files[int(samples[place])]
            part = None if choose is None else partial(choose, place)
            images[place] = decode(file.read(), wanted.shape, str(file), part)

        # Pillow lets go of the lock while it decodes. In order, so that the first bad file is named.
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for _ in pool.map(fill, range(len(samples))):
                pass
        return images

    def read(samples: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        return read_parts(samples, None)

    where = f"{where}, decoded by Pillow {version}"
    return Source("pixels", wanted.shape, labels, read, read_parts, where, decoded=True)


def decode(
    content: bytes,
    shape: tuple[int, ...],
    name: str,
    choose: Callable[[int, int], Part] | None = None,
) -> npt.NDArray[np.uint8]:
    """An image as uint8 [C, H, W].

    It is made grey (1 channel) or RGB (3), cut about its centre to the shape's proportions, and
    resized bilinearly with antialiasing: ``PIL.ImageOps.fit``. Orientation tags are not followed.
    Of an animation it is the first picture.

    Args:
        content: of a file.
        shape: (C, H, W).
        name: for messages.
        choose: the part that is cut out of it instead, by its height and width.

    Raises:
        DataError: Pillow cannot read it, or it is cut, corrupt or absurdly large.
    """
    pillow = _pillow()
    channels, height, width = shape
    try:
        with pillow.Image.open(io.BytesIO(content), formats=_FORMATS) as image:
            if image.width * image.height > (pillow.Image.MAX_IMAGE_PIXELS or _MOST_PIXELS):
                raise _unreadable(name, f"{image.width} x {image.height} pixels are too many")
            plain = image.convert(_MODES[channels])
        if choose is None:
            fitted = pillow.ImageOps.fit(plain, (width, height), pillow.Image.BILINEAR)
        else:
            fitted = _resized(plain, choose(plain.height, plain.width), height, width)
    except (*_UNREADABLE, pillow.Image.DecompressionBombError) as error:
        said = str(error)
        if "BytesIO" in said:  # Pillow's name for what it was given
            said = "none of " + ", ".join(_FORMATS)
        raise _unreadable(name, said) from None
    array: npt.NDArray[np.uint8] = np.asarray(fitted, np.uint8)
    return np.ascontiguousarray(array.reshape(height, width, channels).transpose(2, 0, 1))


def resize_parts(images: npt.NDArray[Any], choose: ChoosePart) -> npt.NDArray[Any]:
    """A part of each image, resized to the image's size as files are.

    Args:
        images: [n, C, H, W], uint8, or floating, of which parts are resized in float32.
        choose: the parts.

    Raises:
        RequestError: there is no Pillow.
    """
    pillow = _pillow()
    height, width = images.shape[2:]
    parts = np.empty(images.shape, images.dtype)
    for place, image in enumerate(images if images.dtype == np.uint8 else images.astype("f4")):
        part = choose(place, height, width)
        for channel, plane in enumerate(image):
            parts[place, channel] = _resized(pillow.Image.fromarray(plane), part, height, width)
    return parts


def _resized(image: Any, part: Part, height: int, width: int) -> Any:
    """A part of a Pillow image, resized bilinearly with antialiasing, of nothing beside the part."""
    edges = (part.left, part.top, part.left + part.width, part.top + part.height)
    return image.crop(edges).resize((width, height), _pillow().Image.BILINEAR)


#: What Pillow's decoders raise on files that are cut or corrupt.
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


def _pillow() -> Any:
    try:
        import PIL.Image
        import PIL.ImageOps
    except ImportError:
        raise RequestError(
            "reading image files needs Pillow; install it beside dlb-core: "
            "pip install 'dlb-core[images]'"
        ) from None
    return PIL
