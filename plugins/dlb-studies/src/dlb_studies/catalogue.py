"""Studies by name: those shipped with dlb, and those of plugins."""

from __future__ import annotations

from pathlib import Path

from dlb.errors import UnknownNameError
from dlb_studies.study import Study, read
from dlb_worker.plugins import load_plugins

__all__ = ["load_study", "study_paths"]


def study_paths() -> dict[str, Path]:
    """The file of each study, by name."""
    return dict(sorted(load_plugins().named("dlb_studies").items()))


def load_study(name_or_path: str) -> tuple[Study, Path]:
    """A study by name, or by the path of its file, with that path.

    Raises:
        UnknownNameError: there is no study of that name.
        RequestError: the file is not a study.
    """
    paths = study_paths()
    if name_or_path in paths:
        return read(paths[name_or_path]), paths[name_or_path]
    if name_or_path.endswith(".toml"):
        return read(Path(name_or_path)), Path(name_or_path)
    raise UnknownNameError("study", name_or_path, paths, "or give the path of a .toml file")
