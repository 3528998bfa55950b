"""What is wrong on purpose: workers, plugins, documents, files and interruptions, for the real ``dlb``.

Each costs one line and its own part of a command. Nothing of it is left, neither a process nor a file.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from hypothesis import settings

ROOT = Path(__file__).parents[2]
# The core's tests are no package.
sys.path += [str(ROOT / "core" / "tests" / "cli"), str(ROOT / "core" / "tests")]
from command_fixtures import dlb, dlb_command  # noqa: E402

__all__ = ["dlb", "dlb_command"]

settings.register_profile("explore", deadline=None)
settings.register_profile("dlb", deadline=None, derandomize=True)
settings.load_profile("dlb")


def pytest_configure() -> None:
    """Let Ctrl-C reach the processes that tests start, as in the core's tests."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
