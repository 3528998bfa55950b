"""Maps that a convolution or a pooling reads: one of each sample, or several, as those of windows or steps.

Maps of one spatial axis, [N, C, L], are read as maps [N, C, L, 1], whose windows are one wide. Maps of two and
three axes are read as they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from dlb_graph import layers as L
from dlb_graph.layers.numbers import Array
from dlb_graph.layers.windows import Window
from dlb_graph.reading.importer import Importer
from dlb_graph.reading.layers import unsupported
from dlb_graph.reading.views import Shape, ValueView, positions, rows_by_sample, view_of

__all__ = [
    "Maps",
    "add_map",
    "map_layer",
    "map_shape_of",
    "maps_of_samples",
    "pads_of",
    "rows_as_map",
    "sizes_of",
]


def map_layer(
    importer: Importer, node: onnx.NodeProto, name: str, map_shape: Shape | None = None
) -> str:
    """The layer whose map [N, C, H, W], [N, C, D, H, W] or [N, C, L, 1] a value is.

    Args:
        map_shape: the map's shape in the file, if only the operator's order of axes shows it.

    Raises:
        InputMisread, UnsupportedNode: as :meth:`Importer.as_map`.
    """
    if importer.trace.values[name].ndim != 3:
        return importer.as_map(node, name, map_shape).layer
    if map_shape not in (None, importer.value_shape(name)):
        raise unsupported(node, "reads padded rows whose axes are in another order")
    return rows_as_map(importer, node, name).layer


def rows_as_map(importer: Importer, node: onnx.NodeProto, name: str) -> ValueView:
    """The view of a layer's map [N, C, L, 1] whose numbers a value [N, C, L] has in their order."""
    shape = (*importer.value_shape(name), 1)
    view = importer.view(name)
    if importer.shape(view) != shape or not np.array_equal(
        importer.index_map(name).reshape(shape), positions(shape)
    ):
        view = importer.materialise_layout(name, width=True)
    if importer.shape(view) != shape:
        raise unsupported(
            node, f"reads the numbers of layer '{view.layer}' in an order that no layer produces"
        )
    return view_of(view.layer, positions(shape).reshape(shape[:3]), shape)


def add_map(
    importer: Importer,
    node: onnx.NodeProto,
    layer: L.Layer,
    data: str,
    weights: Mapping[str, Array] | None = None,
) -> ValueView:
    """Add a layer whose value is a map in canonical layout, as the file's value is."""
    shape = map_shape_of(importer.value_shape(node.output[0]))
    return importer.value_of(node, importer.add(node, layer, [data], shape, weights))


def map_shape_of(shape: Shape) -> Shape:
    """The shape of a map that is read from a value [N, C, ...]."""
    return (*shape, 1) if len(shape) == 3 else shape


def sizes_of(numbers: Sequence[int], of_width: int) -> tuple[int, ...]:
    """A number for each axis of a window; ``of_width`` is the second if a map has one axis."""
    sizes = tuple(int(number) for number in numbers)
    return (*sizes, of_width) if len(sizes) == 1 else sizes


def pads_of(before: Sequence[int], after: Sequence[int]) -> tuple[int, ...]:
    """Pads in ONNX's order."""
    return *sizes_of(before, 0), *sizes_of(after, 0)


@dataclass(frozen=True, eq=False)
class Maps:
    """What windows read.

    Attributes:
        layer: its map, or the maps of each sample as a film, [N, C, maps, ...].
        order: int64, the places of the maps of all samples, those of the first sample first; None for one map.
    """

    layer: str
    order: Array | None = None

    def sizes(self, numbers: Sequence[int], neutral: int) -> tuple[int, ...]:
        """A number for each axis of a window; ``neutral`` along axes that the file's value does not have."""
        if self.order is None:
            return sizes_of(numbers, neutral)
        return (neutral, *map(int, numbers))

    def pads(self, window: Window) -> tuple[int, ...]:
        """Pads in ONNX's order."""
        return *self.sizes(window.before, 0), *self.sizes(window.after, 0)

    def add(
        self,
        importer: Importer,
        node: onnx.NodeProto,
        layer: L.Layer,
        weights: Mapping[str, Array] | None = None,
    ) -> ValueView:
        """Add a layer that reads it, and return the view of the node's value."""
        if self.order is None:
            return add_map(importer, node, layer, self.layer, weights)
        batch = importer.layers[self.layer].shape[0]
        _, channels, *sizes = importer.value_shape(node.output[0])
        shape = (batch, channels, len(self.order) // batch, *sizes)
        name = importer.add(node, layer, [self.layer], shape, weights)
        maps = positions(shape).swapaxes(1, 2).reshape(-1, channels, *sizes)
        return view_of(name, maps[np.argsort(self.order)], shape)


def maps_of_samples(importer: Importer, name: str) -> Maps | None:
    """Several maps of each sample, [maps of all samples, C, ...], as a film; None if each sample has one."""
    view = importer.view(name)
    if view.index_map is None:
        return None
    index_map = view.index_map
    batch, *sample = importer.shape(view)
    if index_map.ndim not in (3, 4) or len(index_map) <= batch:
        return None
    order = rows_by_sample(index_map.reshape(len(index_map), -1)[:, 0] // math.prod(sample), batch)
    if order is None:
        return None
    films = index_map[order].reshape(batch, -1, *index_map.shape[1:]).swapaxes(1, 2)
    found = importer.materialise(name, films)
    whole = found.index_map is None and importer.shape(found) == films.shape
    return Maps(found.layer, order) if whole else None
