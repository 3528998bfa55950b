"""The processes of a strategy, laid out without importing MXNet; its scheduler and server."""

from __future__ import annotations

from dlb.contract import LaunchPlan, PlanRequest, Process

#: MXNet 1.9's server never initialises its ``multi_precision_``: made in memory that held anything but
#: zero there, it sums float64 gradients in float32, or looks for them where they are not. glibc can be
#: told to fill new memory: with 255 perturbed, with zeros, but only past the thread cache.
ZEROED_MEMORY = {"GLIBC_TUNABLES": "glibc.malloc.perturb=255:glibc.malloc.tcache_count=0"}


def plan(request: PlanRequest) -> LaunchPlan:
    """A scheduler that all meet at, a server that sums the gradients, and the workers."""
    meeting = {
        "DMLC_PS_ROOT_URI": request.host,
        "DMLC_PS_ROOT_PORT": str(request.ports[0]),
        "DMLC_NUM_SERVER": "1",
        "DMLC_NUM_WORKER": str(request.workers),
        "DMLC_NODE_HOST": request.host,
    }
    roles = [("worker", rank) for rank in range(request.workers)]
    roles += [("scheduler", 0), ("server", 0)]
    return LaunchPlan(
        tuple(
            Process(
                role,
                rank,
                {
                    **meeting,
                    "DMLC_ROLE": role,
                    "PORT": str(port),
                    **({"DLB_MXNET_GPU": str(rank)} if role == "worker" else ZEROED_MEMORY),
                },
            )
            for (role, rank), port in zip(roles, request.ports[1:])
        )
    )


def serve() -> bool:
    """MXNet serves as it is imported in a process of such a role, and exits when it is over."""
    try:
        import mxnet  # noqa: F401
    except SystemExit:
        pass
    return True
