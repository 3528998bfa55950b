"""Fixtures of what crosses packages: wheels of every package, environments made from them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ADAPTERS = ("torch", "tf", "mxnet", "chainer")
#: Tests run beside each other, and frameworks whose threads wait for a processor crawl.
ONE_THREAD = ("--threads", "1")
Dlb = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def uv() -> str:
    from uv import find_uv_bin

    return find_uv_bin()


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory, uv: str) -> Path:
    """A folder with a wheel of each package, and the versions to test with."""
    folder = tmp_path_factory.mktemp("wheels")
    for package in (
        "worker",
        "core",
        "conformance",
        *(f"plugins/dlb-{adapter}" for adapter in ADAPTERS),
    ):
        subprocess.run(
            [uv, "build", "-q", "--wheel", "-o", str(folder), str(ROOT / package)], check=True
        )
    for name in ("constraints.txt", "build-constraints.txt"):
        (folder / name).write_bytes((ROOT / name).read_bytes())
    return folder


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A DLB_HOME in which every adapter has an environment, made from the checkout."""
    folder = tmp_path_factory.mktemp("home")
    done = run_dlb(folder, "env", "create", *ADAPTERS, "--from", str(ROOT), timeout=3000)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="session")
def dlb(home: Path) -> Dlb:
    """The command, with every adapter's environment there."""
    return lambda *words, **more: run_dlb(home, *words, **more)


def run_dlb(
    home: Path, *words: str, timeout: float = 1200, python: str = sys.executable, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run ``dlb`` of an interpreter's environment with a DLB_HOME; without rounds, if none are asked for."""
    if words[0] == "run" and "--rounds" not in words:
        words += ("--rounds", "0")
    command = Path(python).parent / "dlb"
    return subprocess.run(
        [str(command), *words],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, "DLB_HOME": str(home), **variables},
    )
