"""Whichever process of a strategy is lost, and however: all end; no process, port or shared memory is left."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from dlb.adapters import AdapterEnvironment
from dlb.errors import DlbError
from dlb.execution.workers import start_workers
from dlb.supervision.group import Group, Launch
from dlb.supervision.remote import RemoteModel, write_arrays
from dlb_graph.workload.initial import initial_weights
from dlb_graph.workload.strategy_cases import STRATEGY_CASES
from test_strategies import alive

#: By adapter and strategy, the processes of two workers. Those of one process are replicas.
ROLES = {
    ("torch", "ddp"): ("worker 0", "worker 1"),
    ("torch", "fsdp"): ("worker 0", "worker 1"),
    ("torch", "tensor_parallel"): ("worker 0", "worker 1"),
    ("torch", "pipeline"): ("worker 0", "worker 1"),
    ("torch", "local_sgd"): ("worker 0", "worker 1"),
    ("tf", "multi_worker_mirrored"): ("worker 0", "worker 1"),
    ("tf", "mirrored"): ("worker 0",),
    ("tf", "central_storage"): ("worker 0",),
    ("tf", "parameter_server"): ("worker 0", "server 0", "trainer 0", "trainer 1"),
    ("mxnet", "dist_sync"): ("worker 0", "worker 1", "scheduler 0", "server 0"),
    ("mxnet", "local"): ("worker 0",),
    ("mxnet", "device"): ("worker 0",),
    ("chainer", "chainermn"): ("worker 0", "worker 1"),
}
#: A process that is lost is noticed in so many seconds, and all have ended in so many more.
NOTICED, ENDED = 10.0, 10.0
STEPS = 200_000


def lost() -> Iterator[Any]:
    """Each process of each strategy, and each way to lose it; one of each kind by default."""
    usual = {"ddp-worker 1-withheld", "dist_sync-server 0-stopped", "local-worker 0-killed"}
    for (adapter, strategy), roles in ROLES.items():
        for role in roles:
            for way in ("killed", "stopped", "withheld"):
                # mpiexec starts all workers or none, and one worker has no peer that would be asked.
                alone = [each for each in roles if each.startswith("worker")] == [role]
                if way == "withheld" and (alone or strategy == "chainermn"):
                    continue
                name = f"{strategy}-{role}-{way}"
                marks = () if name in usual else pytest.mark.long
                yield pytest.param(adapter, strategy, role, way, id=name, marks=marks)


@pytest.mark.parametrize(("adapter", "strategy", "role", "way"), list(lost()))
def test_a_lost_process_leaves_nothing(
    environments: list[AdapterEnvironment],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    adapter: str,
    strategy: str,
    role: str,
    way: str,
) -> None:
    (python,) = [one.python for one in environments if one.adapter == adapter]
    # Peers of one that never came wait for it, and a start may take long where others work.
    seconds = NOTICED if way == "withheld" else 300.0
    launch = Launch(adapter, python, tmp_path, strategy=strategy, workers=2, call_seconds=seconds)
    held: list[str] = []
    began: list[float] = []

    def lose(group: Group) -> None:
        (member,) = [one for one in group.members if str(one) == role]
        held.extend(left_by(alive(tmp_path)))
        began.append(time.monotonic())
        os.kill(member.pid, signal.SIGKILL if way == "killed" else signal.SIGSTOP)

    with pytest.raises(DlbError) as caught:
        if way == "withheld":
            with withheld(monkeypatch, role, began), start_workers(launch, seed=0):
                pass
        else:
            with start_workers(launch, seed=0) as workers:
                train(workers.group, lambda progress: lose(workers.group) if not began else None)
    assert began, caught.value
    assert time.monotonic() - began[0] < NOTICED + ENDED, caught.value
    # Processes of one strategy meet at ports, which are looked for below.
    assert held or way == "withheld" or len(ROLES[adapter, strategy]) == 1
    assert not alive(tmp_path)
    listening = {one.laddr.port for one in psutil.net_connections("inet") if one.status == "LISTEN"}
    assert not [each for each in held if each.isdigit() and int(each) in listening]
    assert not [each for each in held if each.startswith("/dev/shm/") and Path(each).exists()]


@contextmanager
def withheld(monkeypatch: pytest.MonkeyPatch, role: str, began: list[float]) -> Iterator[None]:
    """Plans of several processes are started without one of them."""
    start = Group.start

    def without(group: Group, plan: Mapping[str, Any]) -> None:
        others = [one for one in plan["processes"] if f"{one['role']} {one['rank']}" != role]
        start(group, {**plan, "processes": others} if len(plan["processes"]) > 1 else plan)
        if len(plan["processes"]) > 1:
            began.append(time.monotonic())

    with monkeypatch.context() as patch:
        patch.setattr(Group, "start", without)
        yield


def train(group: Group, on_progress: Callable[[Any], None]) -> None:
    """Train a small model for a long time."""
    workload = STRATEGY_CASES["equal_shares"]
    model = RemoteModel(
        group,
        workload,
        initial_weights(workload.model, 0),
        dtype="float32",
        batch_size=workload.batch_size,
    )
    samples, data = np.zeros((workload.batch_size, 4), "float32"), group.launch.scratch / "data.npz"
    write_arrays(data, {"inputs": samples, "labels": np.zeros(len(samples), "int64")})
    order = np.tile(np.arange(len(samples)), (STEPS, 1))
    model.train(data, order, on_progress=on_progress)


def left_by(processes: list[psutil.Process]) -> Iterator[str]:
    """The ports that processes listen at, and the files of shared memory that they use."""
    for process in processes:
        for connection in process.net_connections("inet"):
            if connection.status == "LISTEN":
                yield str(connection.laddr.port)
        for mapped in process.memory_maps():
            if mapped.path.startswith("/dev/shm/"):
                yield mapped.path.removesuffix(" (deleted)")
