"""Views of layers' values: the order in which a file's value holds a layer's numbers.

Exporters choose any order: channels last, time steps first, maps flattened in either order. dlb
need not recognise these. It applies operators that only move numbers to positions instead, and
the resulting index map shows how to rearrange a weight.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dlb_graph.layers import MOST_AXES, Reshape, Transpose
from dlb_graph.layers.numbers import Array

__all__ = [
    "ValueView",
    "axes_of",
    "features_of",
    "layout_layers",
    "of_a_sample",
    "per_channel",
    "positions",
    "rows_by_sample",
    "view_of",
]

Shape = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class ValueView:
    """A value of the file, as a view of a layer's value.

    Attributes:
        layer: the layer, or the input, whose numbers the value has.
        index_map: int64 in the shape of the file's value: where each number lies in the layer's
            canonical value [N, ...]. None if both have the same order.
    """

    layer: str
    index_map: Array | None = None


def positions(shape: Shape) -> Array:
    """The position of each number of a value, int64 in its shape."""
    return np.arange(math.prod(shape)).reshape(shape)


def view_of(layer: str, index_map: Array, shape: Shape) -> ValueView:
    """The view with an index map; ``shape`` is that of the layer's canonical value [N, ...]."""
    if index_map.shape == shape and np.array_equal(index_map, positions(shape)):
        return ValueView(layer)
    return ValueView(layer, index_map)


def axes_of(index_map: Array, shape: Shape) -> tuple[int, ...] | None:
    """The canonical axis for each axis of a value; None if the value is no transpose."""
    if sorted(index_map.shape) != sorted(shape) or 0 in shape:
        return None
    steps = {math.prod(shape[axis + 1 :]): axis for axis, size in enumerate(shape) if size > 1}
    single = iter([axis for axis, size in enumerate(shape) if size == 1])
    axes: list[int] = []
    for place, size in enumerate(index_map.shape):
        second = (0,) * place + (1,) + (0,) * (index_map.ndim - place - 1)
        step = int(index_map[second] - index_map.flat[0]) if size > 1 else 0
        axes.append(steps.get(step, -1) if size > 1 else next(single))
    if sorted(axes) != list(range(len(shape))):
        return None
    if not np.array_equal(positions(shape).transpose(axes), index_map):
        return None
    return tuple(axes)


def layout_layers(index_map: Array, shape: Shape) -> list[Reshape | Transpose] | None:
    """The layers that bring a value [N, ...] to a file's layout: a reshape, a transpose, a reshape.

    Args:
        index_map: of the file's value, also [N, ...].
        shape: of the layer's value.

    Returns:
        the layers that are needed; None if no layers can do it, for example if samples are mixed.
    """
    batch, size = shape[0], math.prod(shape[1:])
    if index_map.ndim < 2 or index_map.shape[0] != batch or index_map.size != batch * size:
        return None
    per_sample = index_map.reshape(batch, size) - size * np.arange(batch)[:, None]
    if not (per_sample == per_sample[:1]).all() or not np.array_equal(
        np.sort(per_sample[0]), np.arange(size)
    ):
        return None
    loops = _nested_loops(per_sample[0])
    if loops is None:
        return None
    # In the layer's value, the axis with the largest step comes first.
    outermost_first = sorted(range(len(loops)), key=lambda axis: -loops[axis][1])
    sizes = tuple(loops[axis][0] for axis in outermost_first)
    order = [outermost_first.index(axis) for axis in range(len(loops))]
    final = index_map.shape[1:]
    if len(final) > MOST_AXES:
        return None
    layers: list[Reshape | Transpose] = []
    current = shape[1:]
    for before, axes in _transposes(sizes, order):
        layers += [Reshape(shape=before)] if before != current else []
        layers.append(Transpose(axes=tuple(axis + 1 for axis in axes)))
        current = tuple(before[axis] for axis in axes)
    return layers + ([Reshape(shape=final)] if final != current else [])


