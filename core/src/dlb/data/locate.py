"""Finds a data set on this machine.

The first complete one of these folders is used:

1. ``$DLB_DATA_DIR/NAME/``
2. ``$DLB_DATA_DIR/``
3. ``NAME`` in the folder of downloaded data sets (``dlb.places.data_home``)
4. inside this package

Each file may be plain or ``.gz``. To be found, a data set needs all of its files. Their checksums are
checked when they are read.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from dlb import places
from dlb.data.content import check_content
from dlb.data.description import Archive, DataFile, DataSetDescription
from dlb.errors import DataError

__all__ = [
    "DataSetState",
    "archive_in_data_dir",
    "find_described",
    "find_in_data_dir",
    "own_folders",
    "path_of",
    "searched_folders",
]

_EMBEDDED = Path(__file__).parent / "embedded"


@dataclass(frozen=True)
class DataSetState:
    """A data set and where it is: ``embedded``, a folder, or ``not fetched``."""

    name: str
    title: str
    licence: str
    source: str
    sample_shape: tuple[int, ...]
    n_classes: int
    n_train: int
    n_test: int
    download_size: int
    where: str


def find_described(description: DataSetDescription) -> Path | None:
    """The folder that holds a data set's files, or None if there is none."""
    in_data_dir = find_in_data_dir(description)
    if in_data_dir is not None:
        return in_data_dir
    folders = [places.data_home() / description.name]
    if description.embedded:
        folders.append(_EMBEDDED / description.name)
    return next((folder for folder in folders if _complete(description, folder)), None)


def find_in_data_dir(description: DataSetDescription) -> Path | None:
    """The folder in ``DLB_DATA_DIR`` that holds a data set's files, or None."""
    data_dir = _data_dir()
    if data_dir is None:
        return None
    if _complete(description, data_dir / description.name):
        return data_dir / description.name
    if _complete(description, data_dir) and _is_this_one(description, data_dir):
        return data_dir
    return None


def archive_in_data_dir(description: DataSetDescription, archive: Archive) -> Path | None:
    """The path of a data set's archive in ``DLB_DATA_DIR``, or None."""
    data_dir = _data_dir()
    if data_dir is None:
        return None
    candidates = (data_dir / description.name / archive.name, data_dir / archive.name)
    return next((path for path in candidates if path.is_file()), None)


def path_of(folder: Path, file: DataFile) -> Path | None:
    """The path of a file in a folder, plain or ``.gz``, or None if there is neither."""
    for candidate in (folder / file.name, folder / f"{file.name}.gz"):
        if candidate.is_file():
            return candidate
    return None


def searched_folders(description: DataSetDescription) -> list[Path]:
    """The folders that :func:`find_described` searches, in order."""
    data_dir = _data_dir()
    in_data_dir = [data_dir / description.name, data_dir] if data_dir is not None else []
    embedded = [_EMBEDDED / description.name] if description.embedded else []
    return [*in_data_dir, places.data_home() / description.name, *embedded]


def own_folders(name: str) -> list[Path]:
    """The folders that are searched for data that dlb never downloads."""
    data_dir = _data_dir()
    return [*([data_dir / name] if data_dir is not None else []), places.data_home() / name]


def state_of(description: DataSetDescription) -> DataSetState:
    """A data set and where it is."""
    folder = find_described(description)
    if folder is None:
        where = "not fetched"
    elif folder.parent == _EMBEDDED:
        where = "embedded"
    else:
        where = str(folder)
    return DataSetState(
        name=description.name,
        title=description.title,
        licence=description.licence,
        source=description.source,
        sample_shape=description.sample_shape,
        n_classes=len(description.classes) or description.vocabulary,
        n_train=description.split("train").n_samples,
        n_test=description.split("test").n_samples,
        download_size=description.download_size,
        where=where,
    )


def _data_dir() -> Path | None:
    chosen = os.environ.get("DLB_DATA_DIR")
    return Path(chosen).expanduser().absolute() if chosen else None


def _complete(description: DataSetDescription, folder: Path) -> bool:
    return all(path_of(folder, file) is not None for file in description.files)


def _is_this_one(description: DataSetDescription, folder: Path) -> bool:
    # MNIST, Fashion-MNIST and its subset use the same file names. In a folder with another name than
    # the data set's, only content identifies the data set. The smallest file suffices.
    smallest = min(description.files, key=lambda file: file.size)
    path = path_of(folder, smallest)
    if path is None:
        return False
    try:
        check_content(path, smallest.size, smallest.sha256)
    except DataError:
        return False
    return True
