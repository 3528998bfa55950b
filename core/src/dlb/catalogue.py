"""Workloads and data sets by name: dlb's own, and those that plugins bring."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dlb.errors import UnknownNameError
from dlb.plugins import load_plugins
from dlb.workload import Workload, files

if TYPE_CHECKING:
    from dlb.data.catalogue import DataSetDescription

__all__ = ["data_set", "data_sets", "load_workload", "workload_names"]


def _of_plugins() -> dict[str, Path]:
    found: dict[str, Path] = {}
    for some in load_plugins().hook.dlb_workloads():
        found.update(some)
    return found


def workload_names() -> list[str]:
    """Names of every workload."""
    return sorted({*files.shipped_names(), *_of_plugins()})


def load_workload(name_or_path: str) -> Workload:
    """A workload by name or path; errors as :func:`dlb.workload.files.load`."""
    return files.load(name_or_path, _of_plugins())


def data_sets() -> dict[str, DataSetDescription]:
    """Every data set by name, the default one first; dlb's own names are not given away."""
    from dlb.data import catalogue

    found = {name: catalogue.describe(name) for name in catalogue.data_set_names()}
    for some in load_plugins().hook.dlb_datasets():
        for one in some:
            found.setdefault(one.name, one)
    return found


def data_set(name: str) -> DataSetDescription:
    """The data set of that name.

    Raises:
        UnknownNameError: there is none.
    """
    found = data_sets()
    if name not in found:
        from dlb.data.local import LOCAL

        raise UnknownNameError("data set", name, [*found, *LOCAL])
    return found[name]
