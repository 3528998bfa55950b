"""The processes of a strategy, laid out without importing Chainer."""

from __future__ import annotations

import sysconfig
from pathlib import Path

from dlb.contract import LaunchPlan, PlanRequest, Process
from dlb.errors import UnsupportedError


def plan(request: PlanRequest) -> LaunchPlan:
    """One process a worker, all started by this environment's own mpiexec, on this machine.

    ``-launcher fork`` and ``-rmk user`` keep it from ssh and from a batch system it may be in;
    ``-bind-to none`` leaves the placing of threads to the operating system, as it is without MPI.
    """
    mpiexec = Path(sysconfig.get_path("scripts")) / "mpiexec"
    if not mpiexec.exists():
        raise UnsupportedError(
            f"there is no {mpiexec}; ChainerMN needs the mpich package: pip install mpich"
        )
    options = ["-launcher", "fork", "-rmk", "user", "-bind-to", "none", "-localhost", request.host]
    return LaunchPlan(
        tuple(Process("worker", rank) for rank in range(request.workers)),
        launcher=(str(mpiexec), *options, "-n", str(request.workers)),
        rank_variables=("PMI_RANK",),
    )
