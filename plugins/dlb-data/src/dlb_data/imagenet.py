"""Reads ImageNet (ILSVRC 2012; Russakovsky et al. 2015, arXiv:1409.0575) from its official archives.

``ILSVRC2012_img_train.tar`` holds a tar archive for each class, named by its WordNet id.
``ILSVRC2012_img_val.tar`` holds all validation images, ``ILSVRC2012_val_00000001.JPEG`` and so on.
Nothing is unpacked: the archives are indexed once, and each image is read at its offset. A label is the
index of the class's WordNet id among the sorted ids.

The classes of the validation images come from one of two files. ``ILSVRC2012_devkit_t12.tar.gz`` lists
them as numbers, and its ``data/meta.mat`` maps the numbers to WordNet ids.
``imagenet_2012_validation_synset_labels.txt`` (from github.com/tensorflow/models, ``research/inception``)
has one WordNet id per line, in the order of the images.
"""

from __future__ import annotations

import io
import tarfile
import zlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath

import numpy as np

from dlb.data.content import read_content
from dlb.data.source import ModelSignature, Source
from dlb.errors import DataError, RequestError
from dlb_data.images import ENDINGS, ImageFile, image_source

__all__ = ["DEVKIT", "SYNSETS", "TRAIN", "VALIDATION", "read_training", "read_validation"]

TRAIN, VALIDATION = "ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar"
DEVKIT = "ILSVRC2012_devkit_t12.tar.gz"
SYNSETS = "imagenet_2012_validation_synset_labels.txt"

_MEMBERS = {
    "meta": "ILSVRC2012_devkit_t12/data/meta.mat",
    "truth": "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt",
}
#: Largest size of a member of the development kit, in bytes.
_LARGEST = 1 << 26


def read_training(archive: Path, signature: ModelSignature) -> Source:
    """The training images, ordered by class and then by name.

    Raises:
        DataError: the file is not such an archive.
    """
    _, files, labels = _training(archive, _stamp(archive))
    where = f"{archive} ({len(files):,} images)"
    return image_source(files, np.array(labels, np.int64), signature, where)


def read_validation(folder: Path, signature: ModelSignature) -> Source:
    """The validation images, ordered by name, with labels among the classes of the training archive.

    Raises:
        DataError: an archive or the classes are missing or damaged, or do not fit together.
        RequestError: the classes are in the development kit, and SciPy is missing to read it.
    """
    archive = folder / VALIDATION
    files = _validation(archive, _stamp(archive))
    classes, _, _ = _training(folder / TRAIN, _stamp(folder / TRAIN))
    labels_by_class = {name: label for label, name in enumerate(classes)}
    names = _synsets(folder)
    if len(names) != len(files):
        raise DataError(
            f"{archive}: holds {len(files):,} images, and {len(names):,} classes are given for them; "
            "use the original files"
        )
    unknown = sorted(set(names) - set(labels_by_class))
    if unknown:
        raise DataError(
            f"{folder}: validation images have the class {unknown[0]}, which {TRAIN} lacks; use "
            "the original files"
        )
    labels = np.array([labels_by_class[name] for name in names], np.int64)
    return image_source(files, labels, signature, f"{archive} ({len(files):,} images)")


def _stamp(archive: Path) -> tuple[int, int]:
    """An archive's size and time of change: the cached index is valid while they stay the same."""
    try:
        status = archive.stat()
    except OSError as error:
        raise DataError(
            f"{archive}: cannot be read ({error.strerror or error}); get it from "
            "https://image-net.org/download, where its terms must be agreed to"
        ) from None
    return status.st_size, status.st_mtime_ns


