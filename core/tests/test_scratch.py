"""Folders for what a process needs while it runs, also after one that was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlb.scratch import scratch_folder

OTHER = """
import time
from dlb.scratch import scratch_folder
with scratch_folder() as folder:
    (folder / "inner").mkdir()
    print(folder, flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


@pytest.fixture
def other() -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Another process, and its folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", OTHER], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    assert process.stdout is not None
    yield process, Path(process.stdout.readline().strip())
    process.kill()
    process.wait()


def test_a_folder_is_removed_at_the_end(temporary: Path) -> None:
    with scratch_folder() as folder:
        (folder / "file").write_bytes(b"content")
        assert folder.parent == temporary and folder.name.startswith("dlb-")
        # No other user can enter it, or reach the socket in it.
        assert folder.stat().st_mode & 0o077 == 0
    assert not list(temporary.iterdir())


def test_a_folder_of_a_killed_process_is_removed_by_the_next(
    other: tuple[subprocess.Popen[str], Path],
) -> None:
    process, folder = other
    with scratch_folder():
        assert (folder / "inner").is_dir()  # while the process runs
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert folder.exists()
    with scratch_folder() as mine:
        assert not folder.exists() and mine.exists()


def test_what_nobody_locked_stays(temporary: Path) -> None:
    (temporary / "dlb-results").mkdir()
    (temporary / "dlb-file").write_bytes(b"")
    (temporary / "elsewhere").mkdir()
    (temporary / "elsewhere" / ".dlb-lock").write_bytes(b"")
    (temporary / "dlb-link").symlink_to(temporary / "elsewhere")
    with scratch_folder():
        pass
    assert {path.name for path in temporary.iterdir()} == {
        "dlb-results", "dlb-file", "elsewhere", "dlb-link",
    }  # fmt: skip


def test_an_interrupt_as_it_is_made_leaves_nothing(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It arrives when the folder is there and its lock is not."""
    make = tempfile.mkdtemp

    def interrupted(**options: str) -> str:
        made = make(**options)
        os.kill(os.getpid(), signal.SIGINT)
        return made

    monkeypatch.setattr(tempfile, "mkdtemp", interrupted)
    with pytest.raises(KeyboardInterrupt):
        with scratch_folder():
            pytest.fail("the interrupt came too late")
    assert not list(temporary.glob("dlb-*"))
