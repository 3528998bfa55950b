"""Data of the user that no catalogue knows, found by their path.

What lies at the path is one split, or a folder with two. Of one split every tenth sample is kept
for testing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from dlb.data import text
from dlb.data.arrays import read_idx_pair, read_npz
from dlb.data.content import sha256_of
from dlb.data.source import Source, Wanted, every_tenth
from dlb.errors import DataError, RequestError

if TYPE_CHECKING:
    from dlb.workload import Data

__all__ = ["LOCAL", "open_local"]


def open_local(data: Data, split: str, wanted: Wanted) -> Source:
    """A split of the data at ``data.path``.

    Args:
        data: its name is one of ``LOCAL``.
        split: ``train`` or ``test``.
        wanted: what the model reads.

    Raises:
        RequestError: there is no path, or the data are not what the model can read.
        DataError: nothing is there, or what is there cannot be read.
    """
    title, opened = LOCAL[data.name]
    if not data.path:
        raise RequestError(
            f"data of the name '{data.name}' need a path: data = {{ name = \"{data.name}\", "
            f'path = "..." }}, {title}'
        )
    path = Path(data.path).expanduser()
    if not path.exists():
        raise DataError(
            f"{path}: there is nothing there; data.path must name {title} (relative paths are of "
            f"the folder that dlb is started in, {Path.cwd()})"
        )
    if data.labels and data.name != "idx":
        raise RequestError(f"data.labels is of 'idx' alone; '{data.name}' has labels in its files")
    return opened(data, path, split, wanted)


def _one_of(folder: Path, names: tuple[str, ...], needed: str) -> Path:
    found = [folder / name for name in names if (folder / name).exists()]
    if len(found) != 1:
        raise DataError(
            f"{folder}: has {' and '.join(path.name for path in found) or 'no ' + names[0]}; "
            f"{needed}"
        )
    return found[0]


def _npz(data: Data, path: Path, split: str, wanted: Wanted) -> Source:
    if path.is_dir():
        needed = "a folder for 'npz' holds train.npz and test.npz"
        return read_npz(_one_of(path, (f"{split}.npz",), needed))
    return every_tenth(read_npz(path), split)


def _idx(data: Data, path: Path, split: str, wanted: Wanted) -> Source:
    if not path.is_dir():
        if not data.labels:
            raise RequestError(
                f"{path}: data.labels must name the IDX file with its labels, or data.path a folder"
            )
        return every_tenth(read_idx_pair(path, Path(data.labels).expanduser()), split)
    needed = (
        "a folder for 'idx' holds train-images, train-labels, test-images and test-labels, each "
        "with or without .gz, or files named as those of MNIST"
    )
    names = {
        what: tuple(
            f"{stem}{ending}"
            for stem in (f"{split}-{what}", f"{_MNIST[split]}-{what}-{dims}-ubyte")
            for ending in ("", ".idx", ".gz")
        )
        for what, dims in (("images", "idx3"), ("labels", "idx1"))
    }
    images, labels = (_one_of(path, names[what], needed) for what in ("images", "labels"))
    return read_idx_pair(images, labels)


_MNIST = {"train": "train", "test": "t10k"}


def _text(data: Data, path: Path, split: str, wanted: Wanted) -> Source:
    unit: text.Unit = "characters" if data.name == "characters" else "words"
    needed = f"a folder for '{data.name}' holds train.txt and test.txt"
    training = _one_of(path, ("train.txt",), needed) if path.is_dir() else path
    tokens = text.read_tokens(training, unit)
    vocabulary = text.make_vocabulary(tokens)
    read = training
    if path.is_dir() and split == "test":
        read = _one_of(path, ("test.txt",), needed)
        tokens = text.read_tokens(read, unit)
    indices = text.encode(tokens, vocabulary, str(read))
    where = f"{read} (SHA-256 {sha256_of(read)})"
    source = text.windows(indices, len(vocabulary), wanted, where)
    return source if path.is_dir() else every_tenth(source, split)


#: What each name of local data means: what its path names, and how it is opened.
LOCAL: dict[str, tuple[str, Callable[[Data, Path, str, Wanted], Source]]] = {
    "npz": ("an .npz file, or a folder with train.npz and test.npz", _npz),
    "idx": ("an IDX file, or a folder with those of two splits", _idx),
    "words": ("a text file, or a folder with train.txt and test.txt", _text),
    "characters": ("a text file, or a folder with train.txt and test.txt", _text),
}
