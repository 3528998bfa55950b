"""Training with several workers, and with one on the same global batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.execution.models import Stage, dropped
from dlb.execution.workers import Workers
from dlb.proof.checks.distributed import check_distributed, distributed_check
from dlb.proof.engine import run
from dlb.proof.findings import Finding
from dlb.proof.findings.workload import Asynchronous
from dlb.proof.update_batches import as_dtype
from dlb.supervision.group import Group
from dlb.supervision.remote import RemoteModel, write_arrays
from dlb_worker.arrays import read_or_map

__all__ = ["compare_with_single_worker", "is_synchronous", "train_few_steps"]

Array = npt.NDArray[Any]
#: Steps that K workers and one worker take before their weights are compared.
DISTRIBUTED_STEPS = 10


def is_synchronous(stage: Stage, workers: Workers) -> bool:
    """Whether the strategy must end as one worker does; if not, the check says so."""
    strategy = stage.request.strategy
    described = [one for one in workers.described["strategies"] if one["name"] == strategy]
    if all(one["synchronous"] for one in described):
        return True
    reason = Finding(cause=Asynchronous(strategy=strategy))
    stage.keep(distributed_check(stage.adapter).not_run(reason))
    return False


def train_few_steps(stage: Stage, model: RemoteModel) -> list[dict[str, Array]]:
    """Every worker's weights after a few steps in float64."""
    prepared = stage.prepared
    data = prepared.scratch / "train-float64.npz"
    rows = prepared.order[:DISTRIBUTED_STEPS]
    samples, places = np.unique(rows, return_inverse=True)
    if not data.exists():
        stored = read_or_map(prepared.train)
        inputs, labels = stored["inputs"][samples], stored["labels"][samples]
        write_arrays(data, {"inputs": as_dtype(inputs, "float64"), "labels": labels})
    model.train(data, places.reshape(rows.shape).astype(np.int64))
    return model.weights()


def compare_with_single_worker(
    stage: Stage, group: Group, per_worker_weights: Sequence[dict[str, Array]]
) -> None:
    """The check ``distributed``: the same steps by one worker."""
    stage.phase("comparing with one worker")
    with dropped(stage.build(group, "float64", stage.request.batch_size)) as model:
        (single_worker,) = train_few_steps(stage, model)
    steps = len(stage.prepared.order[:DISTRIBUTED_STEPS])
    workers = stage.request.workers
    adapter = stage.adapter
    stage.keep(
        run(
            distributed_check(adapter),
            lambda check: check_distributed(
                adapter, workers, steps, per_worker_weights, single_worker
            ),
        )
    )