def rows_by_sample(samples: Array, batch: int) -> Array | None:
    """The rows of a value, those of the first sample first.

    Args:
        samples: int64 [rows]: the sample of each.
        batch: how many samples there are.

    Returns:
        int64 [rows]; None if samples have other numbers of rows, or are in another order than their own.
    """
    # Rows of one sample may follow each other, as windows do, or be as far apart as steps that come first.
    together = int(np.argmax(samples != samples[0])) or len(samples)
    if len(samples) % (batch * together):
        return None
    in_turn = np.repeat(np.arange(batch), together)
    if not np.array_equal(samples, np.tile(in_turn, len(samples) // len(in_turn))):
        return None
    return np.argsort(samples, kind="stable")


def _transposes(
    sizes: tuple[int, ...], order: Sequence[int]
) -> Iterator[tuple[Shape, tuple[int, ...]]]:
    """Transposes of few axes that bring axes into an order: shapes and axes, both without the batch.

    One does it, if a value may have so many axes. Else each brings the next axes to their place behind those
    that are there already. Axes that stay together are one.
    """
    if list(order) == sorted(order):
        return
    if len(sizes) <= MOST_AXES:
        yield sizes, tuple(order)
        return
    current = list(range(len(sizes)))
    while current != list(order):
        placed = next(k for k, (has, wanted) in enumerate(zip(current, order)) if has != wanted)
        start = current.index(order[placed])
        end = start + 1
        while end < len(current) and current[end] == order[placed + end - start]:
            end += 1
        blocks = [current[:placed], current[placed:start], current[start:end], current[end:]]
        kept = [k for k, block in enumerate(blocks) if block]
        shape = tuple(math.prod(sizes[axis] for axis in blocks[k]) for k in kept)
        yield shape, tuple(kept.index(k) for k in (0, 2, 1, 3) if k in kept)
        current = [axis for k in (0, 2, 1, 3) for axis in blocks[k]]


def _nested_loops(order: Array) -> list[tuple[int, int]] | None:
    """Positions as those of nested loops: count and step of each loop, outermost first."""
    loops: list[tuple[int, int]] = []
    while order.size > 1:
        step = int(order[1] - order[0])
        breaks = np.flatnonzero(np.diff(order) != step)
        count = int(breaks[0]) + 1 if breaks.size else order.size
        rows = order.reshape(-1, count) if order.size % count == 0 else None
        if step < 1 or rows is None or not (np.diff(rows, axis=1) == step).all():
            return None
        loops.insert(0, (count, step))
        order = rows[:, 0]
    return loops or [(1, 1)]


def features_of(index_map: Array, shape: Shape, flat: bool) -> tuple[Array, Array] | None:
    """A value's last axis as features of rows.

    Args:
        flat: whether a row is a whole sample, whatever axes the sample has.

    Returns:
        two int64 arrays: the canonical row of each row, and the canonical feature of each feature,
        equal in all rows; None if the numbers are not in rows of features.
    """
    features = math.prod(shape[1:]) if flat else shape[-1]
    if not index_map.ndim or index_map.shape[-1] != features:
        return None
    rows = index_map.reshape(-1, features)
    row_indices, order = rows[:, 0] // features, rows[0] % features
    if not np.array_equal(row_indices[:, None] * features + order, rows):
        return None
    return row_indices, order


def per_channel(constant: Array, index_map: Array, shape: Shape) -> Array | None:
    """A constant that is combined with a value, as one number for each channel of the layer.

    Args:
        constant: broadcast to the value's shape.
        index_map: of the value.
        shape: of the layer's value.

    Returns:
        float64 [C], where C is the second axis of a map, of two or three axes, or of features, and the
        last axis of a sequence; None if the constant differs within a channel.
    """
    if len(shape) not in (2, 3, 4, 5):
        return None
    canonical = np.empty(math.prod(shape), np.float64)
    canonical[index_map.ravel()] = constant.ravel()
    axis = 2 if len(shape) == 3 else 1
    channels: Array = np.moveaxis(canonical.reshape(shape), axis, 0).reshape(shape[axis], -1)
    if not (channels == channels[:, :1]).all():
        return None
    result: Array = channels[:, 0]
    return result


def of_a_sample(numbers: Array) -> Array | None:
    """Numbers [N, ...] that all samples share, with size 1 where an axis has one; None if they differ."""
    if not (numbers == numbers[:1]).all():
        return None
    sample: Array = numbers[0]
    for axis in range(sample.ndim):
        first = sample.take([0], axis)
        sample = first if (sample == first).all() else sample
    return sample
