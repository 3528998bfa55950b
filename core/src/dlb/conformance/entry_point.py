"""What every run of pytest loads where dlb-core is installed: it brings in the kit when asked to.

The kit's options are named as other projects' options may be, and its plugin imports NumPy. So
neither is there unless the command line names the kit's tests.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import pytest

PACKAGE = __package__
PLUGIN = f"{PACKAGE}.plugin"
FOLDER = os.path.dirname(os.path.realpath(__file__))  # noqa: PTH120


def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> None:
    if is_asked_for(args, str(early_config.invocation_params.dir)):
        early_config.pluginmanager.import_plugin(PLUGIN)


def is_asked_for(arguments: Iterable[str], folder: str) -> bool:
    """Whether one of pytest's arguments is the kit, a module or a test of it, or its path."""
    for argument in arguments:
        place = argument.partition("::")[0]
        if place == PACKAGE or place.startswith(f"{PACKAGE}."):
            return True
        path = os.path.realpath(os.path.join(folder, place))  # noqa: PTH118
        if path == FOLDER or path.startswith(FOLDER + os.sep):
            return True
    return False
