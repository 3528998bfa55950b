"""What became of the gradients of several workers, read from their ratios to what is known.

K workers have a gradient each, of their own samples. Their optimizers must all have the mean over all samples.
What one had instead is usually a number times that mean, or another gradient that is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from dlb_graph.comparing.causes import Cause
from dlb_graph.comparing.distance import factor, norm, relative_l2
from dlb_graph.layers.numbers import Array
from dlb_worker.parts import rows_by_rank

__all__ = [
    "Known",
    "ReductionDiffers",
    "SharesDiffer",
    "known_gradients",
    "other_samples",
    "reductions",
]

#: What a worker had: a number times the mean, its own gradient, another worker's, the part of the mean that
#: another worker holds, the mean with the dropout masks of worker 0, or something else.
Shape = Literal["factor", "own", "peer", "part", "masks_of_first", "other"]
#: A gradient whose norm is a smaller share of the whole is compared relative to that share.
SMALL = 1e-3


@dataclass(frozen=True)
class Known:
    """Gradients that a fault may take for the mean, by name.

    Attributes:
        own: by rank, those of its samples, with their masks; fewer, where workers have the same samples.
        masks_of_first: the mean, where every worker has the masks of worker 0.
    """

    own: Sequence[Mapping[str, Array]]
    masks_of_first: Mapping[str, Array]


class ReductionDiffers(Cause, frozen=True, kw_only=True):
    """Optimizers of workers had another gradient than the mean over all samples, or made another step of it.

    Attributes:
        tensors, ranks: of these parameters, these workers.
        shape: what they had instead.
        factor: of ``factor``, times the mean; of ``peer`` and ``part``, that worker's rank.
        workers: how many there are.
        step: whether it is the first step that differs, with the right gradient.
    """

    locates: ClassVar[bool] = True
    tensors: tuple[str, ...]
    ranks: tuple[int, ...]
    shape: Shape
    workers: int
    factor: float | None = None
    step: bool = False


class SharesDiffer(Cause, frozen=True, kw_only=True):
    """A worker trained on other samples of a step's batch than its share.

    Attributes:
        samples: places in the batch, -1 outside of it; expected: those of its share.
    """

    locates: ClassVar[bool] = True
    step: int
    rank: int
    samples: tuple[int, ...]
    expected: tuple[int, ...]


def known_gradients(
    gradients: Callable[[int, int, int], Mapping[str, Array]], shares: Sequence[int]
) -> Known:
    """Gradients of each worker's share.

    Args:
        gradients: of the samples from one place in the batch to another, of which the first has a row of the
            dropout masks.
        shares: how many samples each worker has, or each group of workers.
    """
    ends = np.cumsum(shares).tolist()
    starts = [0, *ends[:-1]]
    own = [gradients(first, end, first) for first, end in zip(starts, ends)]
    masked = [gradients(first, end, 0) for first, end in zip(starts, ends)]
    means = {
        name: np.average([each[name] for each in masked], axis=0, weights=shares) for name in own[0]
    }
    return Known(own, means)


def reductions(
    reduced: Sequence[Mapping[str, Array]],
    mean: Mapping[str, Array],
    held: Sequence[Mapping[str, Array]],
    tolerance: float,
    known: Callable[[], Known] | None = None,
) -> tuple[ReductionDiffers, ...]:
    """What workers had instead of the mean, alike ones together.

    Args:
        reduced: by rank, what the optimizer had, by name; without ``known``, the step that it made.
        held: by rank, which elements the worker holds of a tensor that is in parts.
        known: called only if something differs.
    """
    floor = SMALL * norm(mean.values())
    ranks_of: dict[tuple[str, Shape, float | None], list[int]] = {}
    for rank, gradients in enumerate(reduced):
        for name, expected in mean.items():
            parts = [each.get(name, np.ones(expected.shape, bool)) for each in held]
            actual = gradients.get(name, expected[:0])
            if actual.shape == expected.shape:
                actual = actual[parts[rank]]
            if relative_l2(actual, expected[parts[rank]], floor) > tolerance:
                told = None if known is None else known()
                shape, number = _shape(name, rank, actual, expected, parts, told, tolerance)
                ranks_of.setdefault((name, shape, number), []).append(rank)
    tensors_of: dict[tuple[Shape, float | None, tuple[int, ...]], list[str]] = {}
    for (name, shape, number), ranks in ranks_of.items():
        tensors_of.setdefault((shape, number, tuple(ranks)), []).append(name)
    return tuple(
        ReductionDiffers(
            tensors=tuple(tensors),
            ranks=ranks,
            shape=shape,
            factor=number,
            workers=len(reduced),
            step=known is None,
        )
        for (shape, number, ranks), tensors in tensors_of.items()
    )


def _shape(
    name: str,
    rank: int,
    actual: Array,
    whole: Array,
    parts: Sequence[Array],
    known: Known | None,
    tolerance: float,
) -> tuple[Shape, float | None]:
    """What one tensor of one worker is, the simplest first."""
    # A bound for a ratio, not for a distance: gradients of shares lie far apart.
    near, workers, part = max(tolerance, 1e-8), len(parts), parts[rank]
    times = factor(actual, whole[part], near)
    for multiple in (0.0, 2.0, float(workers), 1.0 / workers):
        if times is not None and abs(times - multiple) <= near * max(multiple, 1.0):
            return "factor", multiple
    peers = [peer for peer in range(workers) if peer != rank]
    for peer in (rank, *peers):
        if known is None or len(known.own) < workers:
            break
        own = known.own[peer][name][part]
        # Of one number, anything is a multiple.
        if factor(actual, own, near) is not None and (
            own.size > 1 or relative_l2(actual, own) < near
        ):
            return ("own", None) if peer == rank else ("peer", float(peer))
    for peer in peers:
        if relative_l2(actual, whole[parts[peer]]) <= near:
            return "part", float(peer)
    if known and relative_l2(actual, known.masks_of_first[name][part]) <= near:
        return "masks_of_first", None
    if times is not None and actual.size > 1:
        return "factor", float(f"{times:.3g}")
    return "other", None


def other_samples(
    parts: Sequence[Mapping[str, Array]],
    whole: Mapping[str, Array],
    shares: Sequence[int],
    step: int,
) -> Iterator[SharesDiffer]:
    """Workers whose batch is not their share of the whole one.

    Args:
        parts: by rank, ``inputs`` and ``labels`` of a step; ``whole`` has those of all.
        shares: how many samples each worker has, or each group of neighbouring workers.
    """
    for rank, (part, rows) in enumerate(zip(parts, rows_by_rank(shares, len(parts)))):
        inputs, labels = whole["inputs"][rows], whole["labels"][rows]
        if np.array_equal(part["inputs"], inputs) and np.array_equal(part["labels"], labels):
            continue
        samples, expected = (_places(rows, whole["inputs"]) for rows in (part["inputs"], inputs))
        yield SharesDiffer(step=step, rank=rank, samples=samples, expected=expected)


def _places(rows: Array, batch: Array) -> tuple[int, ...]:
    """Where each row lies in a batch; -1 where it does not."""
    places = {row.tobytes(): place for place, row in reversed([*enumerate(batch)])}
    return tuple(places.get(row.tobytes(), -1) for row in rows.astype(batch.dtype))
