"""Words and characters: tokens, vocabulary, windows, and text that is not what it should be."""

from __future__ import annotations

import gzip
import hashlib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_data import language_model

from dlb.data.description import Archive, DataFile, DataSetDescription, SplitDescription
from dlb.data.load import load_described
from dlb.data.registry import data_set
from dlb.data.source import ModelSignature
from dlb.data.text import encode, make_vocabulary, read_tokens, windows, word_source
from dlb.errors import DataError, RequestError
from dlb.samples import Splits, open_split
from dlb_data.fetch import fetch

if TYPE_CHECKING:
    from conftest import Site

#: As the files of the Penn Treebank are: a space before and after each line.
TEXTS = {
    "ptb.train.txt": " the cat <unk> the mat \n a cat N <unk> \n the end \n",
    "ptb.valid.txt": " the mat \n",
    "ptb.test.txt": " a cat <unk> \n the the \n",
}
#: The most frequent first; of as frequent ones as the code points sort, capitals before letters.
ORDER = ["<eos>", "the", "<unk>", "cat", "N", "a", "end", "mat"]


def describe_small(texts: dict[str, str], base: str = "", **changes: object) -> DataSetDescription:
    files = []
    for name, text in texts.items():
        content = text.encode()
        digest = hashlib.sha256(content).hexdigest()
        urls = (f"{base}/{name}",) if base else ()
        files.append(DataFile(name, len(content), digest, urls, len(content), digest))
    splits = tuple(
        SplitDescription(split, count, parts=(f"ptb.{split}.txt",))  # type: ignore[arg-type]
        for split, count in (("train", 14), ("valid", 3), ("test", 7))
    )
    given = {"name": "small", "files": tuple(files), "splits": splits, "vocabulary": 8}
    return replace(data_set("penn-treebank"), **{**given, **changes})  # type: ignore[arg-type]


def put(home: Path, texts: dict[str, str]) -> Path:
    folder = home / "data" / "small"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_bytes(text.encode())
    return folder


def reader(text: str) -> list[str]:
    """The reader of TensorFlow's tutorials, ptb/reader.py."""
    return text.replace("\n", "<eos>").split()


def wants(length: int, steps: bool = True, room: int = 8) -> ModelSignature:
    return ModelSignature("index", (length,), (length,) if steps else (), room, room)


def test_words_are_what_the_known_reader_reads(home: Path) -> None:
    put(home, TEXTS)
    source = word_source(describe_small(TEXTS), "train", wants(13))
    words = reader(TEXTS["ptb.train.txt"])
    counts = Counter(words)
    ordered = [word for word, _ in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))]
    assert ordered == ORDER
    indices = [ordered.index(word) for word in words]
    assert source.read(np.array([0])).tolist() == [indices[:13]]
    assert source.labels.tolist() == [indices[1:14]]


def test_the_test_split_has_the_vocabulary_of_the_training_text(home: Path) -> None:
    put(home, TEXTS)
    source = word_source(describe_small(TEXTS), "test", wants(3))
    assert source.read(np.arange(2)).tolist() == [[5, 3, 2], [0, 1, 1]]
    assert source.labels.tolist() == [[3, 2, 0], [1, 1, 0]]
    assert word_source(describe_small(TEXTS), "valid", wants(2)).count == 1
    last = word_source(describe_small(TEXTS), "test", wants(3, steps=False))
    assert last.labels.tolist() == [0, 0]


@given(
    tokens=st.lists(st.sampled_from("abcdefg"), min_size=2, max_size=60), length=st.integers(1, 9)
)
def test_windows_are_the_text_in_order(tokens: list[str], length: int) -> None:
    vocabulary = make_vocabulary(tokens)
    indices = encode(tokens, vocabulary, "here")
    if len(tokens) <= length:
        with pytest.raises(DataError, match=f"a window of {length} .* need {length + 1}"):
            windows(indices, len(vocabulary), wants(length), "here")
        return
    source = windows(indices, len(vocabulary), wants(length), "here")
    names = list(vocabulary)
    inputs = source.read(np.arange(source.count)).reshape(-1)
    assert [names[index] for index in inputs] == tokens[: source.count * length]
    following = [names[index] for index in source.labels.reshape(-1)]
    assert following == tokens[1 : source.count * length + 1]
    assert len(tokens) - 1 - source.count * length < length


