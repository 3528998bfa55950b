"""Workloads by name: dlb's own, and those that plugins bring."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dlb.workload import Workload, files
from dlb_worker.plugins import load_plugins

if TYPE_CHECKING:
    from dlb.imported import ImportedModel

__all__ = ["load_with_file", "load_workload", "workload_names"]


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


def load_with_file(name_or_path: str) -> tuple[Workload, ImportedModel | None]:
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
