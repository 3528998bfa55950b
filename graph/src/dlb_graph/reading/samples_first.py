"""Values in an order that layers have: samples first, whatever axis of the file's value they are along.

Networks of time put steps first, and networks of windows count each window as a sample. A layer reads the
samples of the batch first, and the windows of one sample along the next axis. A constant beside such a value,
such as queries that a network learns, is a value of every sample.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from dlb_graph.layers import MOST_AXES, Concat, Gather, Pad, Reshape, Shift, Slice
from dlb_graph.layers.numbers import Array
from dlb_graph.reading.importer import Importer
from dlb_graph.reading.layers import unsupported
from dlb_graph.reading.views import (
    Shape,
    ValueView,
    of_a_sample,
    positions,
    rows_by_sample,
    view_of,
)

__all__ = [
    "SamplesFirst",
    "aligned",
    "constant_value",
    "enlarged",
    "joined",
    "repeated",
    "samples_first",
    "whole_value",
]


@dataclass(frozen=True)
class SamplesFirst:
    """A value of the file as a layer's value.

    Attributes:
        layer: the name of the layer.
        shape: of its value, [N, ...], or [N, windows, ...] where the file counts windows as samples.
        axes: of the file's value, in the order of the layer's.
        rows: of the file's axis of samples, those of each sample of the batch in turn; empty where each is
            one of the batch.
    """

    layer: str
    shape: Shape
    axes: tuple[int, ...]
    rows: tuple[int, ...] = ()

    @property
    def layout(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """What two values have in common whose axes mean the same."""
        return self.axes, self.rows

    @property
    def shifted(self) -> int:
        """How many axes the layer's value has more than the file's."""
        return int(bool(self.rows))

    def axis(self, axis: int) -> int:
        """The layer's axis for an axis of the file's value; 0 is the batch."""
        place = self.axes.index(axis)
        alone = self.shape[0] == 1  # a single sample may be all of a file's axis
        return place + self.shifted if place or alone else 0

    def view(self, layer: str, shape: Shape) -> ValueView:
        """A layer's value of the same axes as the file has it.

        Args:
            shape: of the layer's value. Axes may have other sizes, and none is missing.
        """
        samples = shape[0] * (shape[1] if self.shifted else 1)
        merged = positions(shape).reshape(samples, *shape[1 + self.shifted :])
        merged = merged[np.argsort(self.rows)] if samples == len(self.rows) else merged
        return view_of(layer, merged.transpose(np.argsort(self.axes)), shape)


def aligned(importer: Importer, node: onnx.NodeProto, names: Sequence[str]) -> list[SamplesFirst]:
    """Values whose axes mean the same, as layers'.

    Raises:
        UnsupportedNode: as :func:`samples_first`, or their layouts differ.
    """
    values = [samples_first(importer, node, name) for name in names]
    if len({value.layout for value in values}) > 1 and values[0].shape[0] == 1:
        values = [samples_first(importer, node, name, alone=True) for name in names]
    layouts = {(value.axes, value.rows if value.shape[0] > 1 else ()) for value in values}
    if len(layouts) > 1:
        raise unsupported(node, "combines values whose layouts differ")
    return values


def samples_first(
    importer: Importer, node: onnx.NodeProto, name: str, *, alone: bool = False
) -> SamplesFirst:
    """A value as a layer's, with layers that rearrange it if they are needed.

    Args:
        alone: of a batch of one, whose sample is the whole value.

    Raises:
        UnsupportedNode: no layers produce such an order, or the value has too many axes.
    """
    value_shape = importer.value_shape(name)
    view = importer.materialise_layout(name)
    found = SamplesFirst(view.layer, value_shape, tuple(range(len(value_shape))))
    if alone or view.index_map is not None or importer.shape(view) != value_shape:
        every_row = (0, tuple(range(value_shape[0] if value_shape else 0)))
        along = every_row if alone and value_shape else _samples_along(importer, name)
        if along is None:
            raise unsupported(node, f"reads {list(value_shape)} in an order that no layer produces")
        axis, rows = along
        axes = (axis, *(other for other in range(len(value_shape)) if other != axis))
        batch = importer.shape(importer.view(name))[0]
        first, *others = (value_shape[axis] for axis in axes)
        merged = alone or first > batch
        shape = (batch, *([first // batch] if merged else []), *others)
        index_map = importer.index_map(name).transpose(axes)[list(rows)].reshape(shape)
        view = importer.materialise(name, index_map)
        if view.index_map is not None or importer.shape(view) != shape:
            raise unsupported(node, f"reads {list(value_shape)} in an order that no layer produces")
        found = SamplesFirst(view.layer, shape, axes, rows if merged else ())
    if len(found.shape) > MOST_AXES + 1:
        most = f"at most {MOST_AXES + 1} are supported"
        raise unsupported(node, f"reads a value of {len(found.shape)} axes; {most}")
    return found


def joined(
    importer: Importer, node: onnx.NodeProto, values: Sequence[SamplesFirst], along: int
) -> ValueView:
    """Values one after the other along an axis of a layer's.

    Raises:
        UnsupportedNode: the axis is that of the samples.
    """
    if not along:
        raise unsupported(node, "joins samples")
    first = values[0]
    size = sum(value.shape[along] for value in values)
    shape = (*first.shape[:along], size, *first.shape[along + 1 :])
    layers = [value.layer for value in values]
    return first.view(importer.add(node, Concat(axis=along), layers, shape), shape)


def whole_value(importer: Importer, node: onnx.NodeProto, name: str) -> str:
    """The layer that computes a value in the file's own layout, batch first."""
    found = samples_first(importer, node, name)
    if found.shape != importer.value_shape(name):
        raise unsupported(
            node, f"reads {list(importer.value_shape(name))} with its samples not first"
        )
    return found.layer