def test_characters_are_tokens_too(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("añ \nb", encoding="utf-8")
    assert read_tokens(path, "characters") == ["a", "ñ", " ", "\n", "b"]
    assert read_tokens(path, "words") == ["añ", "<eos>", "b"]
    path.write_bytes(gzip.compress("añ".encode()))
    assert read_tokens(path, "characters") == ["a", "ñ"]


def test_text_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(b"good \xff\xfe")
    with pytest.raises(DataError, match=r"not text in UTF-8 \(byte 5 is 0xff\); convert it"):
        read_tokens(path, "words")
    with pytest.raises(DataError, match="cannot be read"):
        read_tokens(tmp_path / "none.txt", "words")


@pytest.mark.parametrize(
    ("change", "told"),
    [("the end \n", "altered"), (" the end", "truncated"), (" the end \n\n", "oversized")],
)
def test_a_described_text_that_is_another_is_refused(home: Path, change: str, told: str) -> None:
    text = TEXTS["ptb.train.txt"].removesuffix(" the end \n")
    changed = text + {"the end \n": " teh end \n"}.get(change, change)
    put(home, {**TEXTS, "ptb.train.txt": changed})
    with pytest.raises(DataError, match=told):
        word_source(describe_small(TEXTS), "train", wants(3))


def test_a_description_that_does_not_fit_its_text_is_refused(home: Path) -> None:
    put(home, TEXTS)
    with pytest.raises(DataError, match="8 different words where 9 are described"):
        word_source(describe_small(TEXTS, vocabulary=9), "train", wants(3))
    tests = [split for split in describe_small(TEXTS).splits if split.name == "test"]
    splits = (SplitDescription("train", 15, parts=("ptb.train.txt",)), *tests)
    with pytest.raises(DataError, match="14 words where 15 are described"):
        word_source(describe_small(TEXTS, splits=splits), "train", wants(3))
    with pytest.raises(RequestError, match="has words, not images"):
        load_described(describe_small(TEXTS), "train")


def test_words_that_training_lacks_need_a_word_for_them(home: Path) -> None:
    vocabulary = make_vocabulary(["a", "b"])
    with pytest.raises(DataError, match="has 'c', which the training text lacks"):
        encode(["a", "c"], vocabulary, "test.txt")
    assert encode(["a", "c"], make_vocabulary(["a", "<unk>"]), "test.txt").tolist() == [1, 0]


@pytest.mark.parametrize(
    ("want", "told"),
    [
        (ModelSignature("real", (3,), (3,), 8), "reads real numbers of shape"),
        (ModelSignature("index", (3, 2), (3,), 8, 8), r"indices of shape \[3, 2\]"),
        (ModelSignature("index", (3,), (3,), 8, 7), "8 different tokens, and the model 7 entries"),
        (ModelSignature("index", (3,), (3,), 7, 8), "8 different tokens, and the model 7 classes"),
    ],
)
def test_models_that_text_does_not_fit_are_refused(
    home: Path, want: ModelSignature, told: str
) -> None:
    put(home, TEXTS)
    with pytest.raises(RequestError, match=told):
        word_source(describe_small(TEXTS), "train", want)


def test_plain_files_are_fetched_or_taken_from_the_users_archive(
    home: Path, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in TEXTS.items():
        site.pages[f"/{name}"] = text.encode()
    site.truncate["/ptb.train.txt"] = [5]
    folder = fetch(describe_small(TEXTS, site.base))
    assert ("/ptb.train.txt", "bytes=5-") in site.asked
    assert {path.name for path in folder.iterdir()} == {*TEXTS, ".lock"}
    assert word_source(describe_small(TEXTS), "train", wants(13)).count == 1

    from tiny_data import pack

    mine = tmp_path / "mine"
    mine.mkdir()
    members = {f"./simple-examples/data/{name}": text.encode() for name, text in TEXTS.items()}
    (mine / "simple-examples.tgz").write_bytes(pack({**members}))
    monkeypatch.setenv("DLB_DATA_DIR", str(mine))
    archives = (Archive("simple-examples.tgz", "simple-examples/data"),)
    other = describe_small(TEXTS, name="other", archives=archives)
    assert described_words_of_fetched(other) == 1


def described_words_of_fetched(description: DataSetDescription) -> int:
    fetch(description)
    return word_source(description, "train", wants(13)).count


def test_a_workload_reads_a_described_text(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(home, TEXTS)
    monkeypatch.setattr("dlb.samples.data_set", lambda name: describe_small(TEXTS))
    workload = language_model({"name": "small"}, 3, 8)
    assert Splits(workload).count == 4
    source = open_split(workload, "train")
    assert (source.kind, source.shape, source.labels.shape) == ("index", (3,), (4, 3))
    with pytest.raises(RequestError, match="7 entries of the embedding"):
        open_split(language_model({"name": "small"}, 3, 7), "train")
