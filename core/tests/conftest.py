"""How the core's tests are run."""

from __future__ import annotations

import signal

from hypothesis import settings

# What a property costs depends on what else the machine does, and is no property.
settings.register_profile("dlb", deadline=None)
settings.load_profile("dlb")


def pytest_configure() -> None:
    """Let Ctrl-C reach the processes that tests start: what was itself started in the background of a
    script has it ignored, and its children inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
