"""Fixtures of tests of the command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from command_fixtures import dlb, dlb_command
from dlb_process import TESTS

__all__ = ["dlb", "dlb_command"]


@pytest.fixture
def write_workload(tmp_path: Path) -> Callable[[str, str], Path]:
    """The small workload with one piece of its text replaced."""

    def write(old: str, new: str) -> Path:
        text = (TESTS / "workloads" / "mlp.toml").read_text()
        assert old in text
        path = tmp_path / "changed.toml"
        path.write_text(text.replace(old, new))
        return path

    return write
