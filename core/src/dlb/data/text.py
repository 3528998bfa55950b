"""Text as windows of indices, each with the token that follows as its label.

A token is a word or a character. Whitespace separates words, and each end of a line is the word
``<eos>``. The vocabulary is sorted by decreasing frequency, then by code points. The reader of
TensorFlow's language-model tutorial does the same (``ptb/reader.py``), on the text of Zaremba,
Sutskever and Vinyals 2014, arXiv:1409.2329.
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
from dlb.data.source import ModelSignature, Source, array_source
from dlb.errors import DataError, RequestError

__all__ = [
    "END_OF_LINE",
    "UNKNOWN",
    "Unit",
    "encode",
    "make_vocabulary",
    "read_tokens",
    "windows",
    "word_source",
]

Unit = Literal["words", "characters"]
END_OF_LINE = "<eos>"
UNKNOWN = "<unk>"


def read_tokens(
    path: Path, unit: Unit, *, size: int | None = None, sha256: str | None = None
) -> list[str]:
    """The tokens of a text file in UTF-8, plain or gzip-compressed.

    Raises:
        DataError: the file is missing, not text, or has another size or SHA-256.
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
    """The indices of tokens, int64 [N]; a token outside the vocabulary is encoded as ``<unk>``.

    Raises:
        DataError: a token is outside the vocabulary, which has no ``<unk>``.
    """
    default = vocabulary.get(UNKNOWN, -1)
    encoded = (vocabulary.get(token, default) for token in tokens)
    indices = np.fromiter(encoded, np.int64, len(tokens))
    if len(indices) and indices.min() < 0:
        unknown = tokens[int(indices.argmin())]
        raise DataError(
            f"{where}: has {unknown!r}, which the training text lacks, and that has no {UNKNOWN} "
            f"to stand for it; write {UNKNOWN} for rare words in both"
        )
    return indices


def windows(
    indices: npt.NDArray[np.int64], vocabulary_size: int, signature: ModelSignature, where: str
) -> Source:
    """A text, cut into consecutive windows of T tokens without overlap, where the model reads [T].

    The labels of a window are the tokens that follow each of its tokens, [N, T]. For a model with one
    prediction per sample, the label is the token after the window, [N]. The remainder at the end of
    the text is dropped.

    Args:
        indices: int64, the encoded text.
        vocabulary_size: the number of different tokens.
        signature: the model's input and labels.
        where: the text's file, for messages and the record.

    Raises:
        RequestError: the model does not read a sequence of indices, or its embedding or its number
            of classes is too small for the vocabulary.
        DataError: the text is shorter than a window and a token.
    """
    if signature.kind != "index" or len(signature.shape) != 1:
        kind = "indices" if signature.kind == "index" else "real numbers"
        raise RequestError(
            f"the model reads {kind} of shape {list(signature.shape)}; text is indices of shape [T]: "
            'give the model an input such as { shape = [35], kind = "index" }'
        )
    (length,) = signature.shape
    for what, room in (
        ("entries of the embedding", signature.entries),
        ("classes", signature.classes),
    ):
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
    return array_source("index", inputs, labels if signature.steps else labels[:, -1], where)


def word_source(description: DataSetDescription, split: str, signature: ModelSignature) -> Source:
    """A split of a data set of words; the vocabulary comes from its training text.

    Raises:
        UnknownNameError: there is no such split.
        DataError: the data set is not on this machine, or does not match its description.
        RequestError: as :func:`windows`.
    """
    folder = folder_of(description)

    def read_split(name: str) -> list[str]:
        split_description = description.split(name)
        tokens: list[str] = []
        for file in map(description.file, split_description.parts):
            path = path_of_file(folder, file)
            tokens += read_tokens(path, "words", size=file.size, sha256=file.sha256)
        if len(tokens) != split_description.n_samples:
            raise DataError(
                f"{folder}: the split '{name}' of '{description.name}' has {len(tokens):,} words "
                f"where {split_description.n_samples:,} are described; correct the description"
            )
        return tokens

    training = read_split("train")
    vocabulary = make_vocabulary(training)
    if len(vocabulary) != description.vocabulary:
        raise DataError(
            f"{folder}: '{description.name}' has {len(vocabulary):,} different words where "
            f"{description.vocabulary:,} are described; correct the description"
        )
    tokens = training if split == "train" else read_split(split)
    return windows(encode(tokens, vocabulary, str(folder)), len(vocabulary), signature, str(folder))
