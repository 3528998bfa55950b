"""Workloads by name: those shipped with dlb, and those of plugins."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from dlb.errors import RequestError, UnsupportedError
from dlb_graph.workload import Workload, files
from dlb_worker.plugins import load_plugins

if TYPE_CHECKING:
    from dlb_graph.files.read import ImportedModel
    from dlb_graph.options import Reading

__all__ = ["import_onnx", "load_with_file", "load_workload", "workload_names"]


def _plugin_workloads() -> dict[str, Path]:
    """Files by name; none of dlb's own names."""
    paths = load_plugins().named("dlb_workloads")
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
        UnknownNameError, WorkloadError: as :func:`dlb_graph.workload.files.load`.
        DataError, UnsupportedError: as :func:`import_onnx`.
    """
    if not name_or_path.endswith(".onnx"):
        if reading is not None and reading.chosen:
            raise RequestError(
                f"'{name_or_path}' is no .onnx file, and --size, --constant and --output-name are about one"
            )
        return files.load(name_or_path, _plugin_workloads()), None
    imported = import_onnx(Path(name_or_path), reading=reading)
    return imported.workload, imported


def import_onnx(
    path: Path, *, any_output: bool = False, reading: Reading | None = None
) -> ImportedModel:
    """An ONNX file as a workload that says in words how it was read.

    Arguments and errors as of :func:`dlb_graph.files.read.import_file`; what differs is in words, too.
    """
    from dlb.proof.checks.file import differences_of
    from dlb.proof.findings import Finding
    from dlb.report.sentences import sentence
    from dlb_graph.comparing.read_facts import RoundedWeights
    from dlb_graph.files.check import LayersDiffer
    from dlb_graph.files.read import import_file
    from dlb_graph.options import AS_IT_IS

    try:
        imported = import_file(path, any_output=any_output, reading=reading or AS_IT_IS)
    except LayersDiffer as error:
        words = [
            error.detail + f": relative distance {error.comparison.figures[0].relative_l2:.1e}"
        ]
        if differs := differences_of(error.comparison):
            words.append(sentence(differs, ""))
        raise UnsupportedError("; ".join(words), path=error.path) from None
    words = [imported.workload.source]
    for fact in imported.facts:
        if not isinstance(fact, RoundedWeights):
            words.append(sentence(Finding(cause=fact), ""))
    workload = msgspec.structs.replace(imported.workload, source="; ".join(words))
    return replace(imported, workload=workload)
