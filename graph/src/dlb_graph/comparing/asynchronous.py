"""Asynchronous training in NumPy: workers pull shared weights, and push gradients that move them at once.

A schedule says in which order workers took the parts of their steps. Played again with the same gradients, it
has one outcome.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from dlb_graph.comparing.causes import Cause, Figure
from dlb_graph.comparing.distance import figures, worst_first
from dlb_graph.comparing.tolerances import FLOAT64_TOLERANCE, Tensors
from dlb_graph.comparing.updates import Updates
from dlb_graph.layers.numbers import Array
from dlb_worker.contract import PHASES

__all__ = ["Play", "Played", "PushesDiffer", "counted", "held_back", "mixed"]

#: Ranks and the parts of their steps, one of :data:`dlb_worker.contract.PHASES`, in the order of time.
Schedule = Sequence[tuple[int, str]]


class PushesDiffer(Cause, frozen=True, kw_only=True):
    """Weights after a schedule are not those that NumPy has after it.

    Attributes:
        shape: what explains them: pushes count twice, or not at all (``lost``); gradients are those at the
            newest weights as their step began (``fresh``), not at those that the worker had pulled; workers
            state another staleness; or nothing that is known.
        rank: of ``twice`` and ``lost``, whose pushes.
        push: which one of them, from 0; null for all.
    """

    locates: ClassVar[bool] = True
    shape: Literal["twice", "lost", "fresh", "staleness", "other"]
    rank: int | None = None
    push: int | None = None


def mixed(workers: int, steps: int, seed: int, accumulate: int = 1) -> list[int]:
    """Ranks in an order by chance, each as often as it takes parts of steps."""
    parts = accumulate * (len(PHASES) - 1) + 1
    order = [rank for rank in range(workers) for _ in range(steps * parts)]
    random.Random(seed).shuffle(order)
    return order


def held_back(workers: int, steps: int) -> list[int]:
    """The last worker computes its gradients; its peers take two steps; then it pushes, and all go on."""
    parts, last = len(PHASES), workers - 1
    first = [last] * (parts - 1) + [rank for rank in range(last) for _ in range(2 * parts)] + [last]
    left = [rank for rank in range(last) for _ in range((steps - 2) * parts)]
    return first + left + [last] * ((steps - 1) * parts)


@dataclass(frozen=True)
class Played:
    """The outcome of a schedule.

    Attributes:
        server: the shared weights, and the optimizer's state.
        pulled: by rank, the weights that the worker holds: those that it pulled last, or the shared ones.
        staleness: by rank, of each push, how many of its peers' came after the worker's pull before it.
    """

    server: Updates
    pulled: list[Tensors]
    staleness: list[list[int]]


@dataclass(frozen=True)
class Play:
    """How a schedule is played.

    Attributes:
        workers: how many.
        start: the optimizer with the weights that all begin with.
        gradient: of a rank, the number of its step, and weights by ``layer.parameter``.
        rate: the learning rate of a worker's own step, by its number.
        pulls_first: whether a worker pulls as its step begins, and not after its push.
        fault: what goes wrong; None for nothing.
    """

    workers: int
    start: Callable[[], Updates]
    gradient: Callable[[int, int, Tensors], Mapping[str, Array]]
    rate: Callable[[int], float]
    pulls_first: bool = False
    fault: PushesDiffer | None = None

    def of(self, schedule: Schedule) -> Played:
        """The outcome of a schedule."""
        server = self.start()

        def newest() -> Tensors:
            return {name: array.copy() for name, array in server.weights.items()}

        pulled = [newest() for _ in range(self.workers)]
        at = dict.fromkeys(range(self.workers), 0)
        used: dict[int, Tensors] = {}
        staleness: list[list[int]] = [[] for _ in pulled]
        fresh = self.pulls_first or (self.fault is not None and self.fault.shape == "fresh")
        for pushes, rank, phase in _numbered(schedule):
            if fresh and rank not in used:
                used[rank] = newest()
                at[rank] = pushes if self.pulls_first else at[rank]
            if phase != PHASES[-1]:
                continue
            weights = used.pop(rank, pulled[rank])
            step = len(staleness[rank])
            found = self.gradient(rank, step, weights)
            for _ in range(self._times(rank, step)):
                server.step(found, self.rate(step))
            staleness[rank].append(pushes - at[rank])
            pulled[rank], at[rank] = newest(), pushes + 1
        held = [newest() for _ in pulled] if self.pulls_first else pulled
        return Played(server, held, staleness)

    def _times(self, rank: int, push: int) -> int:
        """How often a push counts."""
        fault = self.fault
        if fault is None or fault.rank != rank or fault.push not in (None, push):
            return 1
        return 2 if fault.shape == "twice" else 0

    def compare(
        self, schedule: Schedule, ends: Sequence[Tensors], told: Sequence[Sequence[int]]
    ) -> tuple[tuple[Figure, ...], list[PushesDiffer], Played]:
        """How far workers are from the outcome of the schedule that they took, why, and the outcome.

        Args:
            ends: by rank, the weights that a worker holds, and more.
            told: by rank, the staleness of its pushes; empty where that is not known.
        """
        right = self.of(schedule)
        apart = _apart(ends, right)
        if apart[0].distance > FLOAT64_TOLERANCE:
            other = PushesDiffer(shape="other")
            near = (
                fault
                for fault in self._faults(right)
                if _apart(ends, replace(self, fault=fault).of(schedule))[0].distance
                <= FLOAT64_TOLERANCE
            )
            return apart, [next(near, other)], right
        wrong = any(list(a) != b for a, b in zip(told, right.staleness) if a)
        return apart, [PushesDiffer(shape="staleness")] if wrong else [], right

    def _faults(self, right: Played) -> Iterator[PushesDiffer]:
        if not self.pulls_first:
            yield PushesDiffer(shape="fresh")
        for rank, pushes in enumerate(right.staleness):
            for push in (None, *range(len(pushes))):
                yield PushesDiffer(shape="twice", rank=rank, push=push)
                yield PushesDiffer(shape="lost", rank=rank, push=push)


def counted(staleness: Iterable[Iterable[int]]) -> tuple[int, ...]:
    """How many pushes of all workers had no other before them, how many had one, and so on."""
    lags = [lag for each in staleness for lag in each]
    return tuple(lags.count(lag) for lag in range(max(lags, default=-1) + 1))


def _numbered(schedule: Schedule) -> Iterator[tuple[int, int, str]]:
    """Each part of a step, after how many pushes."""
    pushes = 0
    for rank, phase in schedule:
        yield pushes, rank, phase
        pushes += phase == PHASES[-1]


def _apart(ends: Sequence[Tensors], played: Played) -> tuple[Figure, ...]:
    by_rank = [figures(end, weights) for end, weights in zip(ends, played.pulled)]
    return worst_first(figure for each in by_rank for figure in each)
