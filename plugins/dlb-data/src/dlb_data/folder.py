"""Reads a folder of images with a sub-folder for each class."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np

from dlb.data.source import ModelSignature, Source
from dlb.errors import DataError
from dlb_data.images import ENDINGS, ImageFile, image_source

__all__ = ["class_names", "read_folder"]


def class_names(folder: Path) -> tuple[str, ...]:
    """The sub-folders whose name has no leading dot, sorted by code points. A label is an index.

    Raises:
        DataError: there is no sub-folder, or the folder cannot be read.
    """
    try:
        names = sorted(
            entry.name for entry in os.scandir(folder) if entry.is_dir() and entry.name[0] != "."
        )
    except OSError as error:
        raise DataError(f"{folder}: cannot be read ({error.strerror or error})") from None
    if not names:
        raise DataError(f"{folder}: has no sub-folders; images need one for each class")
    return tuple(names)


def read_folder(
    folder: Path, signature: ModelSignature, classes: tuple[str, ...] | None = None
) -> Source:
    """The images in a folder's sub-folders, ordered by class and then by path.

    Args:
        folder: the folder.
        signature: the model's input.
        classes: the classes of another split, which the folder must have; None for any classes.

    Raises:
        DataError: there is no image, or the classes differ.
        RequestError: the model does not read images, or Pillow is missing.
    """
    names = class_names(folder)
    if classes is not None and names != classes:
        differing = sorted(set(names) ^ set(classes))
        raise DataError(
            f"{folder}: its classes are not those of the training images: {', '.join(differing[:5])} "
            "is in one of them alone; sub-folders must be the same"
        )
    paths, digest, labels = _list_images(folder, names)
    if not paths:
        raise DataError(f"{folder}: holds no images; known are {', '.join(ENDINGS)}")
    files = [ImageFile(folder / path) for path in paths]
    of = f"{len(files):,} images of {len(names)} of {signature.classes} classes"
    where = f"{folder} ({of}, SHA-256 of their names and sizes {digest})"
    source = image_source(files, np.array(labels, np.int64), signature, where)
    if len(names) == 1 < signature.classes:
        raise DataError(
            f"{folder}: has one sub-folder, {names[0]}, so all images are of one class of {signature.classes}; "
            "data.path must name the folder that has a sub-folder for each class"
        )
    return source


def _list_images(
    folder: Path, classes: tuple[str, ...]
) -> tuple[tuple[str, ...], str, tuple[int, ...]]:
    """The paths below the folder, a digest of paths and sizes, and the labels."""
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
    images = []
    try:
        with os.scandir(folder / name) as entries:
            for entry in entries:
                path = f"{name}/{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    images += _images_below(folder, path)
                elif entry.name.lower().endswith(ENDINGS) and entry.is_file():
                    images.append((path, entry.stat().st_size))
    except OSError as error:
        raise DataError(f"{folder / name}: cannot be read ({error.strerror or error})") from None
    return images
