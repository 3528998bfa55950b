"""Reads padding, slicing, splitting and concatenation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from onnx import NodeProto

from dlb.graph.decimals import six_digits
from dlb.graph.layout import padding_of, selected_indices
from dlb.graph.linear_parts import part_of_linear
from dlb.graph.reader import Attributes, Operation, Reader, generic_operation
from dlb.graph.trace import attributes_of
from dlb.graph.transposed_rules import cropped
from dlb.graph.window_rules import conv, first_windows, pool

__all__ = ["concat", "pad", "slice_indices", "split"]


def concat(reader: Reader, node: NodeProto, raw: Attributes, output: str) -> Operation | int:
    if len(reader.live_inputs(node)) != len(node.input):
        return generic_operation(reader, node, raw, output)
    if len(node.input) == 1:
        return reader.source[node.input[0]]
    sizes: list[int] = []
    inputs: list[int] = []
    for name in node.input:
        value, source = reader.trace.values[name], reader.source[name]
        if _is_concatenated(reader, name, raw["axis"]):
            sizes += reader.operations[source].attributes["sizes"]
            inputs += reader.operations[source].inputs
            continue
        sizes.append(value.shape[raw["axis"]])
        inputs.append(source)
    return replace(reader.make(node, "Concat", {"sizes": tuple(sizes)}), inputs=tuple(inputs))


def _is_concatenated(reader: Reader, name: str, axis: int) -> bool:
    """Whether a value is itself a concatenation along an axis.

    Some exporters merge it into the concatenation that reads it, and transpose before or after.
    """
    trace, source = reader.trace, reader.source[name]
    node, shape = trace.producers.get(name), trace.values[name].shape
    axis %= len(shape)
    while node is not None and node.op_type != "Concat":
        if reader.source.get(node.input[0]) != source:
            return False
        if node.op_type == "Transpose":
            if trace.values[node.output[0]].shape != shape:
                return False
            axis = attributes_of(node).get("perm", range(len(shape))[::-1])[axis]
            shape = trace.values[node.input[0]].shape
        node = trace.producers.get(node.input[0])
    if node is None or reader.operations[source].kind != "Concat":
        return False
    # Operators in between may reshape the value, and back.
    if trace.values[node.output[0]].shape != shape:
        return False
    return bool((attributes_of(node)["axis"] - axis) % len(shape) == 0)


def slice_indices(reader: Reader, node: NodeProto, raw: Attributes, output: str) -> Operation | int:
    """Selected indices along the axes of a value, by one or several Gathers or Slices.

    The axis depends on the layout. The size of the axis and the selected indices do not.
    """
    shape = reader.trace.values[node.input[0]].shape
    indices_by_axis = selected_indices(reader.trace, node, list(node.output).index(output))
    if indices_by_axis is None:
        return generic_operation(reader, node, raw, output)
    selected = {
        axis: tuple(indices)
        for axis, indices in indices_by_axis.items()
        if list(indices) != list(range(shape[axis]))
    }
    if reader.batch_axis(shape) in selected:
        return generic_operation(reader, node, raw, output)
    cuts = [(shape[axis], indices) for axis, indices in selected.items()]
    source = reader.source[node.input[0]]
    if not cuts:
        return source
    windows = first_windows(reader.trace, output)
    if windows is not None:
        window_node, sizes = windows
        rule = conv if window_node.op_type == "Conv" else pool
        return rule(reader, window_node, attributes_of(window_node), output, sizes)
    transposed = cropped(reader, output)
    if transposed is not None:
        return transposed
    inputs: tuple[int, ...] = (source,)
    if source >= 0 and reader.operations[source].kind == "Slice":
        previous = reader.operations[source]
        cuts, inputs = [*previous.attributes["indices"], *cuts], previous.inputs
    operation = reader.make(node, "Slice", {"indices": sorted(cuts)}, node.input[:1])
    return replace(operation, inputs=inputs)


def split(reader: Reader, node: NodeProto, raw: Attributes, output: str) -> Operation | int:
    """Several parts of a value.

    Parts of a linear layer's features are linear layers: one matrix may produce queries, keys and
    values.
    """
    part = part_of_linear(reader, output)
    if part is None:
        return slice_indices(reader, node, raw, output)
    linear, rows = part.whole, part.features
    weight = (len(rows), linear.attributes["weight"][1])
    bias = reader.trace.values[linear.bias_name].ravel()[rows] if linear.bias_name else np.zeros(0)
    return replace(
        linear,
        attributes={**linear.attributes, "weight": weight},
        parameters=len(rows) * weight[1] + bias.size,
        matrix=None if linear.matrix is None else linear.matrix[rows],
        matrix_name="",
        nonzero_bias=bool(bias.any()) if linear.bias_name else linear.nonzero_bias,
    )


def pad(reader: Reader, node: NodeProto, raw: Attributes, output: str) -> Operation | int:
    """A constant padding, whatever the order of the axes."""
    before, after = (reader.trace.values[name].shape for name in (node.input[0], output))
    numbers = padding_of(reader.trace, node)
    if numbers is None:
        return slice_indices(reader, node, raw, output)
    pads, value = numbers
    rank = len(before)
    padded_axes = [
        (size, pads[axis], pads[rank + axis])
        for axis, size in enumerate(before)
        if size != after[axis]
    ]
    attributes = {"pads": sorted(padded_axes), "value": six_digits(value)}
    return reader.make(node, "Pad", attributes, node.input[:1])
