"""How far a float32 trajectory drifts from the float64 trajectory: shown with a band, without a verdict.

In float32, rounding can move a value across the kink of a ReLU, or make another element win a pooling.
The trajectory then changes. Tiny perturbations of the weights in *one* framework measure how far rounding
in another framework may change it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.proof.findings import Finding
from dlb.proof.findings.common import StepsCompared
from dlb.proof.findings.workload import RoundingGrows
from dlb.supervision.remote import RemoteModel, write_arrays
from dlb_graph.comparing.distance import inner_product, pieces, relative_l2
from dlb_graph.comparing.tolerances import FLOAT64_TOLERANCE, SMALL, STEP_SCALE, Tensors, norm_floor
from dlb_worker.arrays import WEIGHTS_READ, read_or_map

__all__ = [
    "PERTURBATIONS",
    "Changes",
    "comparable_steps",
    "drift",
    "error_growth",
    "follow",
    "observed_steps",
    "perturbed",
]

Array = npt.NDArray[Any]
#: Runs from weights that are perturbed by one unit in the last place.
PERTURBATIONS = 4


@dataclass(frozen=True)
class Changes:
    """The changes of trained parameters over several steps, in a file.

    They are in a file so that long trajectories of large models need not fit into memory together.

    Attributes:
        path: .npz file of float64 arrays by ``layer.parameter``.
        moved: names of parameters that changed by more than rounding.
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
        """Write the changes of the parameters in ``start``.

        Parameters that are missing in ``after`` or have another shape there are left out.
        """
        alike = {
            name: before
            for name, before in start.items()
            if name in after and after[name].shape == before.shape
        }
        # The difference of two float32 numbers is exact in float64.
        write_arrays(
            path,
            {
                name: np.subtract(after[name], before, dtype=np.float64)
                for name, before in alike.items()
            },
        )
        return cls(path, moved)

    def read(self) -> dict[str, Array]:
        """All changes; arrays of large models are memory-mapped."""
        return read_or_map(self.path, WEIGHTS_READ)

    def read_moved(self) -> dict[str, Array]:
        """Changes of the parameters that changed by more than rounding."""
        return {name: array for name, array in self.read().items() if name in self.moved}


def observed_steps(steps: int) -> tuple[int, ...]:
    """Steps after which weights are compared: 1, 2, 5, 10, 20, 50, ..., and the last."""
    candidates = (base * 10**power for power in range(len(str(steps))) for base in (1, 2, 5))
    return (*(step for step in candidates if step < steps), steps)


def perturbed(weights: Mapping[str, Array], seed: int, units: int = 1) -> dict[str, Array]:
    """Weights with each number moved up or down at random, by ``units`` in the last place."""
    generator = np.random.default_rng(seed)
    perturbed_weights = {}
    for name, array in weights.items():
        # The bits of a number count its place among all numbers of its sign, from 0 to infinity.
        sides = np.atleast_1d(array), np.array([np.inf], array.dtype)
        bits, infinite = (side.view(f"i{array.itemsize}") for side in sides)
        least = np.iinfo(bits.dtype).min
        place = np.where(bits < 0, least - bits, bits)
        place += np.where(generator.random(bits.shape) < 0.5, -units, units).astype(bits.dtype)
        place = place.clip(-infinite, infinite)
        moved = np.where(place < 0, least - place, place).view(array.dtype).reshape(array.shape)
        perturbed_weights[name] = np.where(np.isnan(array), array, moved)
    return perturbed_weights


def follow(
    model: RemoteModel,
    data: Path,
    order: Array,
    numbers: Sequence[int],
    folder: Path,
    start: Mapping[str, Array],
) -> list[Changes]:
    """Train a new model, and write its changes after each step of :func:`observed_steps`.

    Args:
        data: .npz file with ``inputs`` and ``labels``.
        order: rows of each batch, int64 [steps, batch].
        numbers: the number of each step for the schedule.
        folder: folder for the files; it is created.
        start: trained parameters that changes are relative to, by ``layer.parameter``.
    """
    folder.mkdir()
    done, kept = 0, []
    for step in observed_steps(len(order)):
        model.train(
            data,
            order[done:step],
            input_mode="memory",
            first_step=done,
            numbers=numbers[done:step],
        )
        done = step
        kept.append(Changes.write(folder / f"{step}.npz", start, model.weights()[0]))
    return kept


def drift(
    changes: Sequence[Changes],
    origin: Sequence[Changes],
    truth: Sequence[Changes],
    trained: Sequence[str],
) -> tuple[float | None, ...]:
    """``||changes - origin|| / ||truth||`` over the trained parameters, after each observed step.

    None stands for infinity: a weight is missing or not finite, or ``truth`` is zero.
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
            difference = ours - theirs
            apart += inner_product(difference, difference)
            moved += inner_product(exact, exact)
    if not math.isfinite(apart + moved) or (apart and not moved):
        return None
    return math.sqrt(apart / moved) if apart else 0.0


def error_growth(changes: Tensors, perturbed: Tensors) -> float:
    """The largest distance of any tensor between the changes of two trajectories of one adapter.

    The check ``trajectories`` measures the same distance between adapters.

    Args:
        changes: changes of the plain trajectory, by ``layer.parameter``.
        perturbed: changes of the perturbed trajectory; it has at least the tensors of ``changes``.
    """
    least = norm_floor(changes, SMALL)
    return max(
        (relative_l2(perturbed[name], changes[name], least) for name in changes), default=0.0
    )


def comparable_steps(
    steps: Collection[int], growth: Mapping[int, float], apart: float = 0.0
) -> tuple[int, Finding]:
    """After how many steps trajectories can be compared, and the finding that says so.

    Args:
        steps: numbers of steps after which changes were kept.
        growth: error growth by number of steps, for steps longer by :data:`STEP_SCALE`; empty if unknown.
        apart: the largest distance between gradients that agree; it grows in the same way.
    """
    requested, factor = max(steps), max(1.0, apart / STEP_SCALE)
    near = [step for step in steps if factor * growth.get(step, 0.0) <= FLOAT64_TOLERANCE]
    chosen = max(near, default=min(steps))
    if chosen == requested:
        return chosen, Finding(cause=StepsCompared(steps=chosen))
    cause = RoundingGrows(
        steps=chosen,
        asked=requested,
        step_scale=STEP_SCALE,
        error_growth=growth[requested] if math.isfinite(growth[requested]) else None,
        gradients_apart=apart if factor > 1.0 else None,
    )
    return chosen, Finding(cause=cause)
