"""The processes of a strategy, laid out without importing torch."""

from __future__ import annotations

from dlb.contract import LaunchPlan, PlanRequest, Process


def plan(request: PlanRequest) -> LaunchPlan:
    """One process a worker, which meet at a port of rank 0."""
    backend = "nccl" if request.device == "cuda" else "gloo"
    meeting = {
        "MASTER_ADDR": request.host,
        "MASTER_PORT": str(request.ports[0]),
        "DLB_TORCH_BACKEND": backend,
    }
    return LaunchPlan(
        tuple(
            Process("worker", rank, {**meeting, "LOCAL_RANK": str(rank)})
            for rank in range(request.workers)
        )
    )
