"""What an ONNX graph computes, independent of layout: the form in which graphs are compared."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import onnx

from dlb.graph.blocks import Block, attention, gelu, hard_sigmoid, layer_normalization
from dlb.graph.bounds import bounds_of
from dlb.graph.decimals import ROUNDING, is_sixth, six_digits
from dlb.graph.decomposed_lrn import decomposed_lrn, lrn_constants
from dlb.graph.layout import before_expand, padding_of, selected_indices
from dlb.graph.linear_parts import part_of_linear
from dlb.graph.reader import Attributes, Operation, Reader, Rule, generic_operation
from dlb.graph.trace import Trace, attributes_of, trace
from dlb.graph.window_rules import RescaledPool, conv, first_windows, pool, rescaled_pool

__all__ = ["Operation", "before_layout", "operations", "reader_of"]


def operations(model: onnx.ModelProto) -> list[Operation]:
    """What a model computes, in an order in which each operation follows its inputs.

    Raises:
        UnsupportedError: the model cannot be run.
    """
    result = Reader(trace(model), _RULES).read()
    if any(operation.kind == "Embedding" for operation in result):
        return result
    # Without a table nothing is shared, and the matrices of a large network are gigabytes.
    return [replace(operation, matrix=None) for operation in result]


def reader_of(traced: Trace) -> Reader:
    """A reader that has read the trace."""
    reader = Reader(traced, _RULES)
    reader.read()
    return reader


def _activation(
    reader: Reader, node: onnx.NodeProto, raw: Attributes, output_index: int, output: str
) -> Operation | int:
    if node.op_type != "Relu":
        return reader.make(node, node.op_type, {})
    block = hard_sigmoid(reader, node)
    if block is not None:
        return _from_block(reader, node, block, output)
    return _limit(reader, node, 0.0, math.inf)


def _hard_sigmoid(
    reader: Reader, node: onnx.NodeProto, raw: Attributes, output_index: int, output: str
) -> Operation | int:
    """A hard sigmoid as a layer has it, or its product with its input, as if decomposed."""
    sixth = is_sixth(raw.get("alpha", 0.2)) and raw.get("beta", 0.5) == 0.5
    if node.op_type == "HardSigmoid" and not sixth:
        return generic_operation(reader, node, raw, output_index, output)
    return _from_block(reader, node, Block(node.op_type, {}, (node.input[0],)), output)


def _limit(reader: Reader, node: onnx.NodeProto, low: float, high: float) -> Operation | int:
    """A value limited to bounds.

    Infinite bounds, and bounds that the value already has, are left out, as exporters do.
    """
    (source,) = {reader.source[name] for name in reader.live_inputs(node)}
    previous = reader.operations[source] if source >= 0 else _INPUT
    inner_bounds = (0.0, math.inf) if previous.kind == "Relu" else None
    # The bounds of a Clip may not be constants.
    if previous.kind == "Clip" and "low" in previous.attributes:
        inner_bounds = previous.attributes["low"], previous.attributes["high"]
    inputs: tuple[int, ...] = (source,)
    if inner_bounds is not None:
        low, high = (min(max(bound, low), high) for bound in inner_bounds)
        inputs = previous.inputs
    bounds = {"low": six_digits(low), "high": six_digits(high)}
    if (low, high) in (inner_bounds, (-math.inf, math.inf)):
        return source
    relu = (low, high) == (0.0, math.inf)
    operation = reader.make(node, "Relu" if relu else "Clip", {} if relu else bounds)
    return replace(operation, inputs=inputs)


def _clip(
    reader: Reader, node: onnx.NodeProto, raw: Attributes, output_index: int, output: str
) -> Operation | int:
    """Clip, and the maximum or minimum of a value and a number."""
    block = hard_sigmoid(reader, node)
    if block is not None:
        return _from_block(reader, node, block, output)
    bounds = bounds_of(reader.trace, node, raw)
    if bounds is None:
        return generic_operation(reader, node, raw, output_index, output)
    return _limit(reader, node, *bounds)


def _global_average(
    reader: Reader, node: onnx.NodeProto, raw: Attributes, output_index: int, output: str
) -> Operation | int:
    """The mean over both axes of a map, or over other axes.

    The number of averaged values identifies other axes, since it does not depend on the layout.
    """
    shape = reader.trace.values[node.input[0]].shape
    over = set(range(2, len(shape)))
    if node.op_type != "GlobalAveragePool":
        axes = raw.get("axes", reader.trace.constant(node, 1))
        over = set() if axes is None else {int(axis) % len(shape) for axis in np.ravel(axes)}
    if not over or 0 in over:
        return generic_operation(reader, node, raw, output_index, output)
    if node.op_type != "ReduceSum" and len(shape) == 4 and len(over) == 2:
        if over == {2, 3}:
            return _whole_map_pool(reader, node, raw, output_index, output)
        return reader.make(node, "GlobalAveragePool", {})
    kind = "ReduceSum" if node.op_type == "ReduceSum" else "ReduceMean"
    return reader.make(node, kind, {"of": math.prod(shape[axis] for axis in over)})


def _whole_map_pool(
    reader: Reader, node: onnx.NodeProto, raw: Attributes, output_index: int, output: str
) -> Operation:
    """A pooling of a whole map, with the zeros that may pad it."""
    whole = list(reader.trace.values[node.input[0]].shape[2:])
    return pool(reader, node, {"kernel_shape": whole, "strides": whole}, output_index, output)


def _lrn(
    reader: Reader, node: onnx.NodeProto, raw: Attributes, output_index: int, output: str
) -> Operation:
    size = raw["size"]
    return reader.make(
        node,
        "LRN",
        {
            "size": size,
            "before": (size - 1) // 2,
            "alpha": six_digits(raw.get("alpha", 1e-4)),
            "beta": six_digits(raw.get("beta", 0.75)),
            "bias": six_digits(raw.get("bias", 1.0)),
        },
    )


def _batch_norm(
    reader: Reader, node: onnx.NodeProto, raw: Attributes, output_index: int, output: str
) -> Operation | int:
    scale = reader.trace.constant(node, 1)
    if scale is None:
        return generic_operation(reader, node, raw, output_index, output)
    attributes = {
        "channels": scale.size,
        "epsilon": six_digits(raw.get("epsilon", 1e-5)),
        "training": bool(raw.get("training_mode", 0)),
        **({"output": output_index} if output_index else {}),
    }
    return reader.make(node, "BatchNormalization", attributes, parameters=4 * scale.size)


def _layer_norm(
    reader: Reader, node: onnx.NodeProto, raw: Attributes, output_index: int, output: str
) -> Operation | int:
    scale, bias = reader.trace.constant(node, 1), reader.trace.constant(node, 2)
    rank = reader.trace.values[node.input[0]].ndim
    if scale is None or output_index or raw.get("axis", -1) % rank != rank - 1:
        return generic_operation(reader, node, raw, output_index, output)
    attributes = _norm_attributes(scale.size, six_digits(raw.get("epsilon", 1e-5)))
    parameters = scale.size + (0 if bias is None else bias.size)
    return reader.make(node, "LayerNormalization", attributes, parameters=parameters)


def _norm_attributes(features: int, epsilon: float) -> Attributes:
    """With one feature, only the bias has an effect, whatever epsilon is."""
    return {"features": features, "epsilon": epsilon if features > 1 else None}


def _gelu(
    reader: Reader, node: onnx.NodeProto, raw: Attributes, output_index: int, output: str
) -> Operation:
    return reader.make(node, "Gelu", {"approximate": raw.get("approximate", "none")})


def _linear(
    reader: Reader, node: onnx.NodeProto, raw: Attributes, output_index: int, output: str
) -> Operation | int:
    """Gemm and MatMul with a constant matrix [out, in], and the last product of attention."""
    block = attention(reader, node)
    if block is not None:
        return _from_block(reader, node, block, output)
    weight, bias = reader.trace.constant(node, 1), reader.trace.constant(node, 2)
    scaled = any(raw.get(name, 1.0) != 1.0 for name in ("alpha", "beta"))
    if weight is None or weight.ndim != 2 or scaled or raw.get("transA", 0):
        return generic_operation(reader, node, raw, output_index, output)
    shape = weight.shape if raw.get("transB", 0) else weight.shape[::-1]
    operation = reader.make(
        node, "Linear", {"weight": shape, "bias": False}, parameters=weight.size
    )
    matrix = weight if raw.get("transB", 0) else weight.T
    operation = replace(
        operation, matrix=matrix, matrix_name=reader.initializer_name(node.input[1])
    )
    return operation if bias is None else reader.with_bias(operation, node.input[2])


def _concat(
    reader: Reader, node: onnx.NodeProto, raw: Attributes, output_index: int, output: str
) -> Operation | int:
    if len(reader.live_inputs(node)) != len(node.input):
        return generic_operation(reader, node, raw, output_index, output)
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


def _slice(
    reader: Reader, node: onnx.NodeProto, raw: Attributes, output_index: int, output: str
) -> Operation | int:
    """Selected indices along the axes of a value, by one or several Gathers or Slices.

    The axis depends on the layout. The size of the axis and the selected indices do not.
    """
    shape = reader.trace.values[node.input[0]].shape
    indices_by_axis = selected_indices(reader.trace, node, output_index)
    if indices_by_axis is None:
        return generic_operation(reader, node, raw, output_index, output)
    selected = {
        axis: tuple(indices)
        for axis, indices in indices_by_axis.items()
        if list(indices) != list(range(shape[axis]))
    }
    if _batch_axis(reader, shape) in selected:
        return generic_operation(reader, node, raw, output_index, output)
    cuts = [(shape[axis], indices) for axis, indices in selected.items()]
    source = reader.source[node.input[0]]
    if not cuts:
        return source
    windows = first_windows(reader.trace, output)
    if windows is not None:
        window_node, sizes = windows
        rule = conv if window_node.op_type == "Conv" else pool
        return rule(reader, window_node, attributes_of(window_node), output_index, output, sizes)
    inputs: tuple[int, ...] = (source,)
    if source >= 0 and reader.operations[source].kind == "Slice":
        previous = reader.operations[source]
        cuts, inputs = [*previous.attributes["places"], *cuts], previous.inputs
    operation = reader.make(node, "Slice", {"places": sorted(cuts)}, node.input[:1])
    return replace(operation, inputs=inputs)


def _split(
    reader: Reader, node: onnx.NodeProto, raw: Attributes, output_index: int, output: str
) -> Operation | int:
    """Several parts of a value.

    Parts of a linear layer's features are linear layers: one matrix may produce queries, keys and
    values.
    """
    part = part_of_linear(reader, output)
    if part is None:
        return _slice(reader, node, raw, output_index, output)
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


def _pad(
    reader: Reader, node: onnx.NodeProto, raw: Attributes, output_index: int, output: str
) -> Operation | int:
    """A constant padding, whatever the order of the axes."""
    before, after = (reader.trace.values[name].shape for name in (node.input[0], output))
    numbers = padding_of(reader.trace, node)
    if numbers is None:
        return generic_operation(reader, node, raw, output_index, output)
    pads, value = numbers
    rank = len(before)
    padded_axes = [
        (size, pads[axis], pads[rank + axis])
        for axis, size in enumerate(before)
        if size != after[axis]
    ]
    attributes = {"pads": sorted(padded_axes), "value": six_digits(value)}
    return reader.make(node, "Pad", attributes, node.input[:1])


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


def _batch_axis(reader: Reader, shape: tuple[int, ...]) -> int:
    """The batch axis of a shape: the steps of a sequence may come before it."""
    return shape.index(reader.trace.batch) if reader.trace.batch in shape else 0


def _embedding(
    reader: Reader, node: onnx.NodeProto, raw: Attributes, output_index: int, output: str
) -> Operation | int:
    table = reader.trace.constant(node, 0)
    if table is None:
        return _slice(reader, node, raw, output_index, output)
    if table.ndim != 2 or raw.get("axis", 0):
        return generic_operation(reader, node, raw, output_index, output)
    operation = reader.make(node, "Embedding", {"table": table.shape}, parameters=table.size)
    return replace(operation, matrix=table, matrix_name=reader.initializer_name(node.input[0]))


def _lstm(
    reader: Reader, node: onnx.NodeProto, raw: Attributes, output_index: int, output: str
) -> Operation | int:
    """The two biases that ONNX adds count as one."""
    w, r, b = (reader.trace.constant(node, index) for index in (1, 2, 3))
    if w is None or r is None:
        return generic_operation(reader, node, raw, output_index, output)
    states = [name for name in node.input[5:7] if name]
    zero_state = all(
        name not in reader.trace.live and not np.any(reader.trace.values[name]) for name in states
    )
    activations = [activation.decode().lower() for activation in raw.get("activations", [])]
    attributes = {
        "hidden": r.shape[2],
        "features": w.shape[2],
        "direction": raw.get("direction", "forward"),
        "activations": tuple(activations[:3]) or ("sigmoid", "tanh", "tanh"),
        "bias": b is not None,
        "zero initial state": zero_state,
        "output": ("every hidden state", "last hidden state", "last cell state")[output_index],
        **{name: raw[name] for name in ("clip", "input_forget") if raw.get(name)},
    }
    parameters = w.size + r.size + (0 if b is None else b.size // 2)
    return reader.make(node, "LSTM", attributes, [node.input[0]], parameters)


#: The source of the first layer.
_INPUT = Operation("input", "Input", {}, ())


def _arithmetic(
    reader: Reader, node: onnx.NodeProto, raw: Attributes, output_index: int, output: str
) -> Operation | int:
    """Sums and products of two values, or of a value and a constant.

    The node may also be the last operator of a decomposed layer.
    """
    block = gelu(reader.trace, node) or layer_normalization(reader, node)
    block = block or hard_sigmoid(reader, node)
    if block is not None:
        return _from_block(reader, node, block, output)
    live = reader.live_inputs(node)
    if node.op_type == "Sum" and len(node.input) == 1:
        return reader.source[node.input[0]]
    if len(live) == len(node.input) == 2:
        if node.op_type == "Mul":
            factors = [before_expand(reader.trace, name) for name in live]
            return reader.make(node, "Mul", {}, factors)
        if node.op_type in ("Add", "Sum"):
            return reader.make(node, "Add", {})
        if node.op_type == "Div":
            lrn_attributes = decomposed_lrn(reader.trace, reader.source, node)
            if lrn_attributes is not None:
                reader.nominal_values.update(lrn_constants(reader.trace, node))
                return reader.make(node, "LRN", lrn_attributes, [node.input[0]])
    operation: Operation | int | None = None
    if len(live) == 1 and len(node.input) == 2:
        operation = _constant_arithmetic(reader, node, live[0], output)
    if operation is None:
        return generic_operation(reader, node, raw, output_index, output)
    return operation


def _constant_arithmetic(
    reader: Reader, node: onnx.NodeProto, name: str, output: str
) -> Operation | int | None:
    """A bias, a scale, a shift or a position table; None for any other constant."""
    index = 1 if node.input[0] == name else 0
    constant = np.asarray(reader.trace.constant(node, index))
    shape = reader.trace.values[name].shape
    batch_axis = _batch_axis(reader, shape)
    if constant.ndim == len(shape) and (constant == constant.take([0], batch_axis)).all():
        constant = constant.take([0], batch_axis)  # it may be repeated for each sample
    if node.op_type in ("Add", "Sum"):
        table = _position_table(constant, shape, batch_axis)
        if table is not None:
            sizes = {"table": table}
            return reader.make(node, "PositionEmbedding", sizes, [name], math.prod(table))
    source = reader.source[name]
    previous = reader.operations[source] if source >= 0 else _INPUT
    shifts = node.op_type in ("Add", "Sum") or (node.op_type == "Sub" and index == 1)
    scales = node.op_type == "Mul" or (node.op_type == "Div" and index == 1)
    if scales:
        pooling = _scaled_pool(reader, node, index, constant, previous, output)
        if pooling is not None:
            return pooling
    width = previous.attributes["weight"][0] if previous.kind in ("Conv", "Linear") else 0
    if shifts and width == constant.size and not previous.attributes["bias"]:
        return reader.with_bias(previous, node.input[index])
    if constant.size == 1 and np.all(constant == (0 if shifts else 1)) and (shifts or scales):
        return source
    affine = {"channels": constant.size, "scaled": scales}
    is_number = constant.size == 1 and 1 not in (*shape[1:2], *shape[-1:])
    if is_number or not (shifts or scales):
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


def _scaled_pool(
    reader: Reader,
    node: onnx.NodeProto,
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


def _from_block(reader: Reader, node: onnx.NodeProto, block: Block, output: str) -> Operation:
    """The operation of a block; with a further one if the block also scales, adds or multiplies."""
    reader.blocks[output] = block
    reader.nominal_values.update(block.nominal_values)
    attributes = dict(block.attributes)
    if block.kind == "LayerNormalization":
        attributes = _norm_attributes(**attributes)
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


def before_layout(trace: Trace, name: str, scale: np.ndarray) -> tuple[str, np.ndarray]:
    """The value before a Transpose, or before a Reshape of a single channel, and its factor.

    Args:
        scale: the factor of the named value.

    Returns:
        the earlier value's name, and the factor with that value's axes.
    """
    node = trace.producers.get(name)
    if node is None or node.op_type not in ("Transpose", "Reshape"):
        return name, scale
    shape = trace.values[node.input[0]].shape
    if node.op_type == "Transpose":
        perm = attributes_of(node).get("perm", range(len(shape))[::-1])
        if scale.ndim > len(perm):
            return name, scale
        broadcast = scale.reshape((1,) * (len(perm) - scale.ndim) + scale.shape)
        return node.input[0], broadcast.transpose(np.argsort(perm))
    if shape[1:2] != (1,) or scale.size != math.prod(shape[2:]):
        return name, scale
    return node.input[0], scale.reshape(shape[1:])


def _from_rescaled_pool(
    reader: Reader,
    node: onnx.NodeProto,
    rescaled: RescaledPool,
    previous: Operation,
    output: str,
) -> Operation:
    """An average pooling; with a further operation if its channels are scaled."""
    inputs = (reader.source[rescaled.value],)
    pooling = replace(previous, attributes=dict(rescaled.attributes), inputs=inputs)
    if rescaled.channels is None:
        return pooling
    pooling.attributes["elements"] = reader.trace.elements(output)
    reader.operations.append(pooling)
    channels = rescaled.channels.size
    operation = reader.make(
        node, "Affine", {"channels": channels, "scaled": True}, parameters=channels
    )
    return replace(operation, inputs=(len(reader.operations) - 1,))


_RULES: dict[str, Rule] = {
    **dict.fromkeys(("Relu", "Tanh", "Sigmoid"), _activation),
    **dict.fromkeys(("HardSigmoid", "HardSwish"), _hard_sigmoid),
    **dict.fromkeys(("Clip", "Max", "Min"), _clip),
    "Conv": conv,
    **dict.fromkeys(("MaxPool", "AveragePool"), pool),
    "GlobalMaxPool": _whole_map_pool,
    **dict.fromkeys(("GlobalAveragePool", "ReduceMean", "ReduceSum"), _global_average),
    "LRN": _lrn,
    "BatchNormalization": _batch_norm,
    "LayerNormalization": _layer_norm,
    "Gelu": _gelu,
    **dict.fromkeys(("Gemm", "MatMul"), _linear),
    "Concat": _concat,
    "Gather": _embedding,
    "Slice": _slice,
    "Split": _split,
    "Pad": _pad,
    "LSTM": _lstm,
    **dict.fromkeys(("Add", "Sum", "Sub", "Mul", "Div"), _arithmetic),
}
