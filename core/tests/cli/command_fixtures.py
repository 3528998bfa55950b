"""The real ``dlb`` command, in an environment with the example adapter and a faulty one.

A ``conftest.py`` that imports these fixtures has them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
from dlb_process import TESTS, Dlb

from dlb.environments.uv_process import find_uv


@pytest.fixture(scope="session")
def dlb_command(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``dlb`` of a new environment: the core and both test adapters, third parties from here."""
    folder = tmp_path_factory.mktemp("environment")
    python = folder / "bin" / "python"
    uv = find_uv()
    subprocess.run([uv, "venv", "-q", "--python", sys.executable, str(folder)], check=True)
    packages = [
        TESTS.parents[1] / "worker",
        TESTS.parent,
        TESTS / "example_adapter",
        TESTS / "faulty_adapter",
    ]
    editable = [word for package in packages for word in ("-e", str(package))]
    command = [uv, "pip", "install", "-q", "--no-deps", "--python", str(python), *editable]
    subprocess.run(command, check=True, env=uv_settings())
    site = next(folder.glob("lib/python*/site-packages"))
    here = sysconfig.get_paths()["purelib"]
    (site / "third-parties.pth").write_text(f"import site; site.addsitedir({here!r})\n")
    # Compiled once, as an installer would, wherever the environment keeps third parties.
    (folder / "compiled").mkdir()
    return folder / "bin" / "dlb"


def uv_settings() -> dict[str, str]:
    """pip's folder of wheels in uv's words, where one is set."""
    links = os.environ.get("PIP_FIND_LINKS", "")
    return {"UV_FIND_LINKS": links, **os.environ} if links else dict(os.environ)


@pytest.fixture
def dlb(dlb_command: Path, tmp_path: Path) -> Iterator[Dlb]:
    yield from _cared_for(Dlb(dlb_command, tmp_path))


@pytest.fixture(scope="session")
def proofs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A DLB_HOME whose proofs many tests use."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def dlb_with_proofs(dlb_command: Path, tmp_path: Path, proofs: Path) -> Iterator[Dlb]:
    """``dlb`` of tests that are about what follows the proof: one that a test before has made is used."""
    yield from _cared_for(Dlb(dlb_command, tmp_path, proofs))


def _cared_for(running: Dlb) -> Iterator[Dlb]:
    yield running
    for process in running.alive():
        process.kill()
