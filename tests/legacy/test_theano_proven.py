"""Networks of the papers in Theano, on Python 3.8, next to torch: proven, trained and exported."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import ROOT, interpreter

#: A run proves another one.
NETWORKS = [
    pytest.param(each, marks=pytest.mark.long)
    for each in ("theano-cifar10", "lenet5", "theano-mnist", "caffe-mnist", "tensorflow-mnist")
]
#: Compiling takes long the first time.
SECONDS = "3000"
ON = ("--on", "torch", "--on", "theano", "--timeout", SECONDS, "--threads", "1", "--json")

Dlb = Callable[..., dict]


PYTHON = interpreter("3.8")

pytestmark = [
    pytest.mark.skipif(PYTHON is None, reason="there is no Python 3.8"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="Theano compiles with g++"),
]


@pytest.fixture(scope="module")
def dlb(tmp_path_factory: pytest.TempPathFactory) -> Dlb:
    """The command, and an environment of Python 3.8 that holds the adapter as pip installs it."""
    folder = tmp_path_factory.mktemp("theano")
    python = str(folder / "venv" / "bin" / "python")
    subprocess.run([str(PYTHON), "-m", "venv", str(folder / "venv")], check=True)
    packages = [str(ROOT / "worker"), str(ROOT / "plugins" / "dlb-theano")]
    subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True)

    def run(*words: str) -> dict:
        done = subprocess.run(
            [str(Path(sys.executable).with_name("dlb")), *words],
            capture_output=True,
            text=True,
            env={**os.environ, "DLB_HOME": str(folder / "home")},
        )
        assert done.returncode == 0, done.stderr + done.stdout[-3000:]
        return json.loads(done.stdout) if "--json" in words else {}

    run("env", "add", "theano", python)
    return run


@pytest.mark.parametrize("network", NETWORKS)
def test_a_network_is_proven(dlb: Dlb, network: str) -> None:
    document = dlb("verify", network, *ON)
    assert document["proven"] is True


def test_a_run_trains_both_alike(dlb: Dlb, tmp_path: Path) -> None:
    words = ("--data", "fashion-mnist-subset", "--steps", "20", "--rounds", "0")
    document = dlb("run", "caffe-mnist", *ON, *words, "--out", str(tmp_path))
    assert document["proven"] is True
    assert [each["adapter"] for each in document["records"]] == ["torch", "theano"]
