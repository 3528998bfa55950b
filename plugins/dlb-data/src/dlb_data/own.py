"""Local data of the user, found by their path.

The path names one split, or a folder with two. In data with one split, every tenth sample is kept for
testing.
"""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from dlb.data import text
from dlb.data.content import sha256_of
from dlb.data.own import OwnData
from dlb.data.source import ModelSignature, Source, split_every_tenth
from dlb.errors import DataError, RequestError
from dlb_data import imagenet
from dlb_data.arrays import read_idx_pair, read_npz
from dlb_data.folder import class_names, read_folder

if TYPE_CHECKING:
    from dlb_graph.workload import Data

__all__ = ["CHARACTERS", "FOLDER", "IDX", "IMAGENET", "NPZ", "WORDS"]

Open = Callable[["Data", Path, str, ModelSignature], Source]


def _kind(title: str, open_split: Open, folder: str = "", source: str = "") -> OwnData:
    def open_checked(data: Data, split: str, signature: ModelSignature) -> Source:
        if data.labels and data.name != "idx":
            raise RequestError(
                f"data.labels is for 'idx' alone; '{data.name}' has labels in its files"
            )
        path = _expanded(data.path) if data.path else kind.find()
        if path is None:
            raise RequestError(
                f"data of the name '{data.name}' need a path: data = {{ name = \"{data.name}\", "
                f'path = "..." }}, {title}{kind.alternative}'
            )
        try:
            mode = path.stat().st_mode
        except FileNotFoundError:
            raise DataError(
                f"{path}: there is nothing there; data.path must name {title} (relative paths start "
                f"at the current folder, {Path.cwd()})"
            ) from None
        except (OSError, ValueError) as error:
            raise DataError(
                f"{path}: cannot be looked at ({error}); data.path must name {title}"
            ) from None
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # a pipe or a device may have no end
            raise DataError(f"{path}: neither a file nor a folder; data.path must name {title}")
        return open_split(data, path, split, signature)

    kind = OwnData(title, open_checked, folder, source)
    return kind


def _expanded(path: str) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError:  # no such user: a shell leaves the path unchanged too
        return Path(path)


def _one_of(folder: Path, names: tuple[str, ...], needed: str) -> Path:
    paths = [folder / name for name in names if (folder / name).exists()]
    if len(paths) != 1:
        raise DataError(
            f"{folder}: has {' and '.join(path.name for path in paths) or 'no ' + names[0]}; "
            f"{needed}"
        )
    return paths[0]


def _open_npz(data: Data, path: Path, split: str, signature: ModelSignature) -> Source:
    if path.is_dir():
        needed = "a folder for 'npz' holds train.npz and test.npz"
        return read_npz(_one_of(path, (f"{split}.npz",), needed))
    return split_every_tenth(read_npz(path), split)


def _open_idx(data: Data, path: Path, split: str, signature: ModelSignature) -> Source:
    if not path.is_dir():
        if not data.labels:
            raise RequestError(
                f"{path}: data.labels must name the IDX file with its labels, or data.path a folder"
            )
        return split_every_tenth(read_idx_pair(path, _expanded(data.labels)), split)
    needed = (
        "a folder for 'idx' holds train-images, train-labels, test-images and test-labels, each "
        "with or without .gz, or files named as those of MNIST"
    )
    names = {
        content: tuple(
            f"{stem}{ending}"
            for stem in (f"{split}-{content}", f"{_MNIST[split]}-{content}-{dims}-ubyte")
            for ending in ("", ".idx", ".gz")
        )
        for content, dims in (("images", "idx3"), ("labels", "idx1"))
    }
    images, labels = (_one_of(path, names[content], needed) for content in ("images", "labels"))
    return read_idx_pair(images, labels)


_MNIST = {"train": "train", "test": "t10k"}


def _open_text(data: Data, path: Path, split: str, signature: ModelSignature) -> Source:
    unit: text.Unit = "characters" if data.name == "characters" else "words"
    needed = f"a folder for '{data.name}' holds train.txt and test.txt"
    training = _one_of(path, ("train.txt",), needed) if path.is_dir() else path
    tokens = text.read_tokens(training, unit)
    vocabulary = text.make_vocabulary(tokens)
    text_path = training
    if path.is_dir() and split == "test":
        text_path = _one_of(path, ("test.txt",), needed)
        tokens = text.read_tokens(text_path, unit)
    indices = text.encode(tokens, vocabulary, str(text_path))
    where = f"{text_path} (SHA-256 {sha256_of(text_path)})"
    source = text.windows(indices, len(vocabulary), signature, where)
    return source if path.is_dir() else split_every_tenth(source, split)


def _open_folder(data: Data, path: Path, split: str, signature: ModelSignature) -> Source:
    if not path.is_dir():
        raise DataError(
            f"{path}: not a folder; '{data.name}' needs one with a folder for each class"
        )
    training = path / "train"
    # ImageNet's own test images have no labels.
    names = ("val",) if data.name == "imagenet" else ("test", "val")
    tests = [path / name for name in names if (path / name).is_dir()]
    if not training.is_dir() and not tests:
        return split_every_tenth(read_folder(path, signature), split)
    if not training.is_dir() or not tests:
        raise DataError(
            f"{path}: has {'train' if training.is_dir() else tests[0].name} alone; with splits, a "
            f"folder for '{data.name}' has 'train' and {' or '.join(map(repr, names))}"
        )
    if split == "train":
        return read_folder(training, signature)
    return read_folder(tests[0], signature, class_names(training))


def _open_imagenet(data: Data, path: Path, split: str, signature: ModelSignature) -> Source:
    if not (path / imagenet.TRAIN).is_file():
        if (path / imagenet.VALIDATION).is_file():
            raise DataError(f"{path}: has {imagenet.VALIDATION} without {imagenet.TRAIN}")
        return _open_folder(data, path, split, signature)
    if split == "test" and (path / imagenet.VALIDATION).is_file():
        return imagenet.read_validation(path, signature)
    training = imagenet.read_training(path / imagenet.TRAIN, signature)
    return (
        training if (path / imagenet.VALIDATION).is_file() else split_every_tenth(training, split)
    )


FOLDER = _kind("a folder of images, with a folder for each class", _open_folder)
IMAGENET = _kind(
    "a folder with ImageNet's archives, or with train and val",
    _open_imagenet,
    folder="imagenet",
    source="https://image-net.org/download",
)
NPZ = _kind("an .npz file, or a folder with train.npz and test.npz", _open_npz)
IDX = _kind("an IDX file, or a folder with those of two splits", _open_idx)
WORDS = _kind("a text file, or a folder with train.txt and test.txt", _open_text)
CHARACTERS = WORDS
