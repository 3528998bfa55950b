"""Reads and checks a split of a data set as arrays, and normalises images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.data.description import DataFile, DataSetDescription, SplitDescription, SplitName
from dlb.data.idx import read_idx
from dlb.data.locate import find_described, path_of, searched_folders
from dlb.data.records import read_records
from dlb.errors import DataError, RequestError

__all__ = ["Split", "folder_of", "load_described", "normalise", "path_of_file"]


@dataclass(frozen=True)
class Split:
    """One split of a data set of images. The arrays are read-only, since all frameworks share them.

    Attributes:
        data_set: the data set's name.
        split: ``train`` or ``test``.
        images: uint8 [N, C, H, W].
        labels: int64 [N], each an index into ``classes``.
        classes: the class names.
        folder: the folder that the files were read from.
    """

    data_set: str
    split: SplitName
    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.int64]
    classes: tuple[str, ...]
    folder: Path


def load_described(description: DataSetDescription, split: str) -> Split:
    """Read and check a split of a data set.

    Args:
        split: ``train`` or ``test``.

    Raises:
        RequestError: the data set has words, not images.
        UnknownNameError: there is no split of that name.
        DataError: the data set is not on this machine, or one of its files is truncated,
            oversized, altered, or does not match the description.
    """
    split_description = description.split(split)
    if description.format == "words":
        raise RequestError(f"data set '{description.name}' has words, not images")
    folder = folder_of(description)
    read = _read_records if description.format == "records" else _read_idx_pair
    images, labels = read(description, split_description, folder)
    indices = labels.astype(np.int64)
    images.setflags(write=False)
    indices.setflags(write=False)
    return Split(
        description.name, split_description.name, images, indices, description.classes, folder
    )


def folder_of(description: DataSetDescription) -> Path:
    """The folder with a data set's files.

    Raises:
        DataError: the data set is not on this machine.
    """
    folder = find_described(description)
    if folder is None:
        searched = ", ".join(str(path) for path in searched_folders(description))
        raise DataError(
            f"the data set '{description.name}' is not on this machine (looked in {searched}); run "
            f"'dlb data fetch {description.name}', or set DLB_DATA_DIR to a folder with its files"
        )
    return folder


def normalise(
    images: npt.NDArray[np.uint8],
    mean: float | Sequence[float],
    std: float | Sequence[float],
    dtype: npt.DTypeLike = "float32",
) -> npt.NDArray[Any]:
    """``(images / 255 - mean) / std``, rounded to ``dtype`` once.

    It is computed in float64 and rounded at the end. It is computed here and not in each framework,
    so that all of them receive the same bits. A pixel has 256 values, so that a table of 256 results
    per channel suffices.

    Args:
        images: uint8 [N, C, H, W].
        mean: one number, or one for each of the C channels, in units of pixel / 255.
        std: the same, above 0.
        dtype: float16, float32 or float64.

    Returns:
        ``dtype`` [N, C, H, W], C-contiguous.

    Raises:
        RequestError: an argument is not as described above.
    """
    target = np.dtype(dtype)
    if target not in (np.dtype("f2"), np.dtype("f4"), np.dtype("f8")):
        raise RequestError(f"cannot normalise to {target}; use float16, float32 or float64")
    if images.ndim != 4 or images.dtype != np.uint8:
        raise RequestError(
            f"cannot normalise {images.dtype} {list(images.shape)}; uint8 [N, C, H, W] is needed"
        )
    channels = images.shape[1]
    means = _per_channel("mean", mean, channels)
    stds = _per_channel("std", std, channels)
    if not (stds > 0).all():
        raise RequestError(f"std is {std}; it must be above 0")
    levels = np.arange(256, dtype=np.float64) / 255.0
    with np.errstate(over="ignore"):
        table = ((levels - means[:, None]) / stds[:, None]).astype(target)
    if not np.isfinite(table).all():
        raise RequestError(f"mean {mean} and std {std} give values beyond the range of {target}")
    result = np.empty(images.shape, dtype=target)
    for channel in range(channels):
        result[:, channel] = table[channel][images[:, channel]]
    return result


def _read_idx_pair(
    description: DataSetDescription, split: SplitDescription, folder: Path
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    images, images_path = _read(folder, description.file(split.images))
    labels, labels_path = _read(folder, description.file(split.labels))
    shape = (split.n_samples, *description.sample_shape)
    _check_images(images, images_path, shape)
    if labels.dtype != np.uint8 or labels.shape != (split.n_samples,):
        raise DataError(
            f"{labels_path}: holds {labels.dtype} {list(labels.shape)} where labels uint8 "
            f"[{split.n_samples}] are expected, one for each image; check that the file belongs to "
            "this data set"
        )
    _check_labels(labels, labels_path, len(description.classes))
    return images.reshape(shape), labels


def _read_records(
    description: DataSetDescription, split: SplitDescription, folder: Path
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    read = []
    for name in split.parts:
        file = description.file(name)
        path = path_of_file(folder, file)
        images, labels = read_records(
            path,
            size=file.size,
            sha256=file.sha256,
            label_bytes=description.label_bytes,
            shape=description.sample_shape,
        )
        _check_labels(labels, path, len(description.classes))
        read.append((images, labels))
    all_images, all_labels = (np.concatenate(arrays) for arrays in zip(*read))
    if len(all_images) != split.n_samples:
        raise DataError(
            f"{folder}: the split '{split.name}' of '{description.name}' holds {len(all_images):,} "
            f"records where {split.n_samples:,} are described; correct the description"
        )
    return all_images, all_labels


def _read(folder: Path, file: DataFile) -> tuple[npt.NDArray[Any], Path]:
    path = path_of_file(folder, file)
    return read_idx(path, sha256=file.sha256, max_bytes=file.size), path


def path_of_file(folder: Path, file: DataFile) -> Path:
    """The path of a data set's file in a folder.

    Raises:
        DataError: the file is no longer there.
    """
    path = path_of(folder, file)
    if path is None:  # it was deleted after it was found
        raise DataError(f"{folder / file.name}: gone; fetch the data set again")
    return path


def _check_images(array: npt.NDArray[Any], path: Path, shape: tuple[int, ...]) -> None:
    # A file of grey images has no axis for the one channel.
    accepted = [shape, (shape[0], *shape[2:])] if shape[1] == 1 else [shape]
    if array.dtype != np.uint8 or array.shape not in accepted:
        raise DataError(
            f"{path}: holds {array.dtype} {list(array.shape)} where images uint8 "
            f"{list(accepted[-1])} are expected; check that the file belongs to this data set"
        )


def _check_labels(array: npt.NDArray[Any], path: Path, n_classes: int) -> None:
    largest = int(array.max())
    if largest >= n_classes:
        raise DataError(
            f"{path}: holds the label {largest} where 0 to {n_classes - 1} are expected; "
            "check that the file belongs to this data set"
        )


def _per_channel(
    name: str, value: float | Sequence[float], channels: int
) -> npt.NDArray[np.float64]:
    try:
        numbers = np.asarray(value, dtype=np.float64).reshape(-1)
    except (TypeError, ValueError):
        raise RequestError(f"{name} is {value!r}; numbers are needed") from None
    if numbers.size not in (1, channels) or not np.isfinite(numbers).all():
        raise RequestError(
            f"{name} is {value}; one finite number, or one for each of the {channels} channels, "
            "is needed"
        )
    return np.broadcast_to(numbers, (channels,))
