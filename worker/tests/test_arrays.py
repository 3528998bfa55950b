"""Arrays cross in .npz files as they are, and never as pickles."""

import errno

import numpy as np
import pytest

from dlb_worker.arrays import map_arrays, read_arrays, read_or_map, write_arrays
from dlb_worker.errors import PluginError, RequestError

ARRAYS = {
    "conv1.weight": np.arange(24, dtype=np.float32).reshape(2, 3, 4),
    "optimizer/conv1.weight.m": np.array([np.nan, -0.0, np.inf, 1e-310]),
    "loss": np.float64(0.1),
    "labels": np.array([-1, 2**62]),
    "columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "nothing": np.zeros((0, 3), np.float32),
}


@pytest.mark.parametrize("read", [lambda path: read_arrays(str(path)), map_arrays])
def test_arrays_come_back_as_they_were(tmp_path, read):
    path = tmp_path / "arrays.npz"
    write_arrays(path, ARRAYS.items())
    found = read(path)
    assert list(found) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype and found[name].shape == array.shape
        assert found[name].tobytes() == np.asarray(array).tobytes()


def test_numpy_writes_the_same_and_reads_it(tmp_path):
    np.savez(str(tmp_path / "by_numpy.npz"), **{"a": ARRAYS["conv1.weight"]})
    assert np.array_equal(map_arrays(tmp_path / "by_numpy.npz")["a"], ARRAYS["conv1.weight"])


def test_arrays_that_are_mapped_can_be_written_to_in_memory_alone(tmp_path):
    path = tmp_path / "arrays.npz"
    write_arrays(path, ARRAYS.items())
    read_or_map(path, largest=0)["conv1.weight"][:] = 0
    assert np.array_equal(read_or_map(path)["conv1.weight"], ARRAYS["conv1.weight"])


def test_objects_are_not_written(tmp_path):
    with pytest.raises(PluginError, match="only numbers cross"):
        write_arrays(tmp_path / "objects.npz", [("a", np.array([{}, None]))])


@pytest.mark.parametrize("read", [lambda path: read_arrays(str(path)), map_arrays])
def test_pickles_are_refused(tmp_path, read):
    path = tmp_path / "pickled.npz"
    np.savez(str(path), a=np.array([print], dtype=object))
    with pytest.raises(ValueError):
        read(path)["a"]


@pytest.mark.parametrize("read", [lambda path: read_arrays(str(path)), map_arrays])
def test_other_files_are_refused(tmp_path, read):
    np.savez_compressed(str(tmp_path / "small.npz"), a=np.zeros(1000))
    with pytest.raises(ValueError, match="is compressed"):
        read(tmp_path / "small.npz")


@pytest.mark.parametrize("name", ["conv1.weight", "columns", "loss"])
def test_a_flipped_bit_is_found(tmp_path, name):
    path = tmp_path / "arrays.npz"
    write_arrays(path, ARRAYS.items())
    content = bytearray(path.read_bytes())
    content[content.index(ARRAYS[name].tobytes("A")) + 1] ^= 4
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"{name}.npy is damaged"):
        read_arrays(str(path))


def test_a_full_disk_says_what_to_do(tmp_path):
    def arrays():
        yield "a", np.zeros(3)
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(RequestError, match="set TMPDIR"):
        write_arrays(tmp_path / "a.npz", arrays())
