"""Workloads and data sets by name: dlb's own, and those that plugins bring."""

from __future__ import annotations

from pathlib import Path

from dlb.plugins import load_plugins
from dlb.workload import Workload, files

__all__ = ["load_workload", "workload_names"]


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
