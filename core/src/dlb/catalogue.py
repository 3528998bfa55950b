"""Workloads by name: those shipped with dlb, and those of plugins."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dlb.errors import RequestError
from dlb.workload import Workload, files
from dlb_worker.plugins import load_plugins

if TYPE_CHECKING:
    from dlb.imported import ImportedModel
    from dlb.reading import Reading

__all__ = ["load_with_file", "load_workload", "workload_names"]


def _plugin_workloads() -> dict[str, Path]:
    paths: dict[str, Path] = {}
    for paths_by_name in load_plugins().hook.dlb_workloads():
        paths.update((name, Path(path)) for name, path in paths_by_name.items())
    # As of commands: a plugin cannot replace one of dlb's own.
    return {name: path for name, path in paths.items() if name not in files.shipped_names()}


def workload_names() -> list[str]:
    """The sorted names of all workloads."""
    return sorted({*files.shipped_names(), *_plugin_workloads()})


def load_workload(name_or_path: str) -> Workload:
    """A workload by name or path; errors as :func:`load_with_file`."""
    return load_with_file(name_or_path)[0]


def load_with_file(
    name_or_path: str, reading: Reading | None = None
) -> tuple[Workload, ImportedModel | None]:
    """A workload by name or path, and the imported ONNX file if the path names one.

    Args:
        reading: sizes, constants and output that were chosen of an ONNX file.

    Raises:
        RequestError: something was chosen, and it is no ONNX file, or has no such thing.
        UnknownNameError, WorkloadError: as :func:`dlb.workload.files.load`.
        DataError, UnsupportedError: as :func:`dlb.imported.import_file`.
    """
    if not name_or_path.endswith(".onnx"):
        if reading is not None and reading.chosen:
            raise RequestError(
                f"'{name_or_path}' is no .onnx file, and --size, --constant and --output-name are about one"
            )
        return files.load(name_or_path, _plugin_workloads()), None
    from dlb.imported import import_file
    from dlb.reading import AS_IT_IS

    imported = import_file(Path(name_or_path), reading=reading or AS_IT_IS)
    return imported.workload, imported
