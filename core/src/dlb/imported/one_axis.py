"""Maps of one spatial axis, [N, C, L]: read as maps [N, C, L, 1], whose windows are one wide.

Maps of two and three axes are read as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from dlb.imported.importer import Importer
from dlb.imported.layers import unsupported
from dlb.imported.views import Shape, ValueView, positions, view_of
from dlb.workload import layers as L

__all__ = ["add_map", "map_layer", "map_shape_of", "pads_of", "rows_as_map", "sizes_of"]

Array = npt.NDArray[Any]


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
    value_shape = importer.value_shape(node.output[0])
    shape = map_shape_of(value_shape)
    name = importer.add(node, layer, [data], shape, weights)
    return view_of(name, positions(shape).reshape(value_shape), shape)


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
