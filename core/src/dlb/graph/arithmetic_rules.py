"""Reads arithmetic: biases, scales, shifts, position tables, and decomposed layers."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from onnx import NodeProto

from dlb.graph.blocks import Block, gelu, hard_sigmoid, layer_normalization
from dlb.graph.decimals import ROUNDING, six_digits
from dlb.graph.decomposed_lrn import decomposed_lrn, lrn_constants
from dlb.graph.elementwise import FUNCTIONS
from dlb.graph.elementwise_blocks import decomposed
from dlb.graph.layout import before_expand, before_layout
from dlb.graph.masks import MASKED, added_mask, mask_operation
from dlb.graph.norm_blocks import group_normalization, rms_normalization
from dlb.graph.reader import WEIGHTED, Attributes, Operation, Reader, generic_operation
from dlb.graph.slope_blocks import prelu
from dlb.graph.window_rules import RescaledPool, first_windows, rescaled_pool, without_axes

__all__ = ["arithmetic", "from_block", "from_function", "norm_attributes"]


def arithmetic(reader: Reader, node: NodeProto, raw: Attributes, output: str) -> Operation | int:
    """Sums and products of two values, or of a value and a constant.

    The node may also be the last operator of a decomposed layer.
    """
    block = gelu(reader.trace, node) or _normalization(reader, node)
    block = block or hard_sigmoid(reader, node) or prelu(reader, node)
    if block is not None:
        return from_block(reader, node, block, output)
    function = from_function(reader, node, output)
    if function is not None:
        return function
    live = reader.live_inputs(node)
    if node.op_type == "Sum" and len(node.input) == 1:
        return reader.source[node.input[0]]
    if len(live) == len(node.input) == 2:
        operands = [before_expand(reader.trace, name) for name in live]
        if node.op_type == "Mul":
            return reader.make(node, "Mul", {}, operands)
        if node.op_type in ("Add", "Sum"):
            return reader.make(node, "Add", {}, operands)
        if node.op_type == "Sub":
            return reader.make(node, "Sub", {}, operands)
        if node.op_type == "Div":
            lrn_attributes = decomposed_lrn(reader.trace, reader.source, node)
            if lrn_attributes is not None:
                reader.nominal_values.update(lrn_constants(reader.trace, node))
                return reader.make(node, "LRN", lrn_attributes, [node.input[0]])
            return reader.make(node, "Div", {}, operands)
    operation: Operation | int | None = None
    if len(live) == 1 and len(node.input) == 2:
        operation = _constant_arithmetic(reader, node, live[0], output)
    if operation is None:
        return generic_operation(reader, node, raw, output)
    return operation


def _normalization(reader: Reader, node: NodeProto) -> Block | None:
    """The normalisation that ends in a node, or None.

    One group is a layer normalisation too, with a scale for each number. With scales of one, a normalisation of
    features is also one of as many steps: then it is of features.
    """
    groups = group_normalization(reader, node)
    if groups is not None and groups.attributes.get("groups", 1) == 1:
        return groups
    return layer_normalization(reader, node) or groups or rms_normalization(reader, node)


def from_function(reader: Reader, node: NodeProto, output: str) -> Operation | None:
    """The function of single numbers that ends in a node, or None."""
    found = decomposed(reader.trace, node)
    if found is None:
        return None
    # The importer has one rule for all of them, named for the operator that has no other.
    reader.blocks[output] = Block(
        "Where",
        {"function": found.function, **found.numbers},
        (found.input,),
        nominal_values=found.nominal_values,
        intermediates=found.intermediates,
    )
    reader.nominal_values.update(found.nominal_values)
    numbers = {name: six_digits(number) for name, number in found.numbers.items()}
    return reader.make(node, FUNCTIONS[found.function].operator, numbers, [found.input])


def _constant_arithmetic(
    reader: Reader, node: NodeProto, name: str, output: str
) -> Operation | int | None:
    """A bias, a scale, a shift or a position table; None for any other constant."""
    index = 1 if node.input[0] == name else 0
    constant = np.asarray(reader.trace.values[before_expand(reader.trace, node.input[index])])
    shape = reader.trace.values[name].shape
    batch_axis = reader.batch_axis(shape)
    if constant.ndim == len(shape) and (constant == constant.take([0], batch_axis)).all():
        constant = constant.take([0], batch_axis)  # it may be repeated for each sample
    masked = _added_mask(reader, node, name, index)
    if masked is not None:
        return masked
    if node.op_type == "Div" and index == 0 and constant.size == 1 and constant.item() == 1:
        return reader.make(node, "Reciprocal", {}, [name])
    if node.op_type in ("Add", "Sum"):
        table = _position_table(constant, shape, batch_axis)
        if table is not None:
            sizes = {"table": table}
            return reader.make(node, "PositionEmbedding", sizes, [name], math.prod(table))
    previous = reader.operation_of(name)
    shifts = node.op_type in ("Add", "Sum") or (node.op_type == "Sub" and index == 1)
    scales = node.op_type == "Mul" or (node.op_type == "Div" and index == 1)
    if scales:
        pooling = _scaled_pool(reader, node, index, constant, previous, output)
        if pooling is not None:
            return pooling
    width = previous.attributes["weight"][0] if previous.kind in WEIGHTED else 0
    if shifts and width == constant.size and not previous.attributes["bias"]:
        return reader.with_bias(previous, node.input[index])
    if constant.size == 1 and np.all(constant == (0 if shifts else 1)) and (shifts or scales):
        return reader.source[name]
    affine = {"channels": constant.size, "scaled": scales}
    is_number = constant.size == 1 and 1 not in (*shape[:batch_axis], *shape[batch_axis + 1 :])
    if is_number and (shifts or scales):
        number = constant.item()
        inverse = node.op_type in ("Div", "Sub")
        by = (1 / number if scales else -number) if inverse else number
        return reader.make(node, "Scale" if scales else "Shift", {"by": six_digits(by)}, [name])
    if not (shifts or scales):
        return None
    if previous.kind != "Affine" or previous.attributes["channels"] != constant.size:
        return reader.make(node, "Affine", affine, [name], constant.size)
    if not (shifts and previous.attributes["scaled"]):
        return replace(previous, attributes=affine)
    return replace(
        previous,
        kind="BatchNormalization",
        attributes={"channels": constant.size, "epsilon": None, "training": False},
        parameters=2 * constant.size,
    )


def _added_mask(reader: Reader, node: NodeProto, name: str, index: int) -> Operation | None:
    """Zeros and minus infinities that are added, as the Where that they are; None for other numbers."""
    if node.op_type not in ("Add", "Sum") and not (node.op_type == "Sub" and index == 1):
        return None
    numbers = reader.trace.values[node.input[index]]
    numbers = -numbers if node.op_type == "Sub" else numbers
    kept = added_mask(numbers)
    if kept is None or numbers[kept].any():
        return None
    kept = np.broadcast_to(kept, reader.trace.values[node.output[0]].shape)
    return mask_operation(reader, node, name, kept, MASKED)


def _scaled_pool(
    reader: Reader,
    node: NodeProto,
    index: int,
    constant: np.ndarray,
    previous: Operation,
    output: str,
) -> Operation | None:
    """A pooling whose output is multiplied or divided by the node's constant input, or None."""
    scale = 1 / constant if node.op_type == "Div" else constant
    value, scale = before_layout(reader.trace, node.input[1 - index], scale)
    windows = first_windows(reader.trace, value)
    if windows is not None and windows[0].op_type == "AveragePool":
        pooling = rescaled_pool(reader, windows[0], scale, windows[1])
        if pooling is not None:
            exact = pooling.scale if node.op_type == "Mul" else 1 / pooling.scale
            if pooling.channels is None and constant.size == exact.size:
                exact = exact.reshape(constant.shape)
                if np.allclose(constant, exact, rtol=ROUNDING, atol=0):
                    reader.nominal_values[node.input[index]] = exact
            return _from_rescaled_pool(reader, node, pooling, previous, output)
    if previous.kind == "ReduceSum" and constant.size == 1 and "of" in previous.attributes:
        number = float(constant.ravel()[0])
        count = number if node.op_type == "Div" else 1 / number
        if math.isclose(count, previous.attributes["of"]):
            return replace(previous, kind="ReduceMean")
    return None


