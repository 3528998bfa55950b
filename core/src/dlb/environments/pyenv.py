"""Finds interpreters that pyenv installed, on PATH or not."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["pyenv_python"]


def pyenv_python(python_range: str) -> Path | None:
    """The newest of pyenv's interpreters in a range of versions; None if there is none.

    pyenv (https://github.com/pyenv/pyenv) keeps each interpreter in a folder of ``$PYENV_ROOT/versions``
    that is named by its version.
    """
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        accepted = SpecifierSet(python_range)
    except InvalidSpecifier:
        return None
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    versions: dict[Version, Path] = {}
    for python in root.glob("versions/*/bin/python"):
        try:
            version = Version(python.parents[1].name)
        except InvalidVersion:
            continue
        if version in accepted and os.access(python, os.X_OK):
            versions[version] = python
    return versions[max(versions)] if versions else None
