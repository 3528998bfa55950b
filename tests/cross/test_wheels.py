"""``pip install dlb-core dlb-X`` into an empty environment gives a dlb that runs and verifies."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from conftest import ADAPTERS, ONE_THREAD, ROOT, run_dlb
from dlb.workload import layer_types


def install(uv: str, wheels: Path, folder: Path, *packages: str) -> Path:
    """The interpreter of a new environment with these packages."""
    python = folder / "environment" / "bin" / "python"
    subprocess.run([uv, "venv", "-q", "--python", "3.11", str(python.parents[1])], check=True)
    links = os.environ.get("UV_FIND_LINKS", "")
    command = [uv, "pip", "install", "-q", "--python", str(python), "--find-links", str(wheels)]
    for link in filter(None, links.split(",")):
        command += ["--find-links", link]
    command += ["--constraint", str(wheels / "constraints.txt")]
    command += ["--build-constraints", str(wheels / "build-constraints.txt")]
    subprocess.run([*command, *packages], check=True)
    return python


@pytest.mark.parametrize(
    "adapter", ["torch", *(pytest.param(each, marks=pytest.mark.long) for each in ADAPTERS[1:])]
)
def test_a_core_and_an_adapter_are_enough(
    wheels: Path, uv: str, tmp_path: Path, adapter: str
) -> None:
    python = install(uv, wheels, tmp_path, "dlb-core", f"dlb-{adapter}")
    words = ("run", "lenet5", "--steps", "20", *ONE_THREAD, "--out", str(tmp_path / "out"))
    done = run_dlb(tmp_path / "home", *words, "--json", python=str(python))
    assert done.returncode == 0, done.stderr + done.stdout[-3000:]
    (one,) = json.loads(done.stdout)["records"]
    assert one["adapter"] == adapter and one["proof"] == "proven"

    words = ("verify", "lenet5", "--on", adapter, *ONE_THREAD)
    done = run_dlb(tmp_path / "home", *words, python=str(python))
    assert done.returncode == 0, done.stderr + done.stdout


def test_the_conformance_suite_tests_an_adapter(wheels: Path, uv: str, tmp_path: Path) -> None:
    """For an adapter of someone else, from a folder with nothing in it."""
    example = str(ROOT / "core" / "tests" / "example_adapter")
    python = install(uv, wheels, tmp_path, "dlb-core", "dlb-conformance", example)
    empty = tmp_path / "empty"
    empty.mkdir()
    words = ["-m", "pytest", "--pyargs", "dlb_conformance", "--adapter", "example", "-W", "error"]
    words += ["-k", "test_layers.py or test_export.py", "--junitxml", str(tmp_path / "results.xml")]
    done = subprocess.run([python, *words], cwd=empty, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    cases = list(ElementTree.parse(tmp_path / "results.xml").iter("testcase"))
    about = {each.get("value") for case in cases for each in case.iter("property")}
    assert about == {*layer_types(), "other tests"}
    passed = [case for case in cases if case.find("skipped") is None]
    assert len(passed) >= 100


def test_environments_can_be_made_from_wheels(wheels: Path, tmp_path: Path) -> None:
    done = run_dlb(tmp_path, "env", "create", "torch", "--from", str(wheels), timeout=1800)
    assert done.returncode == 0, done.stderr
    words = ("run", "lenet5", "--on", "torch", "--steps", "5", *ONE_THREAD)
    done = run_dlb(tmp_path, *words, "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr + done.stdout
