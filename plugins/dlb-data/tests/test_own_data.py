"""Data of the user: .npz files, pairs of IDX files, texts, and what is refused of them."""

from __future__ import annotations

import gzip
import hashlib
import io
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tiny_data import language_model

from dlb.data.idx import encode_idx
from dlb.data.load import normalise
from dlb.errors import DataError, RequestError
from dlb.samples import Splits, open_split, read_labels, read_samples, write_samples
from dlb_graph.workload import Workload, workload_hash
from dlb_graph.workload.files import from_document, to_document

pytestmark = pytest.mark.usefixtures("home")


def load_samples(workload: Workload, split: str, dtype: str) -> SimpleNamespace:
    """A whole split, normalised."""
    source = open_split(workload, split)
    rows = np.arange(source.count)
    inputs, labels = read_samples(workload, source, rows, dtype), read_labels(source, rows, dtype)
    return SimpleNamespace(inputs=inputs, labels=labels, where=source.where)


def classifier(
    data: dict[str, Any], shape: tuple[int, ...] = (2, 4, 3), classes: int = 3
) -> Workload:
    nodes: list[dict[str, Any]] = [
        {"name": "flatten", "layer": {"type": "flatten"}},
        {"name": "scores", "layer": {"type": "linear", "out_features": classes}},
    ]
    return from_document(
        {
            "name": "mine",
            "batch_size": 2,
            "data": data,
            "optimizer": {"type": "sgd", "learning_rate": 0.1},
            "model": {"input": {"shape": shape}, "nodes": nodes[-1:] if len(shape) == 1 else nodes},
        }
    )


def images(count: int, seed: int = 0) -> np.ndarray:
    return np.random.RandomState(seed).randint(0, 256, (count, 2, 4, 3)).astype(np.uint8)


def labels(count: int) -> np.ndarray:
    return np.arange(count) % 3


