"""Text as windows of indices, each with the token that follows as its label.

A token is a word or a character. Words are what whitespace parts, and each end of a line is the
word ``<eos>``. The vocabulary has the most frequent token first, and of two as frequent the one
that sorts first by its code points, as the reader of the language model of TensorFlow's tutorials
does (``ptb/reader.py``) on the text of Zaremba, Sutskever and Vinyals 2014, arXiv:1409.2329.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from dlb.data.content import read_content
from dlb.data.description import DataSetDescription
from dlb.data.load import folder_of, path_of_file
from dlb.data.source import Source, Wanted, of_arrays
from dlb.errors import DataError, RequestError

__all__ = [
    "END_OF_LINE",
    "UNKNOWN",
    "Unit",
    "described_words",
    "encode",
    "make_vocabulary",
    "read_tokens",
    "windows",
]

Unit = Literal["words", "characters"]
END_OF_LINE = "<eos>"
UNKNOWN = "<unk>"


def read_tokens(
    path: Path, unit: Unit, *, size: int | None = None, sha256: str | None = None
) -> list[str]:
    """The tokens of a text file in UTF-8, plain or gzip-compressed.

    Raises:
        DataError: the file is missing, not text, or not of the size and SHA-256 given.
    """
    content = read_content(path, size=size, sha256=sha256)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: not text in UTF-8 (byte {error.start:,} is {content[error.start]:#04x}); "
            "convert it to UTF-8"
        ) from None
    return list(text) if unit == "characters" else text.replace("\n", f" {END_OF_LINE} ").split()


def make_vocabulary(tokens: Sequence[str]) -> dict[str, int]:
    """The index of each token."""
    counts = Counter(tokens)
    ordered = sorted(counts, key=lambda token: (-counts[token], token))
    return {token: index for index, token in enumerate(ordered)}


def encode(
    tokens: Sequence[str], vocabulary: Mapping[str, int], where: str
) -> npt.NDArray[np.int64]:
    """int64 [N], the tokens' indices; one that is not in the vocabulary is ``<unk>``.

    Raises:
        DataError: there is such a token, and no ``<unk>`` in the vocabulary.
    """
    other = vocabulary.get(UNKNOWN, -1)
    indices = np.fromiter((vocabulary.get(token, other) for token in tokens), np.int64, len(tokens))
    if len(indices) and indices.min() < 0:
        unknown = tokens[int(indices.argmin())]
        raise DataError(
            f"{where}: has {unknown!r}, which the training text lacks, and that has no {UNKNOWN} "
            f"to stand for it; write {UNKNOWN} for rare words in both"
        )
    return indices


def windows(
    indices: npt.NDArray[np.int64], vocabulary_size: int, wanted: Wanted, where: str
) -> Source:
    """A text cut into windows of T tokens, one after the other, none shared; T is the model's.

    The labels of a window are the token after each of its tokens, [N, T]; for a model that gives
    one prediction a sample, the token after the window, [N]. What is left over at the end, less
    than a window and the token after it, is dropped.

    Raises:
        RequestError: the model does not read a sequence of indices, or has too small a table or
            too few classes for the vocabulary.
        DataError: the text is shorter than a window.
    """
    if wanted.kind != "index" or len(wanted.shape) != 1:
        kind = "indices" if wanted.kind == "index" else "real numbers"
        raise RequestError(
            f"the model reads {kind} of shape {list(wanted.shape)}; text is indices of shape [T]: "
            'give the model an input such as { shape = [35], kind = "index" }'
        )
    (length,) = wanted.shape
    for what, room in (("entries of the embedding", wanted.entries), ("classes", wanted.classes)):
        if vocabulary_size > room:
            raise RequestError(
                f"{where}: has {vocabulary_size:,} different tokens, and the model {room:,} {what}; "
                "make it larger"
            )
    count = (len(indices) - 1) // length
    if count < 1:
        raise DataError(
            f"{where}: has {len(indices)} tokens; a window of {length} and the token after it need "
            f"{length + 1}"
        )
    inputs = indices[: count * length].reshape(count, length)
    labels = indices[1 : count * length + 1].reshape(count, length)
    return of_arrays("index", inputs, labels if wanted.steps else labels[:, -1], where)


def described_words(description: DataSetDescription, split: str, wanted: Wanted) -> Source:
    """A split of a data set of words; the vocabulary is that of its training text.

    Raises:
        UnknownNameError: there is no such split.
        DataError: the data set is not on this machine, or is not what is described.
        RequestError: as :func:`windows`.
    """
    folder = folder_of(description)

    def tokens_of(name: str) -> list[str]:
        part = description.split(name)
        found: list[str] = []
        for file in map(description.file, part.parts):
            path = path_of_file(folder, file)
            found += read_tokens(path, "words", size=file.size, sha256=file.sha256)
        if len(found) != part.n_samples:
            raise DataError(
                f"{folder}: the split '{name}' of '{description.name}' has {len(found):,} words "
                f"where {part.n_samples:,} are described; correct the description"
            )
        return found

    training = tokens_of("train")
    vocabulary = make_vocabulary(training)
    if len(vocabulary) != description.vocabulary:
        raise DataError(
            f"{folder}: '{description.name}' has {len(vocabulary):,} different words where "
            f"{description.vocabulary:,} are described; correct the description"
        )
    tokens = training if split == "train" else tokens_of(split)
    return windows(encode(tokens, vocabulary, str(folder)), len(vocabulary), wanted, str(folder))
