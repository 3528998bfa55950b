"""A folder of images, one sub-folder a class."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np

from dlb.data.images import ENDINGS, ImageFile, of_images
from dlb.data.source import Source, Wanted
from dlb.errors import DataError

__all__ = ["class_names", "read_folder"]


def class_names(folder: Path) -> tuple[str, ...]:
    """The sub-folders that have no dot in front, sorted by code points; a label is a place.

    Raises:
        DataError: there is none, or the folder cannot be read.
    """
    try:
        names = sorted(
            one.name for one in os.scandir(folder) if one.is_dir() and one.name[0] != "."
        )
    except OSError as error:
        raise DataError(f"{folder}: cannot be read ({error.strerror or error})") from None
    if not names:
        raise DataError(f"{folder}: has no sub-folders; images need one for each class")
    return tuple(names)


def read_folder(folder: Path, wanted: Wanted, classes: tuple[str, ...] | None = None) -> Source:
    """The images in a folder's sub-folders, in order of class and then of path.

    Args:
        classes: those that there must be, of another split; the folder's own where None.

    Raises:
        DataError: there is no image, or there are other classes.
        RequestError: the model does not read images, or there is no Pillow.
    """
    found = class_names(folder)
    if classes is not None and found != classes:
        differing = sorted(set(found) ^ set(classes))
        raise DataError(
            f"{folder}: its classes are not those of the training images: {', '.join(differing[:5])} "
            "is in one of them alone; sub-folders must be the same"
        )
    listed, places, labels = _listing(folder, found)
    if not listed:
        raise DataError(f"{folder}: holds no images; known are {', '.join(ENDINGS)}")
    files = [ImageFile(folder / path) for path in listed]
    where = f"{folder} ({len(files):,} images, SHA-256 of their names and sizes {places})"
    return of_images(files, np.array(labels, np.int64), wanted, where)


def _listing(
    folder: Path, classes: tuple[str, ...]
) -> tuple[tuple[str, ...], str, tuple[int, ...]]:
    """Paths below the folder, a digest of paths and sizes, and labels."""
    digest = hashlib.sha256()
    paths: list[str] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        for path, size in sorted(_images_below(folder, name)):
            paths.append(path)
            labels.append(label)
            digest.update(f"{path} {size}\n".encode("utf-8", "surrogateescape"))
    return tuple(paths), digest.hexdigest(), tuple(labels)


def _images_below(folder: Path, name: str) -> list[tuple[str, int]]:
    found = []
    try:
        with os.scandir(folder / name) as entries:
            for one in entries:
                path = f"{name}/{one.name}"
                if one.is_dir(follow_symlinks=False):
                    found += _images_below(folder, path)
                elif one.name.lower().endswith(ENDINGS) and one.is_file():
                    found.append((path, one.stat().st_size))
    except OSError as error:
        raise DataError(f"{folder / name}: cannot be read ({error.strerror or error})") from None
    return found