def repeated(importer: Importer, node: onnx.NodeProto, value: SamplesFirst, shape: Shape) -> str:
    """The layer of a value whose axes of size 1 are repeated to a shape."""
    name, current = value.layer, list(value.shape)
    for axis, size in enumerate(shape):
        if current[axis] != size:
            current[axis] = size
            name = importer.add(
                node, Gather(axis=axis, indices=(0,) * size), [name], tuple(current)
            )
    return name


def enlarged(importer: Importer, node: onnx.NodeProto, name: str) -> ValueView:
    """A value, repeated along the axes along which a node's constant has more numbers."""
    output, own = importer.value_shape(node.output[0]), importer.value_shape(name)
    if output == own:
        return importer.elementwise(name)
    if math.prod(output) == math.prod(own):  # axes of size 1 alone are more
        view = importer.elementwise(name)
        return ValueView(view.layer, importer.index_map_of(view).reshape(output))
    value = samples_first(importer, node, name)
    if len(output) != len(value.axes):
        raise unsupported(node, "its constant has more axes than the value")
    sizes = list(value.shape)
    for axis, size in enumerate(output):
        place = value.axis(axis)
        if place:
            sizes[place] = size
        elif size != importer.value_shape(name)[axis]:
            raise unsupported(node, "its constant repeats the value along the batch")
    shape = tuple(sizes)
    return value.view(repeated(importer, node, value, shape), shape)


def _samples_along(importer: Importer, name: str) -> tuple[int, tuple[int, ...]] | None:
    """The axis of a value along which its samples are, and its rows, those of the first sample first.

    None if samples are along several axes, or mixed.
    """
    shape, index_map = importer.shape(importer.view(name)), importer.index_map(name)
    sample = index_map // math.prod(shape[1:])
    # The axis of the fewest rows: with a single sample, any axis fits.
    for axis in sorted(range(index_map.ndim), key=lambda axis: index_map.shape[axis]):
        rows = np.moveaxis(sample, axis, 0).reshape(index_map.shape[axis], -1)
        order = rows_by_sample(rows[:, 0], shape[0])
        if order is not None and (rows == rows[:, :1]).all():
            return axis, tuple(order.tolist())
    return None


def constant_value(
    importer: Importer, node: onnx.NodeProto, numbers: Array, beside: SamplesFirst
) -> SamplesFirst:
    """A constant as a value of every sample: zeros, to which trained numbers are added.

    Args:
        numbers: of the file's axes, with a size of 1 or of the batch along that of ``beside``'s samples.
        beside: a value with as many axes, which the zeros are made of.

    Raises:
        UnsupportedNode: the axes are others, or the numbers differ between samples.
    """
    batch, rank = beside.shape[0], len(beside.shape)
    if beside.rows or numbers.ndim != rank:
        raise unsupported(
            node, f"reads a constant {list(numbers.shape)} beside {list(beside.shape)}"
        )
    ordered = numbers.transpose(beside.axes)
    trained = of_a_sample(ordered)
    if len(ordered) not in (1, batch) or trained is None:
        raise unsupported(node, "its constant differs between samples")
    ones = (1,) * (rank - 1)
    # A zero that is put before a number of the value: not 0 times the number, which may be infinite.
    name = _sliced(importer, node, beside.layer, ones, batch)
    name = importer.add(node, Reshape(shape=(1,)), [name], (batch, 1))
    name = importer.add(node, Pad(pads=(1, 0)), [name], (batch, 2))
    name = _sliced(importer, node, name, (1,), batch)
    name = importer.add(node, Reshape(shape=ones), [name], (batch, *ones))
    shape = (batch, *ordered.shape[1:])
    name = repeated(importer, node, SamplesFirst(name, (batch, *ones), beside.axes), shape)
    weights = {"bias": np.ascontiguousarray(trained)}
    name = importer.add(node, Shift(sizes=trained.shape), [name], shape, weights)
    return SamplesFirst(name, shape, beside.axes)


def _sliced(
    importer: Importer, node: onnx.NodeProto, name: str, ones: tuple[int, ...], batch: int
) -> str:
    """The first number of each sample."""
    first = Slice(starts=(0,) * len(ones), ends=ones, steps=ones)
    return importer.add(node, first, [name], (batch, *ones))
