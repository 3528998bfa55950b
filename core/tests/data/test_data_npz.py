"""Files that workers read: written in pieces, read in place, and only what a run asks for."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlb.data.batches import draw_sample_schedule, sample_order
from dlb.data.npz import ChunkedArray, write_npz
from dlb.data.source import array_source
from dlb.errors import RequestError
from dlb.prepared import DECODED_TESTS, _choose_test_samples
from dlb_graph.workload import Augmentation
from dlb_worker.arrays import map_arrays, read_or_map


def pieces(array: np.ndarray, length: int) -> ChunkedArray:
    cut = [array[first : first + length] for first in range(0, len(array), length)]
    return ChunkedArray(array.shape, array.dtype, cut)


ARRAYS = {
    "inputs": np.random.RandomState(0).standard_normal((11, 2, 3)).astype(np.float32),
    "labels": np.arange(11),
}


def test_pieces_make_the_file_that_savez_makes(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    write_npz(path, {name: pieces(array, 4) for name, array in ARRAYS.items()})
    with np.load(path, allow_pickle=False) as stored:
        assert stored.files == ["inputs", "labels"]
        for name, array in ARRAYS.items():
            assert stored[name].dtype == array.dtype
            np.testing.assert_array_equal(stored[name], array)


@pytest.mark.parametrize("writer", ["savez", "pieces"])
def test_a_file_is_read_in_place(tmp_path: Path, writer: str) -> None:
    path = tmp_path / "a.npz"
    if writer == "savez":
        np.savez(path, **ARRAYS, columns=np.asfortranarray(ARRAYS["inputs"]))  # type: ignore[arg-type]
    else:
        write_npz(path, {name: pieces(array, 4) for name, array in ARRAYS.items()})
    before = path.read_bytes()
    mapped = map_arrays(path)
    for name, array in mapped.items():
        assert type(array) is np.ndarray and isinstance(array.base, np.memmap)
        np.testing.assert_array_equal(array, ARRAYS.get(name, ARRAYS["inputs"]))
    mapped["inputs"][0] = 5
    assert path.read_bytes() == before


def test_only_large_files_are_read_in_place(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, **ARRAYS)  # type: ignore[arg-type]
    assert not isinstance(read_or_map(path)["inputs"].base, np.memmap)
    assert not isinstance(read_or_map(path, path.stat().st_size)["inputs"].base, np.memmap)
    assert isinstance(read_or_map(path, path.stat().st_size - 1)["inputs"].base, np.memmap)


def test_files_that_cannot_be_read_in_place_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(path, **ARRAYS)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"inputs.npy is compressed"):
        map_arrays(path)
    np.savez(path, objects=np.array([{}]))
    with pytest.raises(ValueError, match="holds objects"):
        map_arrays(path)
    with zipfile.ZipFile(path, "w") as archive, archive.open("more.npy", "w") as member:
        header = {"descr": "<f8", "fortran_order": False, "shape": (3,)}
        np.lib.format.write_array_header_1_0(member, header)
        member.write(bytes(16))
    with pytest.raises(ValueError, match=r"more.npy is cut short"):
        map_arrays(path)


def test_arrays_that_are_read_in_place_keep_one_file_open_between_them(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, **{f"layer{number}.weight": np.full(2, number) for number in range(300)})
    before = psutil.Process().num_fds()
    mapped = map_arrays(path)
    assert psutil.Process().num_fds() <= before + 1
    path.unlink()
    assert [int(array[1]) for array in mapped.values()] == list(range(300))
    del mapped
    assert psutil.Process().num_fds() == before


def test_what_has_no_room_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    def none_of_it() -> object:
        raise AssertionError("asked for")
        yield

    huge = ChunkedArray((10**9, 10**6), np.dtype("f4"), none_of_it())  # type: ignore[arg-type]
    with pytest.raises(RequestError, match=r"4\.0 PB in .* fewer --steps, or set TMPDIR"):
        write_npz(tmp_path / "a.npz", {"inputs": huge})
    assert list(tmp_path.iterdir()) == []


@given(n_samples=st.integers(1, 50), steps=st.integers(1, 20), data=st.data())
def test_steps_get_the_same_samples_out_of_fewer(
    n_samples: int, steps: int, data: st.DataObject
) -> None:
    batch = data.draw(st.integers(1, n_samples))
    order = sample_order(n_samples, batch, steps, 3)
    sample_schedule = draw_sample_schedule(Augmentation(), n_samples, batch, steps, 3)
    assert sample_schedule.order.shape == order.shape and sample_schedule.order.dtype == np.int64
    np.testing.assert_array_equal(sample_schedule.samples[sample_schedule.order], order)
    assert sample_schedule.samples.tolist() == sorted(set(order.ravel().tolist()))
    assert sample_schedule.resized_crops is None and sample_schedule.crops is None


@pytest.mark.parametrize("count", [1, DECODED_TESTS, DECODED_TESTS + 1, 50_000])
def test_decoded_data_are_tested_on_evenly_spread_samples(count: int) -> None:
    source = array_source("index", np.zeros((count, 1), int), np.arange(count), "here")
    assert _choose_test_samples(source).tolist() == list(range(count))
    from dataclasses import replace

    some = _choose_test_samples(replace(source, decoded=True))
    assert len(some) == min(count, DECODED_TESTS) == len(set(some.tolist()))
    gaps = np.diff(some)
    assert some[0] == 0 and some[-1] < count
    assert not len(gaps) or gaps.max() - gaps.min() <= 1
