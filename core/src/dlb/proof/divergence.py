"""How far a float32 trajectory drifts from the float64 one: shown next to a band, never a verdict.

In float32 the least rounding takes a value across the kink of a ReLU or lets another element win a
pooling, and what follows is another trajectory. What tiny perturbations of the weights do in *one*
framework is the measure of what the rounding of another may do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.proof.distance import pieces
from dlb.supervision.remote import RemoteModel, write_arrays
from dlb_worker.arrays import WEIGHTS_READ, read_or_map

__all__ = ["PERTURBATIONS", "Changes", "drift", "follow", "observed_steps", "perturbed"]

Array = npt.NDArray[Any]
#: Runs from weights that were moved by one unit in the last place.
PERTURBATIONS = 4


@dataclass(frozen=True)
class Changes:
    """What some steps changed of trained parameters, in a file.

    Kept there, so that long trajectories of large models can be compared one after another.

    Attributes:
        path: .npz file of float64 arrays by ``layer.parameter``.
        moved: those that more than rounding moved.
    """

    path: Path
    moved: frozenset[str] = frozenset()

    @classmethod
    def write(
        cls,
        path: Path,
        start: Mapping[str, Array],
        after: Mapping[str, Array],
        moved: frozenset[str] = frozenset(),
    ) -> Changes:
        """Of the parameters in ``start``; what is missing or of another shape is left out."""
        alike = {
            name: before
            for name, before in start.items()
            if name in after and after[name].shape == before.shape
        }
        # In float64 whatever they are of, where the difference of two float32 numbers is exact.
        write_arrays(
            path,
            {
                name: np.subtract(after[name], before, dtype=np.float64)
                for name, before in alike.items()
            },
        )
        return cls(path, moved)

    def read(self) -> dict[str, Array]:
        """All of them; of large models each is read where it is looked at."""
        return read_or_map(self.path, WEIGHTS_READ)

    def read_moved(self) -> dict[str, Array]:
        """Those that more than rounding moved."""
        return {name: array for name, array in self.read().items() if name in self.moved}


def observed_steps(steps: int) -> tuple[int, ...]:
    """Steps after which weights are looked at: 1, 2, 5, 10, 20, 50, ..., and the last."""
    candidates = (base * 10**power for power in range(len(str(steps))) for base in (1, 2, 5))
    return (*(step for step in candidates if step < steps), steps)


def perturbed(weights: Mapping[str, Array], seed: int, units: int = 1) -> dict[str, Array]:
    """Weights of which each is so many float32 numbers above or below, by chance."""
    generator = np.random.default_rng(seed)
    perturbed_weights = {}
    for name, array in weights.items():
        direction = np.where(generator.random(array.shape) < 0.5, -np.inf, np.inf)
        for _ in range(units):
            array = np.nextafter(array, direction.astype(array.dtype))
        perturbed_weights[name] = array
    return perturbed_weights


def follow(
    model: RemoteModel, data: Path, order: Array, folder: Path, start: Mapping[str, Array]
) -> list[Changes]:
    """Train a model that has not trained, and keep what that changes after each step of
    :func:`observed_steps`.

    Args:
        data: .npz file with ``inputs`` and ``labels``.
        order: int64 [steps, batch].
        folder: to make, for a file of each.
        start: what changes are from, of every trained parameter.
    """
    folder.mkdir()
    done, kept = 0, []
    for step in observed_steps(len(order)):
        model.train(data, order[done:step], input_mode="memory", first_step=done)
        done = step
        kept.append(Changes.write(folder / f"{step}.npz", start, model.weights()[0]))
    return kept


def drift(
    changes: Sequence[Changes],
    origin: Sequence[Changes],
    truth: Sequence[Changes],
    trained: Sequence[str],
) -> tuple[float | None, ...]:
    """``||found - origin|| / ||truth||`` over the trained parameters, after each step looked at.

    Null stands for infinity: where a weight is no number or missing, or nothing should have changed.
    """
    return tuple(map(partial(_drift, trained=trained), changes, origin, truth))


def _drift(
    changes: Changes, origin: Changes, truth: Changes, trained: Sequence[str]
) -> float | None:
    apart = moved = 0.0
    sides = [side.read() for side in (changes, origin, truth)]
    for name in trained:
        if not all(name in side for side in sides):
            return None
        for ours, theirs, exact in pieces(*(side[name] for side in sides)):
            apart += float(np.sum((ours - theirs) ** 2))
            moved += float(np.sum(exact**2))
    if not math.isfinite(apart + moved) or (apart and not moved):
        return None
    return math.sqrt(apart / moved) if apart else 0.0
