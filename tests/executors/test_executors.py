"""Sweeps on a real Dask cluster of two workers, and by submitit's processes, on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster

from dlb import record
from dlb.adapters import find_adapters
from dlb.catalogue import load_with_file
from dlb.progress import Silent
from dlb.resolver import Resolver
from dlb.settings import Settings
from dlb_measure.executors import sweep_on
from dlb_measure.matrix import axes_of, make_cells
from dlb_measure.plan import Plan
from dlb_submitit.plugin import SubmititExecutor

MLP = Path(__file__).parents[2] / "core" / "tests" / "workloads" / "mlp.toml"
PATIENCE = 240.0
SIZES = (16, 32, 48, 64)


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
    ) as cluster:
        yield cluster


def sweep(cluster: LocalCluster, out: Path) -> subprocess.Popen[str]:
    address = cluster.scheduler_address.removeprefix("tcp://")
    words = ["sweep", MLP, "--on", "example", "--threads", 1, "--steps", 20, "--rounds", 1]
    words += ["--repeats", 0, "--out", out, "--executor", f"dask://{address}"]
    words += ["--vary", f"batch_size={','.join(map(str, SIZES))}"]
    return subprocess.Popen(
        [str(Path(sys.executable).with_name("dlb")), *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def proven(out: Path) -> Counter[int]:
    """How many proven records there are of each batch size."""
    records, errors = record.read_folder(out)
    assert errors == []
    return Counter(each.options.batch_size for each in records if each.proof == "proven")


def test_a_sweep_on_dask(cluster: LocalCluster, tmp_path: Path) -> None:
    process = sweep(cluster, tmp_path)
    told, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, told
    assert proven(tmp_path) == Counter(SIZES)
    assert len(list((tmp_path / "measurements").glob("*.json"))) == len(SIZES)


def test_a_lost_node_costs_its_cells_until_the_command_is_given_again(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    process = sweep(cluster, tmp_path)
    with Client(cluster.scheduler_address) as client:
        deadline = time.monotonic() + PATIENCE
        while not any(client.processing().values()):
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.1)
        pids: dict[str, Any] = client.run(os.getpid)
    os.kill(next(iter(pids.values())), signal.SIGKILL)
    told, _ = process.communicate(timeout=PATIENCE)
    if process.returncode:  # Dask gave a cell up; otherwise it ran it on the other worker
        assert process.returncode == 1 and "the executor lost the cell" in told, told
        again = sweep(cluster, tmp_path)
        told, _ = again.communicate(timeout=PATIENCE)
        assert again.returncode == 0, told
    assert proven(tmp_path) == Counter(SIZES)


def test_a_scheduler_that_is_not_there(tmp_path: Path) -> None:
    words = ["sweep", MLP, "--on", "example", "--vary", "batch_size=16", "--executor"]
    ended = subprocess.run(
        [Path(sys.executable).with_name("dlb"), *words, "dask://127.0.0.1:9", "--out", tmp_path],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    (line,) = [each for each in ended.stderr.splitlines() if each.startswith("dlb:")]
    assert ended.returncode == 2 and "--executor dask://127.0.0.1:9" in line


def test_a_sweep_by_submitit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its local processes stand for Slurm's: jobs are written, started and read in the same way."""
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "results"
    matrix = make_cells(
        Resolver(*load_with_file(str(MLP)), out=out),
        find_adapters(["example"]),
        axes_of({"batch_size": list(SIZES[:2])}),
        Settings(threads=1, steps=20),
    )
    executor = SubmititExecutor("timeout_min=5", "local")
    swept = sweep_on(executor, matrix.cells, Plan(rounds=1, repeats=0), Silent())
    assert swept.passed and proven(out) == Counter(SIZES[:2])
