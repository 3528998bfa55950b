"""What an ONNX graph computes, independent of layout: the form in which graphs are compared."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import onnx
from onnx import NodeProto

from dlb.graph.arithmetic_rules import arithmetic, from_block, from_function, norm_attributes
from dlb.graph.blocks import Block, attention, hard_sigmoid
from dlb.graph.bounds import bounds_of
from dlb.graph.decimals import is_sixth, six_digits, unrounded
from dlb.graph.elementwise_blocks import NAMED, named
from dlb.graph.layout import RESIZING, before_expand
from dlb.graph.lookups import looked_up
from dlb.graph.masks import mask, truth
from dlb.graph.one_hot import one_hot_table
from dlb.graph.operators import ACTIVATIONS
from dlb.graph.ranking import RANKING, ranked
from dlb.graph.reader import Attributes, Operation, Reader, Rule, generic_operation
from dlb.graph.resize_rules import resize
from dlb.graph.slice_rules import concat, pad, slice_indices, split
from dlb.graph.trace import Trace, trace
from dlb.graph.transposed_rules import conv_transpose
from dlb.graph.window_rules import conv, pool

__all__ = ["Operation", "operations", "operations_of", "reader_of"]


def operations(model: onnx.ModelProto) -> list[Operation]:
    """What a model computes, in an order in which each operation follows its inputs.

    Raises:
        UnsupportedError: the model cannot be run.
    """
    return operations_of(trace(model))


def operations_of(traced: Trace) -> list[Operation]:
    """What a model computes, from its trace; see :func:`operations`."""
    return Reader(traced, _RULES).read()


def reader_of(traced: Trace) -> Reader:
    """A reader that has read the trace."""
    reader = Reader(traced, _RULES)
    reader.read()
    return reader


def _activation(reader: Reader, node: NodeProto, raw: Attributes, output: str) -> Operation | int:
    if node.op_type != "Relu":
        return reader.make(node, node.op_type, {})
    block = hard_sigmoid(reader, node)
    if block is not None:
        return from_block(reader, node, block, output)
    return _limit(reader, node, 0.0, math.inf)


def _hard_sigmoid(reader: Reader, node: NodeProto, raw: Attributes, output: str) -> Operation | int:
    """A hard sigmoid as a layer has it, or its product with its input, as if decomposed."""
    sixth = is_sixth(raw.get("alpha", 0.2)) and raw.get("beta", 0.5) == 0.5
    if node.op_type == "HardSigmoid" and not sixth:
        numbers = {"alpha": raw.get("alpha", 0.2), "beta": raw.get("beta", 0.5)}
        return reader.make(node, "HardSigmoid", {k: six_digits(v) for k, v in numbers.items()})
    return from_block(reader, node, Block(node.op_type, {}, (node.input[0],)), output)


def _elementwise(reader: Reader, node: NodeProto, raw: Attributes, output: str) -> Operation | int:
    """An operator that is a function of single numbers, or the last of several that are one."""
    if node.op_type in ("Log", "Neg", "Where"):
        function = from_function(reader, node, output)
        if function is not None:
            return function
    if node.op_type == "Where":
        return mask(reader, node, raw, output)
    if node.op_type not in NAMED:
        return generic_operation(reader, node, raw, output)
    numbers = named(node, raw).numbers
    return reader.make(node, node.op_type, {k: six_digits(v) for k, v in numbers.items()})


def _limit(reader: Reader, node: NodeProto, low: float, high: float) -> Operation | int:
    """A value limited to bounds.

    Infinite bounds, and bounds that the value already has, are left out, as exporters do.
    """
    (name,) = reader.live_inputs(node)
    source, previous = reader.source[name], reader.operation_of(name)
    inner_bounds = (0.0, math.inf) if previous.kind == "Relu" else None
    if previous.kind == "Clip":
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


def _clip(reader: Reader, node: NodeProto, raw: Attributes, output: str) -> Operation | int:
    """Clip, and the maximum or minimum of a value and a number."""
    block = hard_sigmoid(reader, node)
    if block is not None:
        return from_block(reader, node, block, output)
    function = from_function(reader, node, output)
    if function is not None:
        return function
    bounds = bounds_of(reader.trace, node, raw)
    live = reader.live_inputs(node)
    if bounds is None and node.op_type != "Clip" and len(live) == len(node.input) == 2:
        return reader.make(
            node, node.op_type, {}, [before_expand(reader.trace, name) for name in live]
        )
    if bounds is None:
        return generic_operation(reader, node, raw, output)
    return _limit(reader, node, *bounds)


def _global_average(
    reader: Reader, node: NodeProto, raw: Attributes, output: str
) -> Operation | int:
    """The mean over the axes of a map, two or three, or over other axes.

    The number of averaged values identifies other axes, since it does not depend on the layout.
    """
    shape = reader.trace.values[node.input[0]].shape
    mean_axes = set(range(2, len(shape)))
    if node.op_type != "GlobalAveragePool":
        axes = raw.get("axes", reader.trace.constant(node, 1))
        mean_axes = set() if axes is None else {int(axis) % len(shape) for axis in np.ravel(axes)}
    if not mean_axes or reader.batch_axis(shape) in mean_axes:
        return generic_operation(reader, node, raw, output)
    of_a_map = len(shape) in (4, 5) and len(mean_axes) == len(shape) - 2
    if node.op_type != "ReduceSum" and of_a_map:
        if mean_axes == set(range(2, len(shape))):
            return _whole_map_pool(reader, node, raw, output)
        return reader.make(node, "GlobalAveragePool", {})
    kind = "ReduceSum" if node.op_type == "ReduceSum" else "ReduceMean"
    return reader.make(node, kind, {"of": math.prod(shape[axis] for axis in mean_axes)})


def _whole_map_pool(reader: Reader, node: NodeProto, raw: Attributes, output: str) -> Operation:
    """A pooling of a whole map, with the zeros that may pad it."""
    map_size = list(reader.trace.values[node.input[0]].shape[2:])
    return pool(reader, node, {"kernel_shape": map_size, "strides": map_size}, output)


def _extreme(reader: Reader, node: NodeProto, raw: Attributes, output: str) -> Operation | int:
    """A maximum or minimum along axes, known by how many numbers it is taken of, as in any layout."""
    shape = reader.trace.values[node.input[0]].shape
    axes = raw.get("axes", reader.trace.constant(node, 1))
    over = (
        range(len(shape)) if axes is None else {int(axis) % len(shape) for axis in np.ravel(axes)}
    )
    if reader.batch_axis(shape) in over:
        return generic_operation(reader, node, raw, output)
    of_a_map = len(shape) in (4, 5) and set(over) == set(range(2, len(shape)))
    if node.op_type == "ReduceMax" and of_a_map:
        return _whole_map_pool(reader, node, raw, output)
    return reader.make(node, node.op_type, {"of": math.prod(shape[axis] for axis in over)})


def _softmax(reader: Reader, node: NodeProto, raw: Attributes, output: str) -> Operation | int:
    """Known by how many numbers add up to 1. Operator sets before 13 mean all axes from one on."""
    shape = reader.trace.values[node.input[0]].shape
    early = any(each.version < 13 for each in reader.trace.opsets if not each.domain)
    axis = raw.get("axis", 1 if early else -1) % len(shape)
    over = shape[axis:] if early else shape[axis : axis + 1]
    return reader.make(node, node.op_type, {"of": math.prod(over)})


def _prelu(reader: Reader, node: NodeProto, raw: Attributes, output: str) -> Operation | int:
    slope = reader.trace.constant(node, 1)
    if slope is None:
        return generic_operation(reader, node, raw, output)
    return reader.make(node, "PRelu", {"slopes": slope.size}, parameters=slope.size)


def _power(reader: Reader, node: NodeProto, raw: Attributes, output: str) -> Operation | int:
    """A square is a product, and a power of a half a root; others are known by their exponent."""
    exponent = reader.trace.constant(node, 1)
    if exponent is not None and (exponent == 2).all():
        return reader.make(node, "Mul", {}, [node.input[0]] * 2)
    if exponent is not None and (exponent == 0.5).all():
        return reader.make(node, "Sqrt", {}, [node.input[0]])
    if exponent is None or exponent.size != 1 or node.input[0] not in reader.trace.live:
        return generic_operation(reader, node, raw, output)
    number = float(exponent.ravel()[0])
    if unrounded(number) != number:
        reader.nominal_values[node.input[1]] = unrounded(number)
    return reader.make(node, "Pow", {"by": six_digits(number)}, [node.input[0]])


def _lrn(reader: Reader, node: NodeProto, raw: Attributes, output: str) -> Operation:
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


def _batch_norm(reader: Reader, node: NodeProto, raw: Attributes, output: str) -> Operation | int:
    scale = reader.trace.constant(node, 1)
    if scale is None:
        return generic_operation(reader, node, raw, output)
    attributes = {
        "channels": scale.size,
        "epsilon": six_digits(raw.get("epsilon", 1e-5)),
        "training": bool(raw.get("training_mode", 0)),
        **reader.output_attribute(node, output),
    }
    return reader.make(node, "BatchNormalization", attributes, parameters=4 * scale.size)


def _layer_norm(reader: Reader, node: NodeProto, raw: Attributes, output: str) -> Operation | int:
    scale, bias = reader.trace.constant(node, 1), reader.trace.constant(node, 2)
    rank = reader.trace.values[node.input[0]].ndim
    if scale is None or output != node.output[0] or raw.get("axis", -1) % rank != rank - 1:
        return generic_operation(reader, node, raw, output)
    attributes = norm_attributes(scale.size, six_digits(raw.get("epsilon", 1e-5)))
    parameters = scale.size + (0 if bias is None else bias.size)
    return reader.make(node, "LayerNormalization", attributes, parameters=parameters)


def _group_norm(reader: Reader, node: NodeProto, raw: Attributes, output: str) -> Operation | int:
    """Of instances too: they have a group for each channel."""
    if reader.live_inputs(node) != [node.input[0]]:
        return generic_operation(reader, node, raw, output)
    channels = reader.trace.values[node.input[0]].shape[1]
    attributes = {
        "channels": channels,
        "groups": raw.get("num_groups", channels),
        "epsilon": six_digits(raw.get("epsilon", 1e-5)),
    }
    return reader.make(node, "GroupNormalization", attributes, parameters=2 * channels)


def _rms_norm(reader: Reader, node: NodeProto, raw: Attributes, output: str) -> Operation | int:
    shape = reader.trace.values[node.input[0]].shape
    last = raw.get("axis", -1) % len(shape) == len(shape) - 1
    if reader.trace.constant(node, 1) is None or not last:
        return generic_operation(reader, node, raw, output)
    epsilon = six_digits(raw.get("epsilon", 1e-5))
    attributes = {"features": shape[-1], "epsilon": epsilon}
    return reader.make(node, "RMSNormalization", attributes, parameters=shape[-1])


def _gelu(reader: Reader, node: NodeProto, raw: Attributes, output: str) -> Operation:
    return reader.make(node, "Gelu", {"approximate": raw.get("approximate", "none")})


def _linear(reader: Reader, node: NodeProto, raw: Attributes, output: str) -> Operation | int:
    """Gemm and MatMul with a constant matrix [out, in], and the last product of attention."""
    block = attention(reader, node)
    if block is not None:
        return from_block(reader, node, block, output)
    weight, bias = reader.trace.constant(node, 1), reader.trace.constant(node, 2)
    if node.op_type == "MatMul" and len(reader.live_inputs(node)) == 2:
        return reader.make(node, "MatMul", {"of": reader.trace.values[node.input[0]].shape[-1]})
    left = reader.trace.constant(node, 0)
    if node.op_type == "MatMul" and left is not None and left.ndim == 2:
        # A matrix along the axis before the last.
        operation = reader.make(
            node, "Linear", {"weight": left.shape, "bias": False}, parameters=left.size
        )
        return reader.with_matrix(operation, left, node.input[0])
    scaled = any(raw.get(name, 1.0) != 1.0 for name in ("alpha", "beta"))
    if weight is None or weight.ndim != 2 or scaled or raw.get("transA", 0):
        return generic_operation(reader, node, raw, output)
    shape = weight.shape if raw.get("transB", 0) else weight.shape[::-1]
    operation = reader.make(
        node, "Linear", {"weight": shape, "bias": False}, parameters=weight.size
    )
    matrix = weight if raw.get("transB", 0) else weight.T
    operation = reader.with_matrix(operation, matrix, node.input[1])
    return operation if bias is None else reader.with_bias(operation, node.input[2])


def _embedding(reader: Reader, node: NodeProto, raw: Attributes, output: str) -> Operation | int:
    table = reader.trace.constant(node, 0)
    if table is None:
        return looked_up(reader, node) or slice_indices(reader, node, raw, output)
    if table.ndim != 2 or raw.get("axis", 0):
        return generic_operation(reader, node, raw, output)
    operation = reader.make(node, "Embedding", {"table": table.shape}, parameters=table.size)
    return replace(operation, matrix=table, matrix_name=reader.initializer_name(node.input[0]))


def _selected(reader: Reader, node: NodeProto, raw: Attributes, output: str) -> Operation | int:
    return looked_up(reader, node) or generic_operation(reader, node, raw, output)


def _one_hot(reader: Reader, node: NodeProto, raw: Attributes, output: str) -> Operation | int:
    found = one_hot_table(reader.trace, node)
    if found is None:
        return generic_operation(reader, node, raw, output)
    name, table = found
    attributes = {"table": table.shape}
    operation = reader.make(node, "Embedding", attributes, [name], parameters=table.size)
    return replace(operation, matrix=table)


#: What a recurrent operator outputs, in order.
_RECURRENT_OUTPUTS = ("every hidden state", "last hidden state", "last cell state")


def _recurrent(reader: Reader, node: NodeProto, raw: Attributes, output: str) -> Operation | int:
    """The two biases that ONNX adds count as one."""
    w, r, b = (reader.trace.constant(node, index) for index in (1, 2, 3))
    if w is None or r is None:
        return generic_operation(reader, node, raw, output)
    states = [name for name in node.input[5:7] if name]
    zero_state = all(
        name not in reader.trace.live and not np.any(reader.trace.values[name]) for name in states
    )
    default = ACTIVATIONS[node.op_type][0]
    activations = [activation.decode().lower() for activation in raw.get("activations", [])]
    # Only after the product, under the reset gate, is the second bias another one.
    linear_before_reset = bool(raw.get("linear_before_reset", 0))
    attributes = {
        "hidden": r.shape[2],
        "features": w.shape[2],
        "direction": raw.get("direction", "forward"),
        "activations": tuple(activations[: len(default)]) or default,
        "bias": b is not None,
        "zero initial state": zero_state,
        "output": _RECURRENT_OUTPUTS[list(node.output).index(output)],
        **({"linear_before_reset": linear_before_reset} if node.op_type == "GRU" else {}),
        **{name: raw[name] for name in ("clip", "input_forget") if raw.get(name)},
    }
    biases = 0 if b is None else b.size // (1 if linear_before_reset else 2)
    parameters = w.size + r.size + biases
    return reader.make(node, node.op_type, attributes, [node.input[0]], parameters)


_RULES: dict[str, Rule] = {
    **dict.fromkeys(("Relu", "Tanh", "Sigmoid"), _activation),
    **dict.fromkeys((*NAMED, "Where"), _elementwise),
    **dict.fromkeys(("HardSigmoid", "HardSwish"), _hard_sigmoid),
    **dict.fromkeys(("Clip", "Max", "Min"), _clip),
    "PRelu": _prelu,
    "Cast": truth,
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    **dict.fromkeys(("MaxPool", "AveragePool"), pool),
    "GlobalMaxPool": _whole_map_pool,
    **dict.fromkeys(("GlobalAveragePool", "ReduceMean", "ReduceSum"), _global_average),
    "Pow": _power,
    **dict.fromkeys(("ReduceMax", "ReduceMin"), _extreme),
    **dict.fromkeys(("Softmax", "LogSoftmax"), _softmax),
    **dict.fromkeys(RANKING, ranked),
    **dict.fromkeys(("GatherElements", "GatherND"), _selected),
    "LRN": _lrn,
    "BatchNormalization": _batch_norm,
    "LayerNormalization": _layer_norm,
    **dict.fromkeys(("InstanceNormalization", "GroupNormalization"), _group_norm),
    "RMSNormalization": _rms_norm,
    "Gelu": _gelu,
    **dict.fromkeys(("Gemm", "MatMul"), _linear),
    "Concat": concat,
    "Gather": _embedding,
    **dict.fromkeys(("Equal", "OneHot"), _one_hot),
    "Slice": slice_indices,
    **dict.fromkeys(RESIZING, resize),
    "Split": split,
    "Pad": pad,
    **dict.fromkeys(ACTIVATIONS, _recurrent),
    **dict.fromkeys(("Add", "Sum", "Sub", "Mul", "Div"), arithmetic),
}
