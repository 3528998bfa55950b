"""Files of arrays that a worker writes."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dlb.errors import PluginError, RequestError
from dlb_worker.__main__ import answer
from dlb_worker.arrays import map_arrays, write_arrays
from dlb_worker.calls import Calls


def test_arrays_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "some.npz"
    every = {
        "file": np.arange(6.0).reshape(2, 3),
        "optimizer/fc1.weight.velocity": np.arange(6.0, dtype=np.float32).reshape(2, 3).T,
        "loss": np.float64(0.5),
        "none": np.zeros((0, 2), np.int64),
    }
    write_arrays(path, every.items())
    with np.load(path, allow_pickle=False) as stored:
        assert stored.files == list(every)
        for name, array in every.items():
            np.testing.assert_array_equal(stored[name], array, strict=True)
    np.testing.assert_array_equal(map_arrays(path)["file"], every["file"])


def test_each_is_written_before_the_next_is_asked_for(tmp_path: Path) -> None:
    path, sizes = tmp_path / "some.npz", []

    def made() -> Iterator[tuple[str, np.ndarray]]:
        for number in range(3):
            sizes.append(path.stat().st_size)
            yield str(number), np.zeros(1 << 17)

    write_arrays(path, made())
    assert sizes[0] < 1 << 20 <= sizes[1] < 2 << 20 <= sizes[2]


def test_objects_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PluginError, match="an array of objects; only numbers cross"):
        write_arrays(tmp_path / "some.npz", [("it", np.array([None, 1.0]))])


FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="no device that is always full")


@needs_full
def test_a_full_disk_is_told_with_what_to_do() -> None:
    with pytest.raises(RequestError, match="/dev: No space left on device; set TMPDIR"):
        write_arrays(FULL, [("it", np.zeros(1 << 17))])


@needs_full
def test_what_fails_is_answered_even_if_it_cannot_be_printed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Output goes to a file, whose disk may be what is full."""
    calls = Calls(0, lambda **_: None)
    with FULL.open("wb", buffering=0) as full:
        monkeypatch.setattr("sys.stderr", io.TextIOWrapper(full, write_through=True))
        with pytest.raises(OSError, match="No space left"):
            print("it", file=sys.stderr, flush=True)
        found = answer(calls, {"call": "drop", "arguments": {"model": 1}})
    assert found["error"]["kind"] == "raised" and "KeyError" in found["error"]["message"]
