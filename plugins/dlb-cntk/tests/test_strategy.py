"""How workers are started, and what is refused. K workers are compared with one in tests/legacy."""

from pathlib import Path

import pytest

from dlb_cntk.plugin import adapter
from dlb_worker.contract import PlanRequest
from dlb_worker.errors import UnsupportedError

(STRATEGY,) = adapter.strategies


def test_workers_are_started_by_open_mpi_on_this_machine():
    plan = STRATEGY.plan(PlanRequest("data_parallel", 3, "127.0.0.1", ()))
    assert [(each.role, each.rank) for each in plan.processes] == [("worker", n) for n in range(3)]
    assert Path(plan.launcher[0]).name == "orterun"
    assert plan.launcher[-4:] == ("--host", "127.0.0.1:3", "-n", "3")


def test_a_machine_without_a_launcher_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnsupportedError, match="apt-get install openmpi-bin"):
        STRATEGY.plan(PlanRequest("data_parallel", 2, "127.0.0.1", ()))


def test_a_worker_that_was_started_alone_is_refused():
    with pytest.raises(UnsupportedError, match="MPI says rank 0 of 1, and this is rank 1 of 2"):
        STRATEGY.join(1, 2)
