"""What every run of pytest loads where dlb-core is installed: it brings in the suite when asked to.

The suite's options are named as other projects' options may be, and its plugin imports NumPy. So
neither is there unless the command line names the suite's tests.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

PACKAGE = __package__
PLUGIN = f"{PACKAGE}.plugin"
FOLDER = Path(__file__).resolve().parent


def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> None:
    # Not only the places among them: pytest 8 does not find those behind an option that it does
    # not know yet. Where the suite is brought in by mistake, it has no tests and does nothing.
    if is_asked_for(args, early_config.invocation_params.dir):
        early_config.pluginmanager.import_plugin(PLUGIN)


def is_asked_for(arguments: Iterable[str], folder: Path) -> bool:
    """Whether one of these is the suite, a module or a test of it, by name or by path."""
    for argument in arguments:
        name = argument.partition("::")[0]
        path = (folder / name).resolve()
        if f"{name}.".startswith(f"{PACKAGE}.") or path == FOLDER or FOLDER in path.parents:
            return True
    return False
