"""Files of arrays that a worker writes."""

from __future__ import annotations

import io
import os
import struct
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlb.errors import PluginError, RequestError, UnsupportedError, WorkerError
from dlb.supervision.remote import Trained, check_exported, read_written
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


def save(**arrays: Any) -> Callable[[Path], object]:
    return lambda path: np.savez(path.open("wb"), **arrays)


def member(shape: str, method: int = 0, flags: int = 0) -> Callable[[Path], object]:
    """A zip of one array of 8 bytes, whose headers state something else."""
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n".encode()

    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            length = struct.pack("<H", len(header))
            archive.writestr("a.npy", b"\x93NUMPY\x01\x00" + length + header + bytes(8))
        content = bytearray(path.read_bytes())
        central = content.find(b"PK\x01\x02")
        for place in (6, central + 8):
            content[place] |= flags
        for place in (8, central + 10):
            content[place] |= method
        path.write_bytes(content)

    return write


#: What stands where a worker should have written arrays, and what is said of it.
NO_ARRAYS: dict[str, tuple[Callable[[Path], object], str]] = {
    "nothing": (lambda path: None, "No such file"),
    "empty": (lambda path: path.write_bytes(b""), "not a whole .npz file"),
    "pipe": (os.mkfifo, "not a file"),
    "folder": (lambda path: path.mkdir(), "not a file"),
    "link": (lambda path: path.symlink_to("/etc/passwd"), "a link, not a file"),
    "endless": (lambda path: path.symlink_to("/dev/zero"), "a link, not a file"),
    "objects": (save(a=np.array([{}], object)), "not a whole .npz file of plain numbers"),
    "complex": (save(a=np.zeros(2, "c8")), "'a' is no array of numbers, but of complex64"),
    "structured": (save(a=np.zeros(2, [("x", "f4")])), "'a' is no array of numbers"),
    "text": (save(a=np.array("x")), "'a' is no array of numbers"),
    "bytes": (save(a=np.array(b"x")), "'a' is no array of numbers"),
    "void": (save(a=np.zeros(2, "V8")), "'a' is no array of numbers"),
    "dates": (save(a=np.zeros(2, "M8[s]")), "'a' is no array of numbers"),
    "large objects": (save(a=np.zeros(1 << 18, "V8")), "'a' is no array of numbers"),
    "too little": (member("(10,)"), "not a whole .npz file"),
    "memory": (member("(10**15,)".replace("10**15", str(10**15))), "not a whole .npz file"),
    "negative": (member("(-5,)"), "not a whole .npz file"),
    "no header": (member("((("), "not a whole .npz file"),
    "encrypted": (member("(1,)", flags=1), "not a whole .npz file"),
    "method": (member("(1,)", method=99), "not a whole .npz file"),
}


@pytest.mark.parametrize(("write", "says"), NO_ARRAYS.values(), ids=list(NO_ARRAYS))
def test_what_is_no_file_of_numbers_is_a_fault_of_the_worker(
    tmp_path: Path, write: Callable[[Path], object], says: str
) -> None:
    path = tmp_path / "written.npz"
    write(path)
    with pytest.raises(WorkerError, match=says):
        read_written(path, "example")


def test_numbers_are_read_in_memory_and_in_place(tmp_path: Path) -> None:
    for size in (3, 1 << 18):
        save(real=np.ones(size), whole=np.arange(3), mask=np.array([True]))(tmp_path / "x.npz")
        arrays = read_written(tmp_path / "x.npz", "example")
        assert arrays["real"].shape == (size,) and set(arrays) == {"real", "whole", "mask"}
        with pytest.raises(WorkerError, match="has no array 'loss'"):
            arrays["loss"]


@pytest.mark.parametrize(
    "make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/etc/passwd"), lambda path: None]
)
def test_what_is_exported_is_a_file(tmp_path: Path, make: Callable[[Path], object]) -> None:
    path = tmp_path / "exported.onnx"
    make(path)
    with pytest.raises(UnsupportedError, match="what was exported cannot be read"):
        check_exported(path)
    assert not os.path.lexists(path)


#: Times and losses of three steps that no clock shows, and what is said of them.
NO_TIMES: list[tuple[dict[str, Any], str]] = [
    ({"step_seconds": [-1.0, 1.0, 1.0]}, "step 0 took -1 s"),
    ({"step_seconds": [1.0, 0.0, 1.0]}, "step 1 took 0 s"),
    ({"step_seconds": [1.0, 1.0, 1e-300]}, "step 2 took 1e-300 s"),
    ({"step_seconds": [1.0, 1.0, np.nan]}, "'step_seconds' holds NaN or infinity"),
    ({"step_seconds": [1.0, 1.0, 1e308]}, "'step_seconds' holds more than 1e\\+09 s"),
    ({"data_seconds": [0.0, -1.0, 0.0]}, "step 1 waited -1 s"),
    ({"data_seconds": [0.0, np.inf, 0.0]}, "'data_seconds' holds NaN or infinity"),
    ({"untold_seconds": [0.0, np.nan, 0.0]}, "'untold_seconds' holds NaN or infinity"),
    ({"step_seconds": [1.0, 1.0]}, "'step_seconds' of float64 \\[2\\]; 3 real numbers are needed"),
    ({"losses": [[1.0]] * 3}, "'losses' of float64 \\[3, 1\\]"),
    ({"losses": [1, 2, 3]}, "'losses' of int64"),
]


@pytest.mark.parametrize(("changes", "says"), NO_TIMES)
def test_times_that_no_clock_shows_are_refused(changes: dict[str, Any], says: str) -> None:
    right = {"step_seconds": [1e-3] * 3, "data_seconds": [0.0] * 3, "losses": [1.0, np.nan, 2.0]}
    arrays = {name: np.array(each) for name, each in right.items()}
    assert Trained([{}], [arrays], 3, "example", (1,)).accounted_seconds.tolist() == [[1e-3] * 3]
    arrays.update({name: np.array(each) for name, each in changes.items()})
    with pytest.raises(WorkerError, match=says):
        Trained([{}], [arrays], 3, "example", (1,))


FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="no device that is always full")


@needs_full
def test_a_full_disk_is_told_with_what_to_do() -> None:
    with pytest.raises(RequestError, match="/dev: No space left on device; set TMPDIR"):
        write_arrays(FULL, [("it", np.zeros(1 << 17))])


class NoText(Exception):
    def __str__(self) -> str:
        raise ValueError


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (SystemExit(3), "SystemExit: 3"),
        (NoText(), "NoText: its text cannot be made"),
        (ValueError("x" * 10**6), "ValueError: xxx"),
    ],
)
def test_whatever_is_raised_is_an_answer(error: BaseException, says: str) -> None:
    class Raises:
        def answer(self, call: str, arguments: dict[str, Any]) -> dict[str, Any]:
            raise error

    found = answer(Raises(), {"call": "build"})["error"]
    assert found["kind"] == "raised" and found["message"].startswith(says)
    assert len(found["message"]) < 600


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