def _position_table(
    constant: np.ndarray, shape: tuple[int, ...], batch_axis: int
) -> tuple[int, ...] | None:
    """The sizes of a table [T, features] that is added to every sequence of a value, or None.

    The smaller size comes first, since an exporter may transpose the table.
    """
    if constant.ndim == len(shape) and constant.shape[batch_axis] == 1:
        constant = constant.take(0, batch_axis)
    sizes = shape[:batch_axis] + shape[batch_axis + 1 :]
    if len(shape) != 3 or min(sizes) == 1 or constant.shape != sizes:
        return None
    return tuple(sorted(sizes))


def from_block(reader: Reader, node: NodeProto, block: Block, output: str) -> Operation:
    """The operation of a block; with a further one if the block also scales, adds or multiplies."""
    reader.blocks[output] = block
    reader.nominal_values.update(block.nominal_values)
    attributes = dict(block.attributes)
    if block.kind == "LayerNormalization":
        attributes = norm_attributes(**attributes)
    operation = reader.make(node, block.kind, attributes, list(block.inputs), block.parameters)
    extra_inputs: tuple[int, ...] = ()
    if block.kind == "HardSwish":
        operation = replace(operation, kind="HardSigmoid")
        second, extra_inputs, parameters = (
            replace(operation, kind="Mul", attributes={}),
            operation.inputs,
            0,
        )
    elif block.table is not None:
        table = tuple(sorted(block.table.shape))
        second = replace(operation, kind="PositionEmbedding", attributes={"table": table})
        parameters = block.table.size
    elif block.kind == "Gelu" and block.weights:
        parameters = block.weights["scale"].size
        second = replace(
            operation, kind="Affine", attributes={"channels": parameters, "scaled": True}
        )
    else:
        return operation
    operation.attributes["elements"] = reader.trace.elements(output)
    reader.operations.append(operation)
    return replace(
        second, inputs=(*extra_inputs, len(reader.operations) - 1), parameters=parameters
    )


def _from_rescaled_pool(
    reader: Reader,
    node: NodeProto,
    rescaled: RescaledPool,
    previous: Operation,
    output: str,
) -> Operation:
    """An average pooling; with a further operation if its channels are scaled."""
    inputs = (reader.source[rescaled.value],)
    attributes = without_axes(rescaled.attributes, rescaled.idle)
    pooling = replace(previous, attributes=attributes, inputs=inputs)
    if rescaled.channels is None:
        return pooling
    pooling.attributes["elements"] = reader.trace.elements(output)
    reader.operations.append(pooling)
    channels = rescaled.channels.size
    operation = reader.make(
        node, "Affine", {"channels": channels, "scaled": True}, parameters=channels
    )
    return replace(operation, inputs=(len(reader.operations) - 1,))


def norm_attributes(features: int, epsilon: float) -> Attributes:
    """With one feature, only the bias has an effect, whatever epsilon is."""
    return {"features": features, "epsilon": epsilon if features > 1 else None}
