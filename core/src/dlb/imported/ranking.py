"""Reads which numbers along an axis are the largest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx

from dlb.graph.ranking import ranking_of
from dlb.imported.importer import Importer
from dlb.imported.layers import unsupported
from dlb.imported.samples_first import samples_first
from dlb.imported.views import ValueView, positions, view_of
from dlb.workload.primitives import GatherElements, TopK

__all__ = ["rank"]


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
