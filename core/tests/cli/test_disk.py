"""Folders that cannot be written to, and disks that are full."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from dlb_process import Dlb


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MB."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a small file system cannot be mounted here: {error}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(place: Path, leave: int) -> None:
    """Leave so many bytes free."""
    room = os.statvfs(place)
    free = room.f_bavail * room.f_frsize
    (place / "filling").write_bytes(bytes(max(0, free - leave)))


@pytest.mark.parametrize("kind", ["a file", "below a file", "the kernel's"])
def test_out_that_cannot_be_a_folder(dlb: Dlb, kind: str) -> None:
    file = dlb.folder / "file"
    file.write_text("")
    out = {"a file": file, "below a file": file / "results", "the kernel's": Path("/proc/results")}
    ended = dlb.run("--out", out[kind])
    assert ended.status == 2
    assert str(out[kind]) in ended.complaint and "--out" in ended.complaint
    assert len(ended.err.splitlines()) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_out_without_permission(dlb: Dlb) -> None:
    dlb.out.mkdir(mode=0o500)
    ended = dlb.run()
    assert ended.status == 2 and "Permission denied" in ended.complaint


def test_full_disk_at_once(dlb: Dlb, small_disk: Path) -> None:
    fill(small_disk, 0)
    ended = dlb.run("--out", small_disk / "results")
    assert ended.status in (1, 2)
    assert "No space left" in ended.complaint and "--out" in ended.complaint


def test_disk_fills_while_running(dlb: Dlb, small_disk: Path) -> None:
    """The first adapter's record is kept, the next one's cannot be."""
    dlb.out = small_disk / "results"
    first = dlb.run()
    assert first.status == 0, first.err
    (before,) = dlb.records().values()
    fill(small_disk, 4096)
    ended = dlb.run("--on", "faulty", "--seed", 1)
    assert ended.status == 1
    assert "No space left" in ended.complaint and str(small_disk) in ended.complaint
    assert dlb.records() == {"example": before}


@pytest.mark.parametrize(
    "leave", [0, 3_000_000, 7_000_000, 7_300_000, 7_600_000, 7_900_000, 8_200_000]
)
def test_full_scratch(dlb: Dlb, small_disk: Path, leave: int) -> None:
    """Wherever it fills: before any worker, or in the middle, in the core or in a worker."""
    fill(small_disk, leave)
    ended = dlb.run("--on", "example", "--json", more={"TMPDIR": str(small_disk)})
    if ended.status != 0:
        told = ended.err + ended.out
        assert "set TMPDIR" in told, told
        assert "a fault of dlb" not in told
    assert not [path for path in small_disk.iterdir() if path.name.startswith("dlb-")]
    assert ended.document
    dlb.records()
