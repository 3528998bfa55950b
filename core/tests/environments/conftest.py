"""A checkout in miniature: real packages, a real uv, real virtual environments."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import dlb
from dlb.environments.uv_process import find_uv

# What runs these tests, so that no other Python is looked for or fetched.
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"

WORKER = """\
[build-system]
requires = ["hatchling>=1.24"]
build-backend = "hatchling.build"
[project]
name = "dlb-worker"
version = "{version}"
requires-python = ">=3.6"
dependencies = ["importlib-metadata"]
[tool.hatch.build.targets.wheel]
packages = ["src/dlb_worker"]
"""
MINI = """\
[build-system]
requires = ["hatchling>=1.24"]
build-backend = "hatchling.build"
[project]
name = "dlb-mini"
version = "0.0.1"
requires-python = "{python}"
dependencies = ["dlb-worker", "packaging"]
[project.entry-points.dlb]
mini = "dlb_mini"
[tool.hatch.build.targets.wheel]
packages = ["src/dlb_mini"]
"""


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _make_checkout(
    folder: Path, *, version: str = dlb.__version__, python: str = f"=={PYTHON}.*"
) -> Path:
    _write(folder / "core" / "pyproject.toml", "")
    _write(folder / "worker" / "pyproject.toml", WORKER.format(version=version))
    _write(folder / "worker/src/dlb_worker/__init__.py", f"__version__ = {version!r}\n")
    mini = folder / "plugins" / "dlb-mini"
    _write(mini / "pyproject.toml", MINI.format(python=python))
    _write(mini / "src" / "dlb_mini" / "__init__.py", "FLAVOUR = 'first'\n")
    return folder


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A DLB_HOME of the test's own."""
    place = tmp_path / "home"
    monkeypatch.setenv("DLB_HOME", str(place))
    monkeypatch.setenv("DLB_PROVISION_TIMEOUT", "300")
    return place


@pytest.fixture
def make_checkout() -> Callable[..., Path]:
    return _make_checkout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return _make_checkout(tmp_path / "a checkout")


@pytest.fixture
def wheels(tmp_path: Path, checkout: Path) -> Path:
    folder = tmp_path / "wheels"
    for package in (checkout / "worker", checkout / "plugins" / "dlb-mini"):
        command = [find_uv(), "build", "--wheel", "--out-dir", str(folder), str(package)]
        subprocess.run(command, check=True, capture_output=True)
    return folder
