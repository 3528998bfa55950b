"""Interpreters of old Pythons."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def interpreter(version: str) -> str | None:
    """An interpreter of a Python, such as 3.8: on the path, or one of pyenv's."""
    found = shutil.which(f"python{version}")
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [found] if found else []
    candidates += [str(each) for each in sorted(versions.glob(f"{version}.*/bin/python"))]
    works = (
        each
        for each in candidates
        if subprocess.run([each, "-c", "import venv"], capture_output=True).returncode == 0
    )
    return next(works, None)
