"""Reads which numbers are the largest, and numbers in places that the graph computes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx

from dlb.graph.copies import moves_numbers
from dlb.graph.ranking import gathered_axis, ranking_of
from dlb.graph.trace import Trace
from dlb.imported.constants import constant_value
from dlb.imported.importer import Importer
from dlb.imported.layers import unsupported
from dlb.imported.places import select_places
from dlb.imported.samples_first import aligned, samples_first
from dlb.imported.views import ValueView, positions, view_of
from dlb.workload.primitives import GatherElements, TopK

__all__ = ["gather_elements", "only_selects", "rank"]


def rank(importer: Importer, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> ValueView:
    """TopK, ArgMax and ArgMin along an axis of a sample: indices, and with TopK the numbers at them."""
    found = ranking_of(importer.trace, node)
    if found is None:
        raise unsupported(
            node,
            "how many numbers it chooses depends on the input, or it chooses the last of equal ones",
        )
    value = samples_first(importer, node, node.input[0])
    if value.shape[0] == 1 and value.axis(found.axis) == 0:  # a batch of one: the whole value
        value = samples_first(importer, node, node.input[0], alone=True)
    axis = value.axis(found.axis)
    if axis == 0:
        raise unsupported(node, "compares samples of the batch")
    shape = (*value.shape[:axis], found.k, *value.shape[axis + 1 :])
    layer = TopK(axis=axis, k=found.k, largest=found.largest)
    name = importer.add(node, layer, [value.layer], shape)
    indices = value.view(name, shape)
    if node.op_type == "TopK":
        importer.also(node.output[1], indices)
        numbers = importer.add(node, GatherElements(axis=axis), [value.layer, name], shape)
        return value.view(numbers, shape)
    index_map = positions(shape) if indices.index_map is None else indices.index_map
    output = importer.value_shape(node.output[0])  # without the axis, perhaps
    return view_of(name, index_map.reshape(output), shape)


def only_selects(trace: Trace, name: str) -> bool:
    """Whether a value is nothing but the indices of a GatherElements, or of several."""
    readers = [node for node in trace.nodes if name in node.input]
    return bool(readers) and all(
        (gathered_axis(trace, node) is not None and node.input[0] != name)
        or (moves_numbers(trace, node) and only_selects(trace, node.output[0]))
        for node in readers
    )


def gather_elements(
    importer: Importer, node: onnx.NodeProto, attributes: Mapping[str, Any]
) -> ValueView:
    """Numbers in places along an axis; the places are constants, or computed."""
    trace, (data, indices) = importer.trace, node.input
    if indices not in trace.live:
        return select_places(importer, node, attributes)
    axis = gathered_axis(trace, node)
    if axis is None:
        raise unsupported(node, "its indices depend on the input, and are not those of one axis")
    rank = len(importer.value_shape(data))
    if node.op_type == "GatherND":  # the same number of every axis behind the indices
        shape = importer.value_shape(indices)[:-1]
        indices = importer.reshaped(indices, (*shape, *(1,) * (rank - len(shape))))
    if data in trace.live:
        value, places = aligned(importer, node, [data, indices])
    else:
        places = samples_first(importer, node, indices)
        value = constant_value(importer, node, trace.values[data], places)
    axis = places.axis(axis)
    if axis == 0:
        raise unsupported(node, "selects samples of the batch")
    others = [each.shape[:axis] + each.shape[axis + 1 :] for each in (value, places)]
    exact = node.op_type == "GatherElements"
    if any(m != n and (exact or m != 1) for m, n in zip(others[1], others[0])):
        raise unsupported(node, "has indices for a part of the value alone")
    layer = GatherElements(axis=axis)
    output = (*value.shape[:axis], places.shape[axis], *value.shape[axis + 1 :])
    name = importer.add(node, layer, [value.layer, places.layer], output)
    return places.view(name, output)
