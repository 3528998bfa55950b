"""Interpreters that pyenv installed, whether or not they are on the path."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["pyenv_python"]


def pyenv_python(python_range: str) -> Path | None:
    """The newest of pyenv's interpreters in a range of versions; None where there is none.

    pyenv (https://github.com/pyenv/pyenv) keeps each in ``$PYENV_ROOT/versions``, in a folder that is
    named after its version.
    """
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        fitting = SpecifierSet(python_range)
    except InvalidSpecifier:
        return None
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    versions: dict[Version, Path] = {}
    for python in root.glob("versions/*/bin/python"):
        try:
            version = Version(python.parents[1].name)
        except InvalidVersion:
            continue
        if version in fitting and os.access(python, os.X_OK):
            versions[version] = python
    return versions[max(versions)] if versions else None
