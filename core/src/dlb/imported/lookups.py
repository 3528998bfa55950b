"""Reads numbers in places along an axis that the graph computes."""

from __future__ import annotations

import onnx

from dlb.graph.lookups import lookup_of
from dlb.imported.constants import constant_value
from dlb.imported.importer import Importer
from dlb.imported.layers import unsupported
from dlb.imported.samples_first import aligned, samples_first
from dlb.imported.views import ValueView, positions, view_of
from dlb.workload.primitives import GatherElements

__all__ = ["look_up"]


def look_up(importer: Importer, node: onnx.NodeProto) -> ValueView | None:
    """A GatherElements, and what does the same; None if the indices are constants.

    Raises:
        UnsupportedNode: it is none, or selects along the batch.
    """
    trace, (data, indices) = importer.trace, node.input
    if indices not in trace.live:
        return None
    found = lookup_of(trace, node)
    if found is None:
        raise unsupported(node, "its indices depend on the input, and are not those of one axis")
    given = importer.reshaped(found.given, found.sizes)
    if data in trace.live:
        value, places = aligned(importer, node, [importer.reshaped(found.data, found.shape), given])
    else:
        places = samples_first(importer, node, given)
        value = constant_value(importer, node, trace.values[found.data], places)
    axis = places.axis(found.axis)
    if axis == 0:
        raise unsupported(node, "selects samples of the batch")
    shape = [*map(max, value.shape, places.shape)]
    shape[axis] = places.shape[axis]
    layer = GatherElements(axis=axis)
    name = importer.add(node, layer, [value.layer, places.layer], tuple(shape))
    view, output = places.view(name, tuple(shape)), importer.value_shape(node.output[0])
    index_map = positions(tuple(shape)) if view.index_map is None else view.index_map
    if index_map.size != trace.values[node.output[0]].size:
        raise unsupported(node, "has indices for a part of the value alone")
    return view_of(name, index_map.reshape(output), tuple(shape))
