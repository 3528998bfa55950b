"""How tests of the core and of its products are run; each ``conftest.py`` that imports this runs them so."""

from __future__ import annotations

import signal

from hypothesis import settings

__all__ = ["pytest_configure"]

# What a property costs depends on what else the machine does, and is no property. The same examples
# each time, so that a change is judged by what it changes; --hypothesis-profile=explore draws others.
settings.register_profile("explore", deadline=None)
settings.register_profile("dlb", deadline=None, derandomize=True)
settings.load_profile("dlb")


def pytest_configure() -> None:
    """Let Ctrl-C reach the processes that tests start: what was itself started in the background of a
    script has it ignored, and its children inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
