"""Workloads and data sets by name: dlb's own, and those that plugins bring."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dlb.errors import UnknownNameError
from dlb.workload import Workload, files
from dlb_worker.plugins import load_plugins

if TYPE_CHECKING:
    from dlb.data.catalogue import DataSetDescription
    from dlb.imported import Imported

__all__ = ["data_set", "data_sets", "load_with_file", "load_workload", "workload_names"]


def _of_plugins() -> dict[str, Path]:
    found: dict[str, Path] = {}
    for some in load_plugins().hook.dlb_workloads():
        found.update(some)
    return found


def workload_names() -> list[str]:
    """Names of every workload."""
    return sorted({*files.shipped_names(), *_of_plugins()})


def load_workload(name_or_path: str) -> Workload:
    """A workload by name or path; errors as :func:`load_with_file`."""
    return load_with_file(name_or_path)[0]


def load_with_file(name_or_path: str) -> tuple[Workload, Imported | None]:
    """A workload by name or path, and the ONNX file if it is read from one.

    Raises:
        UnknownNameError, WorkloadError: as :func:`dlb.workload.files.load`.
        DataError, UnsupportedError: as :func:`dlb.imported.import_file`.
    """
    if not name_or_path.endswith(".onnx"):
        return files.load(name_or_path, _of_plugins()), None
    from dlb.imported import import_file

    imported = import_file(Path(name_or_path))
    return imported.workload, imported


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
