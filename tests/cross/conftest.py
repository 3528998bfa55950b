"""Fixtures of what crosses packages: wheels of every package, environments made from them."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dlb.adapters import AdapterEnvironment, find_adapters
from dlb.cli import PACKAGES
from dlb.execution.run import run
from dlb.execution.workers import Workers, start_workers
from dlb.progress import Silent
from dlb.proof.certificate import CHECK_GROUPS, Certificate, CheckGroup
from dlb.request import TRAJECTORY_STEPS, Request
from dlb.resolver import VERIFY_STEPS
from dlb.samples import replace_missing_data
from dlb.supervision import Launch
from dlb_graph.files.read import ImportedModel
from dlb_graph.workload import Workload

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "core" / "tests" / "cli"))
from dlb_process import server_of  # noqa: E402 - the core's tests are no package

ADAPTERS = ("torch", "tf", "mxnet", "chainer")
#: Tests run beside each other, and frameworks whose threads wait for a processor crawl.
ONE_THREAD = ("--threads", "1")
Dlb = Callable[..., subprocess.CompletedProcess[str]]
Prove = Callable[..., Certificate]


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
        "graph",
        "core",
        "conformance",
        *(f"plugins/{package}" for package in sorted({*PACKAGES.values(), "dlb-track"})),
        *(f"plugins/dlb-{adapter}" for adapter in ADAPTERS),
    ):
        subprocess.run(
            [uv, "build", "-q", "--wheel", "-o", str(folder), str(ROOT / package)], check=True
        )
    for name in ("constraints.txt", "build-constraints.txt"):
        (folder / name).write_bytes((ROOT / name).read_bytes())
    return folder


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory, wheels: Path) -> Path:
    """A DLB_HOME in which every adapter has an environment, made from the wheels."""
    folder = tmp_path_factory.mktemp("home")
    done = run_dlb(folder, "env", "create", *ADAPTERS, "--from", str(wheels), timeout=3000)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="session")
def dlb(home: Path) -> Dlb:
    """The command, with every adapter's environment there."""
    return lambda *words, **more: run_dlb(home, *words, **more)


@pytest.fixture(scope="session")
def environments(home: Path) -> list[AdapterEnvironment]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DLB_HOME", str(home))
        return find_adapters(ADAPTERS)


@pytest.fixture(scope="session")
def workers(
    environments: list[AdapterEnvironment], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Workers]]:
    """Workers of every adapter, for one proof after the other."""
    with ExitStack() as stack:
        started = {}
        for one in environments:
            launch = Launch(one.adapter, one.python, tmp_path_factory.mktemp(one.adapter))
            started[one.adapter] = stack.enter_context(start_workers(launch, seed=0))
        yield started


@pytest.fixture(scope="session")
def prove(environments: list[AdapterEnvironment], workers: dict[str, Workers]) -> Prove:
    """Proves a workload on every adapter, as ``dlb verify`` does, in workers that were started once."""

    def prove(
        workload: Workload,
        imported: ImportedModel | None = None,
        *,
        groups: Collection[CheckGroup] = CHECK_GROUPS,
        steps: int = VERIFY_STEPS,
        trajectory_steps: int = TRAJECTORY_STEPS,
        seed: int = 0,
    ) -> Certificate:
        request = Request(
            workload=replace_missing_data(workload, warnings.warn),
            environments=environments,
            out=None,
            batch_size=workload.batch_size,
            steps=steps,
            warmup=0,
            threads=1,
            seed=seed,
            command="verify",
            groups=frozenset(groups),
            trajectory_steps=trajectory_steps,
            imported=imported,
        )
        return run(request, Silent(), workers).certificate

    return prove


def run_dlb(
    home: Path, *words: str, timeout: float = 1200, python: str = "", **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run ``dlb`` with a DLB_HOME; without rounds, if none are asked for.

    It is a child of a process that has imported dlb, or, with ``python``, a new one of that interpreter's
    environment.
    """
    if words[0] == "run" and "--rounds" not in words and not python:
        words += ("--rounds", "0")
    environment = {**os.environ, "DLB_HOME": str(home), **variables}
    command = Path(python or sys.executable).parent / "dlb"
    if python:
        return subprocess.run(
            [str(command), *words],
            capture_output=True,
            text=True,
            timeout=timeout,
            env=environment,
        )
    ended = server_of(command).run(words, environment, Path.cwd(), timeout)
    return subprocess.CompletedProcess(words, ended.status, ended.out, ended.err)
