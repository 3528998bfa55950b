"""Whether the workload itself computes NaN or infinity where an adapter's timed run does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dlb.execution.audit import batches_of
from dlb.execution.models import Stage
from dlb.proof.certificate import Divergent
from dlb.proof.reference import Reference
from dlb_graph.comparing.updates import Updates
from dlb_graph.workload import learning_rate, multiply_adds
from dlb_graph.workload.initial import proof_masks
from dlb_graph.workload.shapes import trained_names
from dlb_worker.parts import in_parts, mean_gradients

__all__ = ["find_divergence"]

#: Multiply-adds that a replay in NumPy may take; a minute or so.
REPLAY_MULTIPLY_ADDS = 200_000_000_000
#: Multiply-adds of a step, forward and backward, as a multiple of those of a forward pass.
STEP_COST = 3


def find_divergence(stage: Stage, losses: Sequence[float]) -> Divergent | None:
    """The divergence of a timed run whose losses end in NaN or infinity; None if there is none.

    dlb trains the same model on the same batches in NumPy. A loss that becomes NaN or infinite there too is
    what the workload computes. Otherwise, or if that would take too long, nothing is excused.

    Args:
        losses: of every step, as the adapter returned them.
    """
    first = next((step for step, loss in enumerate(losses) if not math.isfinite(loss)), None)
    if first is None or not _affordable(stage, len(losses)):
        return None
    stage.phase("training in NumPy, to see whether it diverges too")
    return Divergent(run="timed", step=first) if _diverges_in_numpy(stage, len(losses)) else None


def _affordable(stage: Stage, steps: int) -> bool:
    work = sum(multiply_adds(stage.request.workload.model).values())
    return STEP_COST * steps * stage.request.batch_size * work <= REPLAY_MULTIPLY_ADDS


def _diverges_in_numpy(stage: Stage, steps: int) -> bool:
    """Whether a loss or a weight becomes NaN or infinite in NumPy, in the run's precision."""
    request, workload = stage.request, stage.request.workload
    dtype: Literal["float64", "float32"] = "float64" if request.dtype == "float64" else "float32"
    weights, batch = dict(stage.prepared.weights), batches_of(stage)
    parts = workload.optimizer.accumulate
    updates = Updates(
        workload.optimizer, {name: weights[name] for name in trained_names(workload.model)}, dtype
    )
    with np.errstate(all="ignore"):
        for step in range(steps):
            inputs, labels = batch(step)
            masks = proof_masks(workload.model, request.seed + step, len(inputs) // parts)
            weights.update(updates.weights)
            gradients = mean_gradients(
                _gradients(
                    Reference(workload.model, weights, given, true, masks, workload.loss), dtype
                )
                for given, true in in_parts(parts, inputs, labels)
            )
            if not math.isfinite(float(gradients["loss"])):
                return True
            updates.step(gradients, learning_rate(workload.optimizer, workload.schedule, step))
    return not all(np.isfinite(array).all() for array in updates.weights.values())


def _gradients(
    reference: Reference, dtype: Literal["float64", "float32"]
) -> dict[str, npt.NDArray[Any]]:
    return reference.gradients(reference.training_values(dtype), dtype=dtype)
