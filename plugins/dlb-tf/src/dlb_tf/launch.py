"""The processes of a strategy, laid out without importing TensorFlow."""

from __future__ import annotations

import json

from dlb.contract import LaunchPlan, PlanRequest, Process


def plan(request: PlanRequest) -> LaunchPlan:
    """One process a worker, each with a port of its own that all the others know."""
    workers = [f"{request.host}:{port}" for port in request.ports[: request.workers]]
    return LaunchPlan(
        tuple(
            Process(
                "worker",
                rank,
                {
                    "TF_CONFIG": json.dumps(
                        {
                            "cluster": {"worker": workers},
                            "task": {"type": "worker", "index": rank},
                        }
                    ),
                    "DLB_TF_RANK": str(rank),
                },
            )
            for rank in range(request.workers)
        )
    )
