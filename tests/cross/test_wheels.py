"""``pip install dlb-core dlb-X`` into an empty environment gives a dlb that runs and verifies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from conftest import ADAPTERS, ONE_THREAD, ROOT, run_dlb
from dlb.cli import COMMANDS, PACKAGES
from dlb_graph.layers import LAYERS


def install(uv: str, wheels: Path, folder: Path, *packages: str) -> Path:
    """The interpreter of an environment with these packages, and those that it had before."""
    python = folder / "environment" / "bin" / "python"
    if not python.exists():
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

    # A workload whose data are in another package is proven without them.
    words = ("verify", "caffe-cifar10", "--on", adapter, "--group", "weights", *ONE_THREAD)
    done = run_dlb(tmp_path / "home", *words, python=str(python))
    assert "proving on synthetic samples" in done.stderr, done.stderr + done.stdout
    for command in PACKAGES.keys() - COMMANDS:
        done = run_dlb(tmp_path / "home", command, python=str(python))
        assert done.returncode == 2 and f"pip install {PACKAGES[command]}" in done.stderr
    done = run_dlb(tmp_path / "home", "run", "lenet5", "--rounds", "2", python=str(python))
    assert done.returncode == 2 and "Without the package dlb-measure" in done.stderr
    install(uv, wheels, tmp_path, "dlb-core[all]")
    for command in PACKAGES:
        done = run_dlb(tmp_path / "home", command, "--help", python=str(python))
        assert done.returncode == 0, done.stderr
    assert "--rounds" in run_dlb(tmp_path / "home", "run", "--help", python=str(python)).stdout


def test_what_is_published_is_complete(wheels: Path, uv: str, tmp_path: Path) -> None:
    """Metadata that an index takes, in wheels and source distributions, and nothing else in a wheel."""
    for package in ("worker", "graph", "core", "plugins/dlb-track"):
        subprocess.run(
            [uv, "build", "-q", "--sdist", "-o", str(tmp_path), ROOT / package], check=True
        )
    files = [*map(str, wheels.glob("*.whl")), *map(str, tmp_path.glob("*.tar.gz"))]
    assert len(files) > 12
    for words in (["twine", "check", "--strict", *files], ["check_wheel_contents", str(wheels)]):
        command = [sys.executable, "-m", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr


def test_what_a_model_is_needs_no_core(wheels: Path, uv: str, tmp_path: Path) -> None:
    python = install(uv, wheels, tmp_path, "dlb-graph")
    program = (
        "import importlib, pkgutil, dlb_graph\n"
        "for module in pkgutil.walk_packages(dlb_graph.__path__, 'dlb_graph.'):\n"
        "    importlib.import_module(module.name)\n"
        "from dlb_graph.workload.files import load\n"
        "print(len(load('lenet5').model.nodes))\n"
    )
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and int(done.stdout) > 5, done.stderr


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
    assert about == {*LAYERS, "other tests"}
    passed = [case for case in cases if case.find("skipped") is None]
    assert len(passed) >= 100


def test_environments_can_be_made_from_the_checkout(tmp_path: Path) -> None:
    """All other tests have them from wheels."""
    done = run_dlb(tmp_path, "env", "create", "chainer", "--from", str(ROOT), timeout=1800)
    assert done.returncode == 0, done.stderr
    words = ("run", "lenet5", "--on", "chainer", "--steps", "5", *ONE_THREAD)
    done = run_dlb(tmp_path, *words, "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr + done.stdout
