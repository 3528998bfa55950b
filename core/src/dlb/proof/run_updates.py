"""Updates in float64: what the first training step changes, and what all of them do."""

from __future__ import annotations

import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dlb.proof.certificate import CheckGroup
from dlb.proof.checks.tolerances import ROUNDED
from dlb.proof.checks.updates import check_trajectory, check_update
from dlb.proof.divergence import Changes, observed_steps
from dlb.proof.reference import Reference
from dlb.proof.run_float64 import Keep, check_gradient_shapes
from dlb.proof.update_batches import UpdateBatches
from dlb.proof.updates import Updates
from dlb.supervision.remote import RemoteModel
from dlb.workload import learning_rate, state_names
from dlb.workload.shapes import trained_names

__all__ = ["prove_updates"]

Array = npt.NDArray[Any]


def prove_updates(
    model: RemoteModel,
    reference: Reference,
    batches: UpdateBatches,
    adapter: str,
    *,
    via: str,
    groups: Collection[CheckGroup],
    keep: Keep,
    folder: Path,
) -> dict[int, Changes]:
    """What the first step changes, and what all do, in a model built in float64 that has not trained.

    Each step's gradients are taken from the adapter before it steps, and NumPy steps with them.

    Args:
        folder: to make.

    Returns:
        what so many steps changed, for the comparison with other adapters and with float32; nothing
        where only the first was asked for.
    """
    workload = model.workload
    last = len(batches.order) - 1 if "trajectory" in groups else 0
    observed = observed_steps(last + 1) if "trajectory" in groups else ()
    changes: dict[int, Changes] = {}
    folder.mkdir()
    states, start = state_names(reference.model), reference.weights
    trained = {name: start[name] for name in trained_names(reference.model)}
    updates = Updates(workload.optimizer, trained)
    moved: set[str] = set()
    began = time.perf_counter()
    for step, rows in enumerate(batches.order[: last + 1]):
        inputs, labels = batches.inputs[rows], batches.labels[rows]
        judged = step in (0, last)
        running: dict[str, Array] = {}
        if judged and states:
            before = start if step == 0 else model.weights()[0]
            running = reference.running(before, inputs)
        gradients = model.gradients(inputs, labels)
        check_gradient_shapes(gradients, reference.model)
        sizes = {name: float(np.linalg.norm(gradients[name])) for name in trained}
        whole = float(np.linalg.norm(list(sizes.values())))
        # Adam makes steps of rounding too, and other ones in every adapter. Not "above", so that a
        # NaN is not taken for rounding.
        moved |= {name for name, size in sizes.items() if not size <= ROUNDED * whole}
        updates.step(gradients, learning_rate(workload.optimizer, workload.schedule, step))
        # To start a pipeline for one step costs more than the step: where nothing is judged, it
        # comes from memory.
        source = via if judged else "memory"
        model.train(batches.path(model.dtype), rows[None], via=source, first_step=step)
        if not judged and step + 1 not in observed:
            continue
        after = model.weights()[0]
        if step + 1 in observed:
            path = folder / f"{step + 1}.npz"
            changes[step + 1] = Changes.write(path, trained, after, frozenset(moved))
        if not judged:
            continue
        after |= model.optimizer_state()
        truth = updates.weights | updates.state
        for at, judge in ((0, check_update), (last, check_trajectory)):
            if step == at:
                took = time.perf_counter() - began
                result = judge(adapter, step + 1, start, after, truth, running)
                keep(msgspec.structs.replace(result, seconds=took))
                if step == last and result.verdict == "not run":
                    # Of rounding alone, which no two adapters need agree in.
                    changes = {at: Changes(kept.path) for at, kept in changes.items()}
    return changes