@lru_cache(maxsize=2)
def _training(
    archive: Path, stamp: tuple[int, int]
) -> tuple[tuple[str, ...], tuple[ImageFile, ...], tuple[int, ...]]:
    """The classes, the images and the labels."""
    by_class: dict[str, list[ImageFile]] = {}
    try:
        with tarfile.open(archive, "r:") as outer:
            for member in outer:
                name = PurePosixPath(member.name)
                stream = outer.extractfile(member) if member.isreg() else None
                if stream is None or name.suffix != ".tar":
                    continue
                with tarfile.open(fileobj=stream, mode="r:") as inner:
                    end = member.offset_data + member.size
                    by_class[name.stem] = _images_of(archive, inner, member.offset_data, end)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise _damaged(archive, str(error)) from None
    if not by_class or not all(by_class.values()):
        empty = next((name for name, images in by_class.items() if not images), "")
        raise _damaged(
            archive, f"no images of {empty}" if empty else "no archives of classes in it"
        )
    classes = tuple(sorted(by_class))
    files = tuple(file for name in classes for file in by_class[name])
    labels = tuple(label for label, name in enumerate(classes) for _ in by_class[name])
    return classes, files, labels


@lru_cache(maxsize=2)
def _validation(archive: Path, stamp: tuple[int, int]) -> tuple[ImageFile, ...]:
    try:
        with tarfile.open(archive, "r:") as members:
            files = _images_of(archive, members, 0, stamp[0])
    except (tarfile.TarError, EOFError, OSError) as error:
        raise _damaged(archive, str(error)) from None
    if not files:
        raise _damaged(archive, "no images in it")
    return tuple(files)


def _images_of(archive: Path, members: tarfile.TarFile, begin: int, end: int) -> list[ImageFile]:
    """The images of an archive that is bytes ``begin`` to ``end`` of a file, by name."""
    images = []
    for member in members:
        if member.isreg() and member.name.lower().endswith(ENDINGS):
            start = begin + member.offset_data
            if start + member.size > end:
                raise _damaged(archive, f"truncated inside {member.name}")
            images.append(ImageFile(archive, start, member.size, member.name))
    return sorted(images, key=lambda file: file.name)


def _synsets(folder: Path) -> Sequence[str]:
    """The WordNet id of each validation image, in the order of their names."""
    if (folder / SYNSETS).is_file():
        return read_content(folder / SYNSETS).decode("ascii", "replace").split()
    if not (folder / DEVKIT).is_file():
        raise DataError(
            f"{folder}: has neither {DEVKIT} nor {SYNSETS}, which list the classes of "
            f"{VALIDATION}; put one of them there"
        )
    devkit = folder / DEVKIT
    content: dict[str, bytes] = {}
    try:
        with tarfile.open(devkit, "r|*") as members:
            for member in members:
                name = member.name.removeprefix("./")
                stream = members.extractfile(member) if member.isreg() else None
                if stream is not None and name in _MEMBERS.values() and member.size <= _LARGEST:
                    content[name] = stream.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise _damaged(devkit, str(error)) from None
    lacking = [name for name in _MEMBERS.values() if name not in content]
    if lacking:
        raise _damaged(devkit, f"no {lacking[0]} in it")
    ids = _wordnet_ids(devkit, content[_MEMBERS["meta"]])
    try:
        return [ids[int(number)] for number in content[_MEMBERS["truth"]].split()]
    except (KeyError, ValueError) as error:
        raise _damaged(
            devkit, f"its ground truth has {error}, which is not one of its classes"
        ) from None


def _wordnet_ids(devkit: Path, meta: bytes) -> dict[int, str]:
    """WordNet ids by their number in the development kit."""
    try:
        from scipy.io import loadmat
    except ImportError:
        raise RequestError(
            f"reading {devkit} needs SciPy; install it next to dlb-core: pip install "
            f"'dlb-core[images]', or put {SYNSETS} there"
        ) from None
    try:
        synsets = loadmat(io.BytesIO(meta), squeeze_me=True)["synsets"]
        return {
            int(synset["ILSVRC2012_ID"]): str(synset["WNID"]) for synset in np.atleast_1d(synsets)
        }
    except Exception as error:  # SciPy raises errors of any type on other files
        raise _damaged(devkit, f"{_MEMBERS['meta']} cannot be read: {error}") from None


def _damaged(archive: Path, reason: str) -> DataError:
    return DataError(f"{archive}: not the original archive ({reason}); get it again")
