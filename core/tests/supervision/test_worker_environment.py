"""What workers inherit of this process's environment variables."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest

from dlb.supervision import Launch, worker_group


@pytest.mark.parametrize("own", [True, False])
def test_environments_of_dlb_itself_keep_what_python_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    """A user who wants no bytecode gets none, but in what dlb made."""
    folder = tmp_path / ("home/environments/example" if own else "elsewhere")
    (tmp_path / "scratch").mkdir()
    folder.mkdir(parents=True)
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    monkeypatch.setenv("DLB_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    with worker_group(Launch("example", python, tmp_path / "scratch")) as group:
        (worker,) = group.workers
        assert ("PYTHONDONTWRITEBYTECODE" in psutil.Process(worker.pid).environ()) is not own
