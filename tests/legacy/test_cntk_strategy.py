"""CNTK's data-parallel learner on Python 3.6: K workers are one, and a lost one leaves nothing."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import psutil
import pytest

from conftest import ROOT, interpreter
from dlb.errors import WorkerDied
from dlb.execution.workers import start_workers
from dlb.supervision.group import Group, Launch
from dlb_conformance.test_strategies import differences

Start = Callable[[str, int], Group]
PYTHON = interpreter("3.6")
CASES = (
    "equal_shares", "unequal_shares", "clip_binds", "clip_idle", "tied_weights", "weight_decay",
    "dropout", "adam",
)  # fmt: skip

pytestmark = pytest.mark.skipif(PYTHON is None, reason="there is no Python 3.6")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment of Python 3.6 that holds the adapter as pip installs it."""
    folder = tmp_path_factory.mktemp("cntk") / "venv"
    subprocess.run([str(PYTHON), "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    packages = [str(ROOT / "worker"), str(ROOT / "plugins" / "dlb-cntk")]
    for installed in (["pip>=21,<22"], packages):
        subprocess.run([python, "-m", "pip", "install", "-q", *installed], check=True)
    return python


@pytest.fixture(scope="module")
def start(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Workers of a strategy; "" for one worker without one. They serve one case after another."""
    with contextlib.ExitStack() as running:

        @cache
        def started(strategy: str, workers: int) -> Group:
            scratch = tmp_path_factory.mktemp("workers")
            launch = Launch("cntk", python, scratch, strategy=strategy, workers=workers)
            return running.enter_context(start_workers(launch, seed=0)).group

        yield started


def test_the_strategy_claims_these_cases(start: Start) -> None:
    (described,) = start("", 1).call("describe")
    assert [(each["name"], tuple(each["cases"])) for each in described["strategies"]] == [
        ("data_parallel", CASES)
    ]


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("case", CASES, ids="data_parallel-{}".format)
def test_workers_are_one_worker(start: Start, case: str, workers: int) -> None:
    assert not differences(start("data_parallel", workers), start("", 1), case)


@pytest.mark.parametrize("workers", [2, pytest.param(3, marks=pytest.mark.long)])
def test_a_network_is_proven(python: Path, tmp_path: Path, workers: int) -> None:
    dlb = str(Path(sys.executable).with_name("dlb"))
    environment = {**os.environ, "DLB_HOME": str(tmp_path)}
    subprocess.run([dlb, "env", "add", "cntk", str(python)], env=environment, check=True)
    words = ["--strategy", "data_parallel", "--workers", str(workers), "--threads", "1", "--json"]
    done = subprocess.run(
        [dlb, "verify", "lenet5", "--on", "cntk", *words],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, done.stderr + done.stdout[-3000:]
    assert json.loads(done.stdout)["proven"] is True


def test_a_lost_worker_leaves_nothing(python: Path, tmp_path: Path) -> None:
    launch = Launch("cntk", python, tmp_path, strategy="data_parallel", workers=2)
    with pytest.raises(WorkerDied), start_workers(launch, seed=0) as workers:
        shared = {
            mapped.path.removesuffix(" (deleted)")
            for member in workers.group.workers
            for mapped in psutil.Process(member.pid).memory_maps()
            if mapped.path.startswith("/dev/shm/")
        }
        assert shared
        os.kill(workers.group.workers[1].pid, signal.SIGKILL)
        workers.group.call("leave")
    left = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("TMPDIR") == str(tmp_path):
                left.append(process)
    assert not left
    assert not [each for each in shared if Path(each).exists()]
