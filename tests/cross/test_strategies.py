"""Two workers on the same global batches end as one does; a lost peer ends the run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from conftest import ONE_THREAD, ROOT, Dlb

STRATEGIES = [
    ("torch", "ddp"),
    ("tf", "multi_worker_mirrored"),
    ("mxnet", "dist_sync"),
    ("chainer", "chainermn"),
]
#: Workers that hold parts of parameters, and workers that are one process.
OTHERS = [("torch", "fsdp"), ("tf", "mirrored")]
#: What the conformance suite proves in each case, and that differs from those by the framework alone.
MORE = [
    pytest.param(*each, marks=pytest.mark.long)
    for each in (
        ("torch", "tensor_parallel"),
        ("torch", "pipeline"),
        ("mxnet", "local"),
        ("tf", "central_storage"),
    )
]
ASYNCHRONOUS = [
    ("torch", "parameter_server"),
    ("mxnet", "dist_async"),
    ("tf", "parameter_server"),
]


#: Small, and with convolutions.
WORKLOADS = [
    pytest.param(str(ROOT / "core" / "tests" / "workloads" / "mlp.toml"), id="mlp"),
    pytest.param("lenet5", id="lenet5", marks=pytest.mark.long),
]


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize(("adapter", "strategy"), [*STRATEGIES, *OTHERS, *MORE])
def test_two_workers_equal_one(
    dlb: Dlb, tmp_path: Path, adapter: str, strategy: str, workload: str
) -> None:
    words = ("--strategy", strategy, "--workers", "2", "--steps", "12", *ONE_THREAD)
    done = dlb("run", workload, "--on", adapter, *words, "--out", str(tmp_path), "--json")
    assert done.returncode == 0, done.stderr + done.stdout[-3000:]
    checks = json.loads(done.stdout)["certificate"]["checks"]
    distributed = next(one for one in checks if one["check"] == "distributed")
    assert distributed["verdict"] == "passed"
    assert distributed["figures"][0]["relative_l2"] <= 1e-10


@pytest.mark.parametrize(
    ("adapter", "strategy", "workers"),
    [
        *((*each, 2) for each in ASYNCHRONOUS),
        ("mxnet", "dist_async", 1),
        pytest.param("torch", "parameter_server", 1, marks=pytest.mark.long),
        pytest.param("tf", "parameter_server", 1, marks=pytest.mark.long),
    ],
)
def test_an_asynchronous_schedule_is_played_again(
    dlb: Dlb, tmp_path: Path, adapter: str, strategy: str, workers: int
) -> None:
    """One worker is synchronous; of several, the schedule is proven, and the run never is."""
    workload = str(ROOT / "core" / "tests" / "workloads" / "mlp.toml")
    words = ("--strategy", strategy, "--workers", str(workers), "--steps", "12", *ONE_THREAD)
    done = dlb("run", workload, "--on", adapter, *words, "--out", str(tmp_path), "--json")
    said = json.loads(done.stdout)
    checks = {one["check"]: one for one in said["certificate"]["checks"]}
    several = workers > 1
    assert checks["distributed"]["verdict"] == ("not run" if several else "passed")
    assert ("distributed, schedule" in checks) == several
    proven = checks["distributed, schedule" if several else "distributed"]
    assert proven["verdict"] == "passed" and proven["figures"][0]["relative_l2"] <= 1e-10
    assert not any(one["verdict"] == "failed" for one in checks.values())
    (record,) = said["records"]
    assert sum(record["timing"]["staleness"]) == workers * 12
    assert record["proof"] == "unproven"


def test_masks_are_of_each_workers_own_samples(dlb: Dlb) -> None:
    words = ("--strategy", "chainermn", "--workers", "2", *ONE_THREAD, "--json")
    workload = str(Path(__file__).parent / "workloads" / "dropouts.toml")
    done = dlb("verify", workload, "--on", "chainer", *words)
    assert done.returncode == 0, done.stderr + done.stdout[-3000:]
    checks = {one["check"]: one for one in json.loads(done.stdout)["certificate"]["checks"]}
    assert {"dropout", "distributed"} <= checks.keys()
    assert {one["verdict"] for one in checks.values()} == {"passed"}


#: A peer that is killed closes its connections; one that is stopped does not.
LOST = [
    pytest.param(
        *of, sent, id=f"{'-'.join(of)}-{name}", marks=[] if name == default else [pytest.mark.long]
    )
    for of, default in zip(
        [*STRATEGIES, *OTHERS[:1], *ASYNCHRONOUS[:2]], ("killed", "stopped", "", "", "", "", "")
    )
    for name, sent in (("killed", signal.SIGKILL), ("stopped", signal.SIGSTOP))
]


@pytest.mark.parametrize(("adapter", "strategy", "sent"), LOST)
def test_a_lost_peer_ends_the_run(
    home: Path, tmp_path: Path, adapter: str, strategy: str, sent: signal.Signals
) -> None:
    """Whatever the framework would do: noticed within 10 s, all ended within 10 s more."""
    words = ["--strategy", strategy, "--workers", "2", "--epochs", "1000", *ONE_THREAD]
    command = [str(Path(sys.executable).parent / "dlb"), "run", "lenet5", "--on", adapter]
    process = subprocess.Popen(
        [*command, *words, "--out", str(tmp_path)],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "DLB_HOME": str(home), "TMPDIR": str(tmp_path)},
    )
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if f"{adapter}: step" in line:
                break
        else:
            pytest.fail("training never began")
        peer = next(
            one
            for one in workers(process.pid)
            if one.environ().get("DLB_RANK") != "0" or is_second(one)
        )
        os.kill(peer.pid, sent)
        began = time.monotonic()
        process.communicate(timeout=40)
        assert time.monotonic() - began < 25
        assert process.returncode == 1
        assert not alive(tmp_path)
    finally:
        process.kill()


def is_second(process: psutil.Process) -> bool:
    """Whether a launcher made this process the second worker."""
    return process.environ().get("PMI_RANK") == "1"


def workers(pid: int) -> list[psutil.Process]:
    """The workers below a command, the second worker first."""
    found = [
        one
        for one in psutil.Process(pid).children(recursive=True)
        if "dlb_worker" in " ".join(one.cmdline())
        and one.environ().get("DLB_ROLE") == "worker"
        and "mpiexec" not in " ".join(one.cmdline()[:1])
    ]
    return sorted(
        found,
        key=lambda one: one.environ().get("PMI_RANK", one.environ()["DLB_RANK"]),
        reverse=True,
    )


def alive(scratch: Path) -> list[psutil.Process]:
    """Processes that still work in a run's scratch folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TMPDIR") == str(scratch) and process.status() != "zombie":
                found.append(process)
        except psutil.Error:
            continue
    return [one for one in found if one.pid != os.getpid()]
