"""``pip install dlb-core dlb-X`` into an empty environment gives a dlb that runs and verifies."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from conftest import ADAPTERS, run_dlb


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_core_and_an_adapter_are_enough(
    wheels: Path, uv: str, tmp_path: Path, adapter: str
) -> None:
    environment = tmp_path / "environment"
    python = environment / "bin" / "python"
    subprocess.run([uv, "venv", "-q", "--python", "3.11", str(environment)], check=True)
    links = os.environ.get("UV_FIND_LINKS", "")
    install = [uv, "pip", "install", "-q", "--python", str(python), "--find-links", str(wheels)]
    for link in filter(None, links.split(",")):
        install += ["--find-links", link]
    install += ["--constraint", str(wheels / "constraints.txt")]
    install += ["--build-constraints", str(wheels / "build-constraints.txt")]
    subprocess.run([*install, "dlb-core", f"dlb-{adapter}"], check=True)

    words = ("run", "lenet5", "--steps", "20", "--out", str(tmp_path / "out"), "--json")
    done = run_dlb(tmp_path / "home", *words, python=str(python))
    assert done.returncode == 0, done.stderr + done.stdout[-3000:]
    (one,) = json.loads(done.stdout)["records"]
    assert one["adapter"] == adapter and one["proof"] == "proven"

    done = run_dlb(tmp_path / "home", "verify", "lenet5", "--on", adapter, python=str(python))
    assert done.returncode == 0, done.stderr + done.stdout


def test_environments_can_be_made_from_wheels(wheels: Path, tmp_path: Path) -> None:
    done = run_dlb(tmp_path, "env", "create", "torch", "--from", str(wheels), timeout=1800)
    assert done.returncode == 0, done.stderr
    done = run_dlb(
        tmp_path, "run", "lenet5", "--on", "torch", "--steps", "5", "--out", str(tmp_path / "out")
    )
    assert done.returncode == 0, done.stderr + done.stdout