def test_images_of_an_npz_file_are_normalised_and_every_tenth_tests(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    np.savez(path, inputs=images(25), labels=labels(25).astype(np.uint8))
    data = {"name": "npz", "path": str(path), "mean": [0.5, 0.4], "std": [0.2, 0.1]}
    workload = classifier(data)
    assert Splits(workload).count == 23
    train, test = (load_samples(workload, split, "float32") for split in ("train", "test"))
    kept = np.array([9, 19])
    np.testing.assert_array_equal(test.inputs, normalise(images(25)[kept], [0.5, 0.4], [0.2, 0.1]))
    assert test.labels.tolist() == labels(25)[kept].tolist()
    others = np.delete(np.arange(25), kept)
    np.testing.assert_array_equal(
        train.inputs, normalise(images(25)[others], [0.5, 0.4], [0.2, 0.1])
    )
    assert hashlib.sha256(path.read_bytes()).hexdigest() in train.where


def test_a_folder_of_npz_files_has_two_splits(tmp_path: Path) -> None:
    np.savez(tmp_path / "train.npz", inputs=images(4), labels=labels(4))
    workload = classifier({"name": "npz", "path": str(tmp_path)})
    assert open_split(workload, "train").count == 4
    with pytest.raises(DataError, match=r"has no test.npz; a folder for 'npz' holds"):
        open_split(workload, "test")
    np.savez_compressed(tmp_path / "test.npz", inputs=images(3), labels=labels(3))
    assert open_split(workload, "test").count == 3


def test_real_numbers_are_taken_as_they_are(tmp_path: Path) -> None:
    inputs = np.random.RandomState(1).standard_normal((12, 5))
    np.savez(tmp_path / "mine.npz", inputs=inputs, labels=labels(12))
    data = {"name": "npz", "path": str(tmp_path / "mine.npz")}
    read = load_samples(classifier(data, (5,)), "train", "float32")
    np.testing.assert_array_equal(read.inputs, np.delete(inputs, 9, axis=0).astype(np.float32))
    with pytest.raises(RequestError, match=r"data.mean and data.std are for images"):
        load_samples(classifier({**data, "mean": [0.5], "std": [1.0]}, (5,)), "train", "float32")


def test_whole_numbers_are_indices(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    indices = np.arange(40).reshape(10, 4) % 6
    np.savez(path, inputs=indices, labels=indices)
    data = {"name": "npz", "path": str(path)}
    read = load_samples(language_model(data, 4, 6), "train", "float32")
    assert read.inputs.dtype == np.int64 and read.inputs.tolist() == indices[:9].tolist()
    with pytest.raises(RequestError, match=r"indices from 0 to 5; the embedding .* 5 entries"):
        open_split(language_model(data, 4, 5), "train")


def test_what_is_written_for_workers_is_what_savez_writes(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", inputs=images(700), labels=labels(700))
    workload = classifier({"name": "npz", "path": str(tmp_path / "mine.npz")})
    source = open_split(workload, "train")
    some = np.arange(0, 630, 2)
    write_samples(workload, source, some, "float32", tmp_path / "out.npz")
    whole = load_samples(workload, "train", "float32")
    with np.load(tmp_path / "out.npz", allow_pickle=False) as stored:
        assert stored["inputs"].dtype == np.float32
        np.testing.assert_array_equal(stored["inputs"], whole.inputs[some])
        np.testing.assert_array_equal(stored["labels"], whole.labels[some])


def npz(**arrays: Any) -> bytes:
    output = io.BytesIO()
    np.savez(output, **arrays)
    return output.getvalue()


WHOLE = npz(inputs=images(10), labels=labels(10))
BAD_NPZ: dict[str, tuple[bytes, str]] = {
    "not one": (b"some text, no archive" * 10, "not a whole .npz"),
    "empty": (b"", "not a whole .npz"),
    "cut": (WHOLE[: len(WHOLE) // 2], "not a whole .npz"),
    "spoilt": (WHOLE.replace(images(10)[:1].tobytes()[:20], b"?" * 20), "not a whole .npz"),
    "objects": (npz(inputs=np.array([[{}]] * 10), labels=labels(10)), "not a whole .npz"),
    "no labels": (npz(inputs=images(10)), "lacks labels; it has inputs"),
    "other keys": (npz(x=images(10), y=labels(10)), "lacks inputs and labels; it has x, y"),
    "another N": (npz(inputs=images(10), labels=labels(9)), "of one N"),
    "no samples": (npz(inputs=images(0), labels=labels(0)), "of one N, 1 or more"),
    "real labels": (npz(inputs=images(10), labels=labels(10) / 2), "labels that are no integers"),
    "labels of text": (npz(inputs=images(10), labels=np.full(10, "a")), "labels must be numbers"),
    "labels NaN": (npz(inputs=images(10), labels=np.full(10, np.nan)), "labels hold NaN"),
    "texts": (npz(inputs=np.full((10, 3), "a"), labels=labels(10)), "inputs must be numbers"),
    "NaN": (npz(inputs=np.full((10, 3), np.nan), labels=labels(10)), "NaN or infinity"),
    "label above": (npz(inputs=images(10), labels=labels(10) + 1), "label 3; .* 0 to 2"),
    "label below": (npz(inputs=images(10), labels=labels(10) - 1), "label -1; .* 0 to 2"),
    "another shape": (npz(inputs=images(10)[:, :1], labels=labels(10)), r"shape \[1, 4, 3\]"),
    "labels [N, T]": (npz(inputs=images(10), labels=np.zeros((10, 2), int)), "labels of shape"),
    "too few": (npz(inputs=images(9), labels=labels(9)), "has 9 samples; every tenth"),
}


@pytest.mark.parametrize(("content", "told"), BAD_NPZ.values(), ids=list(BAD_NPZ))
def test_npz_files_that_cannot_be_used_are_refused(
    tmp_path: Path, content: bytes, told: str
) -> None:
    path = tmp_path / "mine.npz"
    path.write_bytes(content)
    with pytest.raises(RequestError, match=told):
        load_samples(classifier({"name": "npz", "path": str(path)}), "train", "float32")


def regression(path: Path, outputs: int, loss: str) -> Workload:
    document = to_document(classifier({"name": "npz", "path": str(path)}, (5,), outputs + 1))
    document["model"]["nodes"][-1]["layer"]["out_features"] = outputs
    return from_document({**document, "loss": {"type": loss}})


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(10, 4), (10, 1), (10,)])
def test_targets_are_real_numbers_of_the_shape_of_the_outputs(
    tmp_path: Path, shape: tuple[int, ...], dtype: str
) -> None:
    """Labels [N] are those of models with one output."""
    random = np.random.RandomState(2)
    inputs, targets = random.standard_normal((10, 5)), random.standard_normal(shape)
    np.savez(tmp_path / "mine.npz", inputs=inputs, labels=targets)
    workload = regression(tmp_path / "mine.npz", targets.reshape(10, -1).shape[1], "huber")
    read = load_samples(workload, "train", dtype)
    assert read.labels.dtype == dtype and read.labels.shape == (9, targets.size // 10)
    np.testing.assert_array_equal(read.labels, targets[:9].reshape(9, -1).astype(dtype))
    write_samples(
        workload, open_split(workload, "train"), np.arange(9), dtype, tmp_path / "out.npz"
    )
    with np.load(tmp_path / "out.npz", allow_pickle=False) as stored:
        np.testing.assert_array_equal(stored["labels"], read.labels)
        assert stored["labels"].dtype == dtype


def texts(path: Path, steps: int = 6) -> Workload:
    """Of six steps, with four labels of three classes at most."""
    document = {
        "name": "text",
        "batch_size": 2,
        "data": {"name": "npz", "path": str(path)},
        "optimizer": {"type": "sgd", "learning_rate": 0.1},
        "loss": {"type": "ctc", "most_labels": 4},
        "model": {
            "input": {"shape": [steps, 3]},
            "nodes": [{"name": "out", "layer": {"type": "linear", "out_features": 4}}],
        },
    }
    return from_document(document)


def test_texts_are_sequences_of_labels(tmp_path: Path) -> None:
    labels = np.array([[1, 2, 3, 1], [1, 1, 2, 2], [3, -1, -1, -1], [-1] * 4] * 3)[:10]
    np.savez(tmp_path / "mine.npz", inputs=np.ones((10, 6, 3)), labels=labels)
    read = load_samples(texts(tmp_path / "mine.npz"), "train", "float32")
    assert read.labels.dtype == np.int64
    np.testing.assert_array_equal(read.labels, labels[:9])


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ([1, 2, 3, 4], "sample 1: a label that is none of the classes 0 to 3 without the blank"),
        ([1, 0, 3, -1], "sample 1: a label that is none of the classes 0 to 3 without the blank"),
        ([1, -1, 3, -1], "sample 1: a label after a -1"),
        ([1, 1, 1, 1], "sample 1: labels that take more steps than the 6 of the outputs"),
        ([1.0, 1.5, 2.0, -1.0], "no integers"),
        ([1, 2, 3], "reads 4 integers a sample"),
    ],
)
def test_texts_that_do_not_fit_are_refused(tmp_path: Path, row: list[float], told: str) -> None:
    good = [1, 2, 3, -1][: len(row)]
    labels = np.array([good, row, *[good] * 18])
    np.savez(tmp_path / "mine.npz", inputs=np.ones((20, 6, 3)), labels=labels)
    with pytest.raises(RequestError, match=re.escape(told)):
        load_samples(texts(tmp_path / "mine.npz"), "train", "float32")


def test_classes_0_and_1_are_targets_of_one_logit(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", inputs=np.ones((10, 5)), labels=np.arange(10) % 2)
    workload = regression(tmp_path / "mine.npz", 1, "binary_cross_entropy")
    assert load_samples(workload, "train", "float32").labels[:3].tolist() == [[0.0], [1.0], [0.0]]


@pytest.mark.parametrize(
    ("labels", "loss", "told"),
    [
        (
            np.ones((10, 3)),
            "squared_error",
            r"shape of its outputs, \[2\] a sample; .* shape \[3\]",
        ),
        (np.ones(10), "absolute_error", r"shape of its outputs, \[2\] a sample; .* shape \[\]"),
        (np.full((10, 2), 1e300), "squared_error", "1e\\+300, which float32 cannot hold"),
        (np.full((10, 2), 1.5), "binary_cross_entropy", "from 1.5 to 1.5; .* targets from 0 to 1"),
        (np.full((10, 2), -1), "binary_cross_entropy", "from -1 to -1; .* targets from 0 to 1"),
    ],
)
def test_targets_that_do_not_fit_are_refused(
    tmp_path: Path, labels: np.ndarray, loss: str, told: str
) -> None:
    np.savez(tmp_path / "mine.npz", inputs=np.ones((10, 5)), labels=labels)
    with pytest.raises(RequestError, match=told):
        open_split(regression(tmp_path / "mine.npz", 2, loss), "train")


def test_labels_of_maps_may_hold_one_that_is_ignored(tmp_path: Path) -> None:
    path, maps = tmp_path / "mine.npz", np.arange(120).reshape(10, 4, 3) % 3
    maps[:, 0] = 255
    np.savez(path, inputs=images(10), labels=maps.astype(np.uint8))
    document = to_document(classifier({"name": "npz", "path": str(path)}))
    layer = {"type": "conv", "out_channels": 3, "kernel": [1, 1]}
    document["model"]["nodes"] = [{"name": "scores", "layer": layer}]
    with pytest.raises(
        RequestError, match=r"has the label 255; .* loss\.ignore_index may name one"
    ):
        load_samples(from_document(document), "train", "float32")
    document["loss"] = {"type": "softmax_cross_entropy", "ignore_index": 255}
    read = load_samples(from_document(document), "train", "float32").labels
    np.testing.assert_array_equal(read, maps[:9])
    document["loss"]["ignore_index"] = -100
    with pytest.raises(RequestError, match=r"has the label 255; .* labels 0 to 2$"):
        load_samples(from_document(document), "train", "float32")


def test_an_array_file_is_no_npz(tmp_path: Path) -> None:
    np.save(tmp_path / "mine.npy", images(3))
    with pytest.raises(DataError, match=r"not a whole .npz file; write it with numpy.savez"):
        open_split(classifier({"name": "npz", "path": str(tmp_path / "mine.npy")}), "train")


def test_idx_files_are_a_pair_or_a_folder(tmp_path: Path) -> None:
    grey = images(20)[:, 0]
    (tmp_path / "a.idx").write_bytes(encode_idx(grey))
    (tmp_path / "b.idx").write_bytes(gzip.compress(encode_idx(labels(20).astype(np.int32))))
    pair = {"name": "idx", "path": str(tmp_path / "a.idx"), "labels": str(tmp_path / "b.idx")}
    workload = classifier(pair, (1, 4, 3))
    source = open_split(workload, "test")
    np.testing.assert_array_equal(source.read(np.arange(2))[:, 0], grey[[9, 19]])
    with pytest.raises(RequestError, match=r"data.labels must name the IDX file"):
        open_split(classifier({"name": "idx", "path": pair["path"]}, (1, 4, 3)), "train")

    folder = tmp_path / "folder"
    folder.mkdir()
    both = classifier({"name": "idx", "path": str(folder)}, (1, 4, 3))
    with pytest.raises(DataError, match="has no train-images; a folder for 'idx' holds"):
        open_split(both, "train")
    (folder / "train-images").write_bytes(encode_idx(grey))
    (folder / "train-labels.gz").write_bytes(gzip.compress(encode_idx(labels(20).astype(np.int32))))
    (folder / "t10k-images-idx3-ubyte").write_bytes(encode_idx(grey[:7]))
    (folder / "t10k-labels-idx1-ubyte").write_bytes(encode_idx(labels(7).astype(np.uint8)))
    assert (open_split(both, "train").count, open_split(both, "test").count) == (20, 7)
    (folder / "train-images").write_bytes(encode_idx(grey)[:-1])
    with pytest.raises(DataError, match=r"train-images: truncated"):
        open_split(both, "train")


def test_texts_are_words_or_characters(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("to be or not to be\n" * 10)
    words = open_split(language_model({"name": "words", "path": str(path)}, 3, 5), "train")
    # <eos> and the words of one count as their code points sort: be, to; <eos>, not, or.
    assert words.read(np.arange(2)).tolist() == [[1, 0, 4], [3, 1, 0]]
    assert words.labels[:2].tolist() == [[0, 4, 3], [1, 0, 2]]
    characters = {"name": "characters", "path": str(path)}
    assert Splits(language_model(characters, 7, 8)).count == 25
    with pytest.raises(RequestError, match="has 8 different tokens, and the model 5 entries"):
        open_split(language_model(characters, 7, 5), "train")

    (tmp_path / "train.txt").write_text("a b a c\n")
    (tmp_path / "test.txt").write_text("c a d b\n")
    folder = language_model({"name": "words", "path": str(tmp_path)}, 2, 4)
    assert open_split(folder, "train").count == 2
    with pytest.raises(DataError, match=r"test.txt: has 'd', which the training text lacks"):
        open_split(folder, "test")
    (tmp_path / "test.txt").write_text("c a b\n")
    assert open_split(folder, "test").read(np.array([0])).tolist() == [[3, 0]]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"name": "npz"}, 'need a path: data = { name = "npz", path'),
        ({"name": "npz", "path": "nowhere/x.npz"}, "nowhere/x.npz: there is nothing there"),
        ({"name": "npz", "path": "~no-such-user/x.npz"}, "~no-such-user/x.npz: there is nothing"),
        ({"name": "npz", "path": "a" * 5000}, "cannot be looked at"),
        ({"name": "npz", "path": "a\0b"}, "cannot be looked at"),
        ({"name": "words", "path": "/dev/null"}, "neither a file nor a folder"),
        ({"name": "folder", "path": __file__}, "not a folder; 'folder' needs one"),
        ({"name": "words", "path": __file__}, r"indices of shape \[T\]"),
        ({"name": "npz", "path": ".", "labels": "x"}, "data.labels is for 'idx' alone"),
        ({"name": "mnist", "path": "."}, "'mnist' is found by its name"),
        ({"name": "synthetic", "path": "."}, "'synthetic' is found by its name"),
    ],
)
def test_paths_that_do_not_go_with_the_name_are_refused(data: dict[str, str], told: str) -> None:
    with pytest.raises(RequestError, match=told):
        open_split(classifier(data), "train")


def test_a_path_counts_in_the_hash_and_none_does_not() -> None:
    bare = classifier({"name": "npz"})
    assert workload_hash(bare) != workload_hash(classifier({"name": "npz", "path": "a.npz"}))
    assert workload_hash(bare) == workload_hash(classifier({"name": "npz", "path": ""}))
