"""Training with several workers and with one worker on the same global batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.execution.models import Stage, drop_at_end
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
    """Whether the strategy must give the weights of one worker. If not, the check is kept as not run."""
    strategy = stage.request.strategy
    entries = [entry for entry in workers.described["strategies"] if entry["name"] == strategy]
    if all(entry["synchronous"] for entry in entries):
        return True
    reason = Finding(cause=Asynchronous(strategy=strategy))
    stage.keep(distributed_check(stage.adapter).not_run(reason))
    return False


def train_few_steps(stage: Stage, model: RemoteModel) -> list[dict[str, Array]]:
    """Train for a few steps in float64; the weights of each worker."""
    prepared = stage.prepared
    data = prepared.scratch / "train-float64.npz"
    rows = prepared.order[:DISTRIBUTED_STEPS]
    samples, indices = np.unique(rows, return_inverse=True)
    if not data.exists():
        stored = read_or_map(prepared.train)
        inputs, labels = stored["inputs"][samples], stored["labels"][samples]
        arrays = {"inputs": inputs, "labels": labels}
        write_arrays(data, {name: as_dtype(array, "float64") for name, array in arrays.items()})
    model.train(data, indices.reshape(rows.shape).astype(np.int64))
    return model.weights()


def compare_with_single_worker(
    stage: Stage, group: Group, per_worker_weights: Sequence[dict[str, Array]]
) -> None:
    """Run the check ``distributed``: one worker takes the same steps.

    Args:
        group: one worker without the strategy.
        per_worker_weights: result of :func:`train_few_steps` with the strategy.
    """
    stage.phase("comparing with one worker")
    with drop_at_end(stage.build(group, "float64", stage.request.batch_size)) as model:
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
