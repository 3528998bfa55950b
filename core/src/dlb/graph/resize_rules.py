"""Reads interpolation: a matrix along each axis that is resized."""

from __future__ import annotations

from dataclasses import replace

from onnx import NodeProto

from dlb.graph.interpolation import interpolated_axes
from dlb.graph.layout import interpolation
from dlb.graph.reader import Attributes, Operation, Reader
from dlb.graph.slice_rules import slice_indices

__all__ = ["resize"]


def resize(reader: Reader, node: NodeProto, raw: Attributes, output: str) -> Operation | int:
    """A Resize or Upsample: selected indices, or products with a matrix, as frameworks may write them."""
    layer = interpolation(reader.trace, node)
    shape = reader.trace.values[node.input[0]].shape
    if layer is None or layer.sizes[reader.batch_axis(shape)] != reader.trace.batch:
        return slice_indices(reader, node, raw, output)
    operation: Operation | None = None
    elements = reader.trace.elements(node.input[0])
    for _, taps in interpolated_axes(layer, shape):
        weight = (len(taps.indices), taps.size)
        elements = elements // taps.size * len(taps.indices)
        if operation is not None:
            reader.operations.append(operation)
        source = None if operation is None else (len(reader.operations) - 1,)
        attributes = {"weight": weight, "bias": False, "elements": elements}
        operation = reader.make(node, "Linear", attributes, node.input[:1], weight[0] * weight[1])
        operation = operation if source is None else replace(operation, inputs=source)
    return reader.source[node.input[0]] if operation is None else operation
