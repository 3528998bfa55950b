"""How far a float32 trajectory strays from the float64 one: shown beside a band, never a verdict.

In float32 the least rounding takes a value across the kink of a ReLU or lets another element win a
pooling, and what follows is another trajectory. What tiny perturbations of the weights do in *one*
framework is the measure of what the rounding of another may do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.data.npz import WEIGHTS_READ, read_or_map
from dlb.proof.distance import pieces
from dlb.supervision.remote import RemoteModel, write_arrays
from dlb.workload.shapes import trained_names

__all__ = ["PERTURBATIONS", "follow", "looked_at", "nudged", "strays"]

Array = npt.NDArray[Any]
#: Runs from weights that were moved by one unit in the last place.
PERTURBATIONS = 4


def looked_at(steps: int) -> tuple[int, ...]:
    """Steps after which weights are looked at: 1, 2, 5, 10, 20, 50, ..., and the last."""
    powers = (base * 10**power for power in range(len(str(steps))) for base in (1, 2, 5))
    return (*(one for one in powers if one < steps), steps)


def nudged(weights: Mapping[str, Array], seed: int, units: int = 1) -> dict[str, Array]:
    """Weights of which each is so many float32 numbers above or below, by chance."""
    generator = np.random.default_rng(seed)
    moved = {}
    for name, array in weights.items():
        towards = np.where(generator.random(array.shape) < 0.5, -np.inf, np.inf)
        for _ in range(units):
            array = np.nextafter(array, towards.astype(array.dtype))
        moved[name] = array
    return moved


def follow(model: RemoteModel, data: Path, order: Array, folder: Path) -> list[Path]:
    """Train a model that has not trained, and keep its trained parameters after some steps.

    Kept in files, so that long trajectories of large models can be compared one after another.

    Args:
        data: .npz file with ``inputs`` and ``labels``.
        order: int64 [steps, batch].
        folder: to make, for an .npz file of each step of :func:`looked_at`.
    """
    folder.mkdir()
    done, kept = 0, []
    trained = trained_names(model.workload.model)
    for step in looked_at(len(order)):
        model.train(data, order[done:step], via="memory", first_step=done)
        done = step
        found = model.weights()[0]
        kept.append(folder / f"{step}.npz")
        write_arrays(kept[-1], {name: found[name] for name in trained if name in found})
    return kept


def strays(
    found: Sequence[Path], beside: Sequence[Path], truth: Sequence[Path], start: Mapping[str, Array]
) -> tuple[float | None, ...]:
    """``||found - beside|| / ||truth - start||`` over the trained parameters, which ``start`` holds,
    after each step looked at.

    Null stands for infinity: where a weight is no number, is missing or of another shape, or nothing
    should have changed.
    """
    return tuple(map(partial(_stray, start=start), found, beside, truth))


def _stray(found: Path, beside: Path, truth: Path, start: Mapping[str, Array]) -> float | None:
    apart = moved = 0.0
    every = [read_or_map(path, WEIGHTS_READ) for path in (found, beside, truth)]
    for name, before in start.items():
        three = [one[name] for one in every if name in one]
        if [array.shape for array in three] != [before.shape] * 3:
            return None
        for ours, theirs, exact, begun in pieces(*three, before):
            apart += float(np.sum((ours - theirs) ** 2))
            moved += float(np.sum((exact - begun) ** 2))
    if not math.isfinite(apart + moved) or (apart and not moved):
        return None
    return math.sqrt(apart / moved) if apart else 0.0
