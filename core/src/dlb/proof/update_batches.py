"""Small batches of noise for the checks of updates and of float32 gradients."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from dlb_graph.optimizers import Optimizer
from dlb_graph.workload.training import (
    CosineRestarts,
    Decay,
    Inverse,
    Polynomial,
    Schedule,
    Step,
    WarmupCosine,
    WarmupLinear,
    in_steps,
    learning_rate,
)

__all__ = ["UpdateBatches", "as_dtype", "step_numbers"]

Array = npt.NDArray[Any]
#: Changes of a schedule that has no last one: how many are run through.
FEW_DECAYS = 3
#: Steps of a smooth schedule that are far apart.
FAR_STEPS = (10, 1_000, 100_000)


@dataclass(frozen=True)
class UpdateBatches:
    """The batches for the checks of updates.

    Attributes:
        folder: folder with an .npz file of ``inputs`` and ``labels`` for each dtype.
        inputs: float64 or int64 [samples, ...].
        labels: int64 [samples] or [samples, T]; or targets, float64, of the outputs' shape.
        order: rows of each batch, int64 [steps, batch].
        numbers: the number of each step for the learning-rate schedule, as :func:`step_numbers`.
    """

    folder: Path
    inputs: Array
    labels: Array
    order: Array
    numbers: tuple[int, ...]

    @property
    def batch_size(self) -> int:
        """Samples of a step: few, so that few values lie near a kink."""
        return int(self.order.shape[1])

    def path(self, dtype: str) -> Path:
        """The file for a dtype."""
        return self.folder / f"updates-{dtype}.npz"


def step_numbers(optimizer: Optimizer, schedule: Schedule, steps: int) -> tuple[int, ...]:
    """Numbers for the steps of a trajectory, so that it runs through every change of the learning rate.

    They are the first numbers, and the numbers just before, at and just after each change. If ``steps`` are
    too few for that, the number at each change stays, and there are more steps if those are too many. No
    step has the rate 0: it would move nothing, and would divide a velocity by 0 that a framework scales.

    Args:
        steps: how many steps are asked for.
    """
    changes = _changes(in_steps(schedule))
    around = {change + offset for change in changes for offset in (-1, 0, 1)}
    wanted = around if len({0, 1, *around}) <= steps else set(changes)

    def moves(number: int) -> bool:
        return number >= 0 and learning_rate(optimizer, schedule, number) > 0

    numbers = set(filter(moves, {0, 1, *wanted} if steps > 1 else {0, *wanted}))
    candidates = filter(moves, range(max(numbers, default=0) + steps))
    for number in candidates:
        if len(numbers) >= steps:
            break
        numbers.add(number)
    ordered = sorted(numbers) or [0]
    return (*ordered, *[ordered[-1]] * (steps - len(ordered)))


def _changes(schedule: Schedule) -> tuple[int, ...]:
    """The steps at which a schedule changes its course."""
    if isinstance(schedule, Step):
        return schedule.milestones
    if isinstance(schedule, Decay):
        return tuple(schedule.start + decay * schedule.every for decay in range(FEW_DECAYS))
    if isinstance(schedule, (WarmupCosine, WarmupLinear, Polynomial)):
        return (schedule.warmup, (schedule.warmup + schedule.steps) // 2, schedule.steps)
    if isinstance(schedule, CosineRestarts):
        second = schedule.period * (1 + schedule.growth)
        return (schedule.period // 2, schedule.period, second)
    return FAR_STEPS if isinstance(schedule, Inverse) else ()


def as_dtype(inputs: Array, dtype: str) -> Array:
    """Real inputs converted to a dtype; integers unchanged."""
    return inputs.astype(dtype) if inputs.dtype.kind == "f" else inputs
