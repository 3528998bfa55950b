"""What makes an environment another one, for proofs that are kept."""

from __future__ import annotations

import os
import venv
from pathlib import Path

import pytest

from dlb.environments.inspection import fingerprint


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A source tree with the metadata that setuptools leaves in it."""
    folder = tmp_path / "src"
    for name in ("package/module.py", "package.egg-info/PKG-INFO"):
        path = folder / name
        path.parent.mkdir(parents=True)
        path.write_text("version = 1\n")
    return folder


@pytest.fixture
def python(tmp_path: Path, source: Path) -> Path:
    """The interpreter of an environment that has the source tree installed editable."""
    folder = tmp_path / "environment"
    venv.create(folder, with_pip=False)
    site = next(folder.glob("lib/python*/site-packages"))
    (site / "editable.pth").write_text(f"{source}\n")
    return folder / "bin" / "python"


def touch(path: Path) -> None:
    """As if it was written again now: not in the same tick of the file system's clock."""
    changed = path.stat().st_mtime_ns + 10**9
    os.utime(path, ns=(changed, changed))


def test_a_build_of_a_checkout_changes_nothing(python: Path, source: Path) -> None:
    before = fingerprint(python)
    assert before
    touch(source / "package.egg-info" / "PKG-INFO")
    assert fingerprint(python) == before


@pytest.mark.parametrize("name", ["package/module.py", "package.egg-info/PKG-INFO"])
def test_what_was_written_anew_is_another_environment(
    python: Path, source: Path, name: str
) -> None:
    before = fingerprint(python)
    path = source / name
    path.write_text("version = 2\n")  # of the same size
    touch(path)
    assert fingerprint(python) != before


def test_an_interpreter_that_does_not_run_has_none(tmp_path: Path) -> None:
    assert fingerprint(tmp_path / "python") == ""
