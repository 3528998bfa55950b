"""Training a model a step at a time, as a worker does, and watching it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from dlb_graph import workload as W
from dlb_worker.native import BuiltModel

from .subject import BATCH, Adapter


def row_order(samples: int, steps: int, *, batch_size: int = BATCH, seed: int = 5) -> np.ndarray:
    """Rows of samples in no order, some more than once."""
    return np.random.default_rng(seed).integers(0, samples, (steps, batch_size))


def steps_of(
    adapter: Adapter,
    built: BuiltModel,
    optimizer: W.Optimizer,
    schedule: W.Schedule,
    inputs: np.ndarray,
    labels: np.ndarray,
    order: np.ndarray,
    via: str = "memory",
    variant: Mapping[str, str] | None = None,
) -> Iterator[tuple[int, float]]:
    """Train over the rows of ``order``: yields the step about to be taken and its rate, takes it.

    The rate is set as a worker sets it: before the first step, and where it changes.
    """
    rate: float | None = None
    batches = adapter.load(inputs, labels, order, via, variant)
    for step, batch in enumerate(batches):
        wanted = W.learning_rate(optimizer, schedule, step)
        if wanted != rate:
            built.set_learning_rate(wanted)
            rate = wanted
        yield step, wanted
        built.train_step(*batch)
    assert step + 1 == len(order)
