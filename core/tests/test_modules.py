"""Every module can be imported, on the oldest Python too, which does not run all tests."""

from __future__ import annotations

import importlib
import pkgutil

import dlb


def test_every_module_can_be_imported() -> None:
    for module in pkgutil.walk_packages(dlb.__path__, "dlb."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
