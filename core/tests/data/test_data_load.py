"""Loading a split, normalising it, and the order of samples."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlb.data.batches import sample_order
from dlb.data.description import DataSetDescription
from dlb.data.idx import encode_idx
from dlb.data.load import load_described, normalise
from dlb.data.registry import data_set
from dlb.errors import DataError, RequestError

Describe = Callable[..., DataSetDescription]


def put(home: Path, contents: dict[str, bytes]) -> None:
    folder = home / "data" / "tiny"
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)


def test_a_split_is_what_the_files_hold(
    home: Path, tiny: dict[str, bytes], describe_tiny: Describe
) -> None:
    put(home, tiny)
    data = load_described(describe_tiny(tiny), "test")
    assert data.images.tobytes() == tiny["t10k-images"][16:]
    assert data.images.shape == (20, 1, 6, 5)
    assert data.labels.tolist() == [0, 1, 2, 3] * 5
    assert data.classes == ("a", "b", "c", "d")


def test_an_altered_file_is_refused(
    home: Path, tiny: dict[str, bytes], describe_tiny: Describe
) -> None:
    description = describe_tiny(tiny)
    tiny["train-images"] = tiny["train-images"][:-1] + bytes((tiny["train-images"][-1] ^ 1,))
    put(home, tiny)
    with pytest.raises(DataError, match="altered") as caught:
        load_described(description, "train")
    assert "train-images" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "array", "told"),
    [
        ("train-labels", np.zeros(39, np.uint8), "one for each image"),
        ("train-labels", np.zeros((40, 1), np.uint8), "one for each image"),
        ("train-labels", np.zeros(40, np.int32), "uint8"),
        ("train-labels", np.full(40, 4, np.uint8), "label 4 where 0 to 3"),
        ("train-images", np.zeros((39, 6, 5), np.uint8), "40, 6, 5"),
        ("train-images", np.zeros((40, 5, 6), np.uint8), "40, 6, 5"),
        ("train-images", np.zeros((40, 30), np.uint8), "40, 6, 5"),
        ("train-images", np.zeros((40, 6, 5), np.int8), "uint8"),
    ],
)
def test_files_that_do_not_fit_together_are_refused(
    home: Path,
    tiny: dict[str, bytes],
    describe_tiny: Describe,
    name: str,
    array: np.ndarray,
    told: str,
) -> None:
    tiny[name] = encode_idx(array)
    put(home, tiny)
    with pytest.raises(DataError, match=told) as caught:
        load_described(describe_tiny(tiny), "train")
    assert name in str(caught.value)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_normalised_values_are_the_exact_ones_rounded_once(dtype: str) -> None:
    images = np.arange(256, dtype=np.uint8).reshape(2, 2, 8, 8)
    found = normalise(images, [0.5, 0.25], [0.5, 0.3], dtype)
    assert found.dtype == np.dtype(dtype)
    assert found.shape == images.shape
    for (n, c, h, w), pixel in np.ndenumerate(images):
        mean, std = ((0.5, 0.5), (0.25, 0.3))[c]
        # Python's float is the same IEEE 754 binary64, rounded after each operation.
        expected = np.dtype(dtype).type((int(pixel) / 255.0 - mean) / std)
        assert found[n, c, h, w] == expected
        exact = (Fraction(int(pixel), 255) - Fraction(mean)) / Fraction(std)
        assert abs(float(found[n, c, h, w]) - float(exact)) <= 2 * np.finfo(dtype).eps * 4


def test_one_mean_serves_all_channels() -> None:
    images = np.arange(24, dtype=np.uint8).reshape(1, 3, 2, 4)
    np.testing.assert_array_equal(
        normalise(images, 0.1, 0.3), normalise(images, [0.1] * 3, [0.3] * 3)
    )


def test_the_subset_is_centred_by_its_own_statistics() -> None:
    images = load_described(data_set("fashion-mnist-subset"), "train").images
    mean, std = float(images.mean()) / 255, float(images.std()) / 255
    found = normalise(images, mean, std, "float64")
    assert abs(found.mean()) < 1e-12
    assert abs(found.std() - 1) < 1e-12


@pytest.mark.parametrize(
    ("images", "mean", "std", "dtype"),
    [
        (np.zeros((2, 3, 3), np.uint8), 0.0, 1.0, "float32"),
        (np.zeros((2, 1, 3, 3), np.float32), 0.0, 1.0, "float32"),
        (np.zeros((2, 3, 3, 3), np.uint8), [0.0, 0.0], 1.0, "float32"),
        (np.zeros((2, 1, 3, 3), np.uint8), 0.0, 0.0, "float32"),
        (np.zeros((2, 1, 3, 3), np.uint8), 0.0, -1.0, "float32"),
        (np.zeros((2, 1, 3, 3), np.uint8), float("nan"), 1.0, "float32"),
        (np.zeros((2, 1, 3, 3), np.uint8), 0.0, 1e-9, "float16"),
        (np.zeros((2, 1, 3, 3), np.uint8), 0.0, 1.0, "int8"),
    ],
)
def test_what_cannot_be_normalised_is_refused(
    images: np.ndarray, mean: float | Sequence[float], std: float, dtype: str
) -> None:
    with pytest.raises(RequestError):
        normalise(images, mean, std, dtype)


@given(
    n_samples=st.integers(1, 60),
    steps=st.integers(1, 40),
    seed=st.integers(-(2**70), 2**70),
    data=st.data(),
)
def test_every_epoch_sees_each_sample_at_most_once(
    n_samples: int, steps: int, seed: int, data: st.DataObject
) -> None:
    batch_size = data.draw(st.integers(1, n_samples))
    order = sample_order(n_samples, batch_size, steps, seed)
    assert order.shape == (steps, batch_size)
    assert order.dtype == np.int64
    per_epoch = n_samples // batch_size
    for first in range(0, steps, per_epoch):
        epoch = order[first : first + per_epoch].ravel()
        assert len(np.unique(epoch)) == len(epoch)
        assert epoch.min() >= 0
        assert epoch.max() < n_samples
    # A longer run begins as a shorter one does.
    np.testing.assert_array_equal(
        sample_order(n_samples, batch_size, steps + 5, seed)[:steps], order
    )


FROZEN = [1, 8, 0, 5, 6, 7, 3, 9, 2, 4, 6, 0, 1, 9, 8, 7, 2, 5]


def test_the_order_is_the_same_for_ever() -> None:
    """Worked out from the definition with hashlib and sorted, no NumPy."""
    expected: list[int] = []
    for epoch in range(2):
        text = f"dlb sample order 1; seed 7; epoch {epoch}".encode()
        stream = hashlib.shake_256(text).digest(80)
        keys = [int.from_bytes(stream[8 * i : 8 * i + 8], "little") for i in range(10)]
        expected += sorted(range(10), key=keys.__getitem__)[:9]
    assert sample_order(10, 3, 6, 7).ravel().tolist() == expected
    assert expected == FROZEN


def test_epochs_and_seeds_differ() -> None:
    order = sample_order(1000, 1000, 2, 0)
    assert order[0].tolist() != order[1].tolist()
    assert order[0].tolist() != sample_order(1000, 1000, 1, 1)[0].tolist()


@pytest.mark.parametrize(
    ("n_samples", "batch_size", "steps"),
    [(10, 11, 1), (10, 0, 1), (10, -1, 1), (0, 1, 1), (9, 3, 0)],
)
def test_orders_that_cannot_be_are_refused(n_samples: int, batch_size: int, steps: int) -> None:
    with pytest.raises(RequestError):
        sample_order(n_samples, batch_size, steps, 0)
