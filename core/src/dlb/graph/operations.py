"""What an ONNX graph computes, less how it is laid out: the form in which graphs are compared."""

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
    """What a model computes, in an order in which each follows its inputs.

    Raises:
        UnsupportedError: the model cannot be run.
    """
    found = Reader(trace(model), _RULES).read()
    if any(each.kind == "Embedding" for each in found):
        return found
    # Only a table can be shared, and the matrices of a large network are gigabytes.
    return [replace(each, matrix=None) for each in found]


def reader_of(traced: Trace) -> Reader:
    """A reader that has read what was run."""
    reader = Reader(traced, _RULES)
    reader.read()
    return reader


def _activation(
    reader: Reader, node: onnx.NodeProto, given: Attributes, place: int, output: str
) -> Operation | int:
    if node.op_type != "Relu":
        return reader.make(node, node.op_type, {})
    block = hard_sigmoid(reader, node)
    if block is not None:
        return _block(reader, node, block, output)
    return _bounded(reader, node, 0.0, math.inf)


def _hard_sigmoid(
    reader: Reader, node: onnx.NodeProto, given: Attributes, place: int, output: str
) -> Operation | int:
    """The one that a layer is, and its product with what it reads: as where they are written out."""
    sixth = is_sixth(given.get("alpha", 0.2)) and given.get("beta", 0.5) == 0.5
    if node.op_type == "HardSigmoid" and not sixth:
        return generic_operation(reader, node, given, place, output)
    return _block(reader, node, Block(node.op_type, {}, (node.input[0],)), output)


def _bounded(reader: Reader, node: onnx.NodeProto, low: float, high: float) -> Operation | int:
    """A value kept within bounds; within infinite ones, and of one that is within bounds already, it
    may be nothing new, which exporters leave out."""
    (source,) = {reader.source[name] for name in reader.live_inputs(node)}
    before = reader.operations[source] if source >= 0 else _INPUT
    given = (0.0, math.inf) if before.kind == "Relu" else None
    if before.kind == "Clip" and "low" in before.attributes:  # not of bounds that are no numbers
        given = before.attributes["low"], before.attributes["high"]
    inputs: tuple[int, ...] = (source,)
    if given is not None:
        low, high = (min(max(bound, low), high) for bound in given)
        inputs = before.inputs
    bounds = {"low": six_digits(low), "high": six_digits(high)}
    if (low, high) in (given, (-math.inf, math.inf)):
        return source
    relu = (low, high) == (0.0, math.inf)
    made = reader.make(node, "Relu" if relu else "Clip", {} if relu else bounds)
    return replace(made, inputs=inputs)


def _clip(
    reader: Reader, node: onnx.NodeProto, given: Attributes, place: int, output: str
) -> Operation | int:
    """Clip, and the larger or smaller of a value and a number."""
    block = hard_sigmoid(reader, node)
    if block is not None:
        return _block(reader, node, block, output)
    bounds = bounds_of(reader.trace, node, given)
    if bounds is None:
        return generic_operation(reader, node, given, place, output)
    return _bounded(reader, node, *bounds)


def _global_average(
    reader: Reader, node: onnx.NodeProto, given: Attributes, place: int, output: str
) -> Operation | int:
    """Over both axes of a map, or over others: told by how many numbers each mean is of."""
    shape = reader.trace.values[node.input[0]].shape
    over = set(range(2, len(shape)))
    if node.op_type != "GlobalAveragePool":
        axes = given.get("axes", reader.trace.constant(node, 1))
        over = set() if axes is None else {int(axis) % len(shape) for axis in np.ravel(axes)}
    if not over or 0 in over:
        return generic_operation(reader, node, given, place, output)
    if node.op_type != "ReduceSum" and len(shape) == 4 and len(over) == 2:
        if over == {2, 3}:
            return _one_window(reader, node, given, place, output)
        return reader.make(node, "GlobalAveragePool", {})
    kind = "ReduceSum" if node.op_type == "ReduceSum" else "ReduceMean"
    return reader.make(node, kind, {"of": math.prod(shape[axis] for axis in over)})


def _one_window(
    reader: Reader, node: onnx.NodeProto, given: Attributes, place: int, output: str
) -> Operation:
    """A pooling of a whole map, and of the zeros that may be put around it."""
    whole = list(reader.trace.values[node.input[0]].shape[2:])
    return pool(reader, node, {"kernel_shape": whole, "strides": whole}, place, output)


def _lrn(
    reader: Reader, node: onnx.NodeProto, given: Attributes, place: int, output: str
) -> Operation:
    size = given["size"]
    return reader.make(
        node,
        "LRN",
        {
            "size": size,
            "before": (size - 1) // 2,
            "alpha": six_digits(given.get("alpha", 1e-4)),
            "beta": six_digits(given.get("beta", 0.75)),
            "bias": six_digits(given.get("bias", 1.0)),
        },
    )


def _batch_norm(
    reader: Reader, node: onnx.NodeProto, given: Attributes, place: int, output: str
) -> Operation | int:
    scale = reader.trace.constant(node, 1)
    if scale is None:
        return generic_operation(reader, node, given, place, output)
    attributes = {
        "channels": scale.size,
        "epsilon": six_digits(given.get("epsilon", 1e-5)),
        "training": bool(given.get("training_mode", 0)),
        **({"output": place} if place else {}),
    }
    return reader.make(node, "BatchNormalization", attributes, parameters=4 * scale.size)


def _layer_norm(
    reader: Reader, node: onnx.NodeProto, given: Attributes, place: int, output: str
) -> Operation | int:
    scale, bias = reader.trace.constant(node, 1), reader.trace.constant(node, 2)
    rank = reader.trace.values[node.input[0]].ndim
    if scale is None or place or given.get("axis", -1) % rank != rank - 1:
        return generic_operation(reader, node, given, place, output)
    attributes = _of_norm(scale.size, six_digits(given.get("epsilon", 1e-5)))
    parameters = scale.size + (0 if bias is None else bias.size)
    return reader.make(node, "LayerNormalization", attributes, parameters=parameters)


def _of_norm(features: int, epsilon: float) -> Attributes:
    """Of one feature nothing is left but the bias, whatever is added to its variance."""
    return {"features": features, "epsilon": epsilon if features > 1 else None}


def _gelu(
    reader: Reader, node: onnx.NodeProto, given: Attributes, place: int, output: str
) -> Operation:
    return reader.make(node, "Gelu", {"approximate": given.get("approximate", "none")})


def _linear(
    reader: Reader, node: onnx.NodeProto, given: Attributes, place: int, output: str
) -> Operation | int:
    """Gemm and MatMul with a constant matrix, the weight's shape as [out, in]; and the last product of
    attention."""
    block = attention(reader, node)
    if block is not None:
        return _block(reader, node, block, output)
    weight, bias = reader.trace.constant(node, 1), reader.trace.constant(node, 2)
    scaled = any(given.get(name, 1.0) != 1.0 for name in ("alpha", "beta"))
    if weight is None or weight.ndim != 2 or scaled or given.get("transA", 0):
        return generic_operation(reader, node, given, place, output)
    shape = weight.shape if given.get("transB", 0) else weight.shape[::-1]
    made = reader.make(node, "Linear", {"weight": shape, "bias": False}, parameters=weight.size)
    matrix = weight if given.get("transB", 0) else weight.T
    made = replace(made, matrix=matrix, matrix_name=reader.initializer_name(node.input[1]))
    return made if bias is None else reader.with_bias(made, node.input[2])


def _concat(
    reader: Reader, node: onnx.NodeProto, given: Attributes, place: int, output: str
) -> Operation | int:
    if len(reader.live_inputs(node)) != len(node.input):
        return generic_operation(reader, node, given, place, output)
    if len(node.input) == 1:
        return reader.source[node.input[0]]
    sizes: list[int] = []
    inputs: list[int] = []
    for name in node.input:
        value, source = reader.trace.values[name], reader.source[name]
        if _concatenated(reader, name, given["axis"]):
            sizes += reader.operations[source].attributes["sizes"]
            inputs += reader.operations[source].inputs
            continue
        sizes.append(value.shape[given["axis"]])
        inputs.append(source)
    return replace(reader.make(node, "Concat", {"sizes": tuple(sizes)}), inputs=tuple(inputs))


def _concatenated(reader: Reader, name: str, axis: int) -> bool:
    """Whether a value is concatenated along an axis itself: exporters take such a one into the
    concatenation that reads it, or do not, and turn axes before it or after it."""
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
    # What is between may reshape, and back again.
    if trace.values[node.output[0]].shape != shape:
        return False
    return bool((attributes_of(node)["axis"] - axis) % len(shape) == 0)


def _part(
    reader: Reader, node: onnx.NodeProto, given: Attributes, place: int, output: str
) -> Operation | int:
    """Places of a value along its axes, by Gather or by Slice, by one or by several after another.

    Which axis it is depends on the layout; how many places it has, and which are taken, does not.
    """
    shape = reader.trace.values[node.input[0]].shape
    taken = selected_indices(reader.trace, node, place)
    if taken is None:
        return generic_operation(reader, node, given, place, output)
    parts = {
        axis: tuple(places)
        for axis, places in taken.items()
        if list(places) != list(range(shape[axis]))
    }
    if _samples(reader, shape) in parts:
        return generic_operation(reader, node, given, place, output)
    cuts = [(shape[axis], places) for axis, places in parts.items()]
    source = reader.source[node.input[0]]
    if not cuts:
        return source
    windows = first_windows(reader.trace, output)
    if windows is not None:
        whole, sizes = windows
        rule = conv if whole.op_type == "Conv" else pool
        return rule(reader, whole, attributes_of(whole), place, output, sizes)
    inputs: tuple[int, ...] = (source,)
    if source >= 0 and reader.operations[source].kind == "Slice":
        before = reader.operations[source]
        cuts, inputs = [*before.attributes["places"], *cuts], before.inputs
    made = reader.make(node, "Slice", {"places": sorted(cuts)}, node.input[:1])
    return replace(made, inputs=inputs)


def _split(
    reader: Reader, node: onnx.NodeProto, given: Attributes, place: int, output: str
) -> Operation | int:
    """Several parts of a value. Of a linear layer's features they are linear layers themselves: one
    matrix may make queries, keys and values."""
    found = part_of_linear(reader, output)
    if found is None:
        return _part(reader, node, given, place, output)
    whole, rows = found.whole, found.features
    weight = (len(rows), whole.attributes["weight"][1])
    bias = reader.trace.values[whole.bias_name].ravel()[rows] if whole.bias_name else np.zeros(0)
    return replace(
        whole,
        attributes={**whole.attributes, "weight": weight},
        parameters=len(rows) * weight[1] + bias.size,
        matrix=None if whole.matrix is None else whole.matrix[rows],
        matrix_name="",
        nonzero_bias=bool(bias.any()) if whole.bias_name else whole.nonzero_bias,
    )


def _pad(
    reader: Reader, node: onnx.NodeProto, given: Attributes, place: int, output: str
) -> Operation | int:
    """A constant put around a value, whatever the order of its axes."""
    before, after = (reader.trace.values[name].shape for name in (node.input[0], output))
    numbers = padding_of(reader.trace, node)
    if numbers is None:
        return generic_operation(reader, node, given, place, output)
    pads, value = numbers
    rank = len(before)
    around = [
        (size, pads[axis], pads[rank + axis])
        for axis, size in enumerate(before)
        if size != after[axis]
    ]
    attributes = {"pads": sorted(around), "value": six_digits(value)}
    return reader.make(node, "Pad", attributes, node.input[:1])


def _position_table(
    constant: np.ndarray, shape: tuple[int, ...], samples: int
) -> tuple[int, ...] | None:
    """The sizes of a constant [T, features] that is added to every sequence of a value, or None: the
    smaller first, since an exporter may have turned it."""
    if constant.ndim == len(shape) and constant.shape[samples] == 1:
        constant = constant.take(0, samples)
    sizes = shape[:samples] + shape[samples + 1 :]
    if len(shape) != 3 or min(sizes) == 1 or constant.shape != sizes:
        return None
    return tuple(sorted(sizes))


def _samples(reader: Reader, shape: tuple[int, ...]) -> int:
    """The axis of the batch: the steps of a sequence may come before it."""
    return shape.index(reader.trace.batch) if reader.trace.batch in shape else 0


def _embedding(
    reader: Reader, node: onnx.NodeProto, given: Attributes, place: int, output: str
) -> Operation | int:
    table = reader.trace.constant(node, 0)
    if table is None:
        return _part(reader, node, given, place, output)
    if table.ndim != 2 or given.get("axis", 0):
        return generic_operation(reader, node, given, place, output)
    made = reader.make(node, "Embedding", {"table": table.shape}, parameters=table.size)
    return replace(made, matrix=table, matrix_name=reader.initializer_name(node.input[0]))


def _lstm(
    reader: Reader, node: onnx.NodeProto, given: Attributes, place: int, output: str
) -> Operation | int:
    """The two biases that ONNX adds up count as one."""
    w, r, b = (reader.trace.constant(node, index) for index in (1, 2, 3))
    if w is None or r is None:
        return generic_operation(reader, node, given, place, output)
    states = [name for name in node.input[5:7] if name]
    zero = all(
        name not in reader.trace.live and not np.any(reader.trace.values[name]) for name in states
    )
    names = [each.decode().lower() for each in given.get("activations", [])]
    attributes = {
        "hidden": r.shape[2],
        "features": w.shape[2],
        "direction": given.get("direction", "forward"),
        "activations": tuple(names[:3]) or ("sigmoid", "tanh", "tanh"),
        "bias": b is not None,
        "zero initial state": zero,
        "output": ("every hidden state", "last hidden state", "last cell state")[place],
        **{name: given[name] for name in ("clip", "input_forget") if given.get(name)},
    }
    parameters = w.size + r.size + (0 if b is None else b.size // 2)
    return reader.make(node, "LSTM", attributes, [node.input[0]], parameters)


#: What stands before the first layer.
_INPUT = Operation("input", "Input", {}, ())


def _arithmetic(
    reader: Reader, node: onnx.NodeProto, given: Attributes, place: int, output: str
) -> Operation | int:
    """Sums of two values; with constants biases, and a batch normalisation written out; and the
    last operator of layers that are written out."""
    block = gelu(reader.trace, node) or layer_normalization(reader, node)
    block = block or hard_sigmoid(reader, node)
    if block is not None:
        return _block(reader, node, block, output)
    live = reader.live_inputs(node)
    if node.op_type == "Sum" and len(node.input) == 1:
        return reader.source[node.input[0]]
    if len(live) == len(node.input) == 2:
        if node.op_type == "Mul":
            return reader.make(
                node, "Mul", {}, [before_expand(reader.trace, name) for name in live]
            )
        if node.op_type in ("Add", "Sum"):
            return reader.make(node, "Add", {})
        if node.op_type == "Div":
            found = decomposed_lrn(reader.trace, reader.source, node)
            if found is not None:
                reader.nominal_values.update(lrn_constants(reader.trace, node))
                return reader.make(node, "LRN", found, [node.input[0]])
    if len(live) != 1 or len(node.input) != 2:
        return generic_operation(reader, node, given, place, output)
    index = 1 if node.input[0] == live[0] else 0
    constant = np.asarray(reader.trace.constant(node, index))
    shape = reader.trace.values[live[0]].shape
    samples = _samples(reader, shape)
    if constant.ndim == len(shape) and (constant == constant.take([0], samples)).all():
        constant = constant.take([0], samples)  # it may be repeated for each
    if node.op_type in ("Add", "Sum"):
        table = _position_table(constant, shape, samples)
        if table is not None:
            return reader.make(node, "PositionEmbedding", {"table": table}, live, math.prod(table))
    source = reader.source[live[0]]
    before = reader.operations[source] if source >= 0 else _INPUT
    moves = node.op_type in ("Add", "Sum") or (node.op_type == "Sub" and index == 1)
    scales = node.op_type == "Mul" or (node.op_type == "Div" and index == 1)
    scale = 1 / constant if scales and node.op_type == "Div" else constant
    windows, scale = before_layout(reader.trace, live[0], scale)
    pooled = first_windows(reader.trace, windows) if scales else None
    if pooled is not None and pooled[0].op_type == "AveragePool":
        found_pool = rescaled_pool(reader, pooled[0], scale, pooled[1])
        if found_pool is not None:
            exact = found_pool.scale if node.op_type == "Mul" else 1 / found_pool.scale
            if found_pool.channels is None and constant.size == exact.size:
                exact = exact.reshape(constant.shape)
                if np.allclose(constant, exact, rtol=ROUNDING, atol=0):
                    reader.nominal_values[node.input[index]] = exact
            return _rescaled(reader, node, found_pool, before, output)
    if scales and before.kind == "ReduceSum" and constant.size == 1 and "of" in before.attributes:
        number = float(constant.ravel()[0])
        if math.isclose(number if node.op_type == "Div" else 1 / number, before.attributes["of"]):
            return replace(before, kind="ReduceMean")
    width = before.attributes["weight"][0] if before.kind in ("Conv", "Linear") else 0
    if moves and width == constant.size and not before.attributes["bias"]:
        return reader.with_bias(before, node.input[index])
    if constant.size == 1 and np.all(constant == (0 if moves else 1)) and (moves or scales):
        return reader.source[live[0]]
    affine = {"channels": constant.size, "scaled": scales}
    number = constant.size == 1 and 1 not in (*shape[1:2], *shape[-1:])
    if number or not (moves or scales):
        return generic_operation(reader, node, given, place, output)
    if before.kind == "Affine" and before.attributes["channels"] == constant.size:
        if not (moves and before.attributes["scaled"]):
            return replace(before, attributes=affine)
        attributes = {"channels": constant.size, "epsilon": None, "training": False}
        parameters = 2 * constant.size
        return replace(
            before, kind="BatchNormalization", attributes=attributes, parameters=parameters
        )
    return reader.make(node, "Affine", affine, live, constant.size)


def _block(reader: Reader, node: onnx.NodeProto, block: Block, output: str) -> Operation:
    """A block's layer; or, where it does more than that, the layer and one operation more."""
    reader.blocks[output] = block
    reader.nominal_values.update(block.nominal_values)
    attributes = dict(block.attributes)
    if block.kind == "LayerNormalization":
        attributes = _of_norm(**attributes)
    made = reader.make(node, block.kind, attributes, list(block.inputs), block.parameters)
    before: tuple[int, ...] = ()
    if block.kind == "HardSwish":
        made = replace(made, kind="HardSigmoid")
        more, before, parameters = replace(made, kind="Mul", attributes={}), made.inputs, 0
    elif block.table is not None:
        table = tuple(sorted(block.table.shape))
        more = replace(made, kind="PositionEmbedding", attributes={"table": table})
        parameters = block.table.size
    elif block.kind == "Gelu" and block.weights:
        parameters = block.weights["scale"].size
        more = replace(made, kind="Affine", attributes={"channels": parameters, "scaled": True})
    else:
        return made
    made.attributes["elements"] = reader.trace.elements(output)
    reader.operations.append(made)
    return replace(more, inputs=(*before, len(reader.operations) - 1), parameters=parameters)


def before_layout(trace: Trace, name: str, scale: np.ndarray) -> tuple[str, np.ndarray]:
    """What a Transpose, or of a single channel a Reshape, has made a value of, and what the value is
    multiplied by in that order of axes."""
    node = trace.producers.get(name)
    if node is None or node.op_type not in ("Transpose", "Reshape"):
        return name, scale
    shape = trace.values[node.input[0]].shape
    if node.op_type == "Transpose":
        order = attributes_of(node).get("perm", range(len(shape))[::-1])
        if scale.ndim > len(order):
            return name, scale
        whole = scale.reshape((1,) * (len(order) - scale.ndim) + scale.shape)
        return node.input[0], whole.transpose(np.argsort(order))
    if shape[1:2] != (1,) or scale.size != math.prod(shape[2:]):
        return name, scale
    return node.input[0], scale.reshape(shape[1:])


def _rescaled(
    reader: Reader, node: onnx.NodeProto, found: RescaledPool, before: Operation, output: str
) -> Operation:
    """An average pooling; and what its channels are multiplied by, one operation more."""
    inputs = (reader.source[found.value],)
    pooling = replace(before, attributes=dict(found.meaning), inputs=inputs)
    if found.channels is None:
        return pooling
    pooling.attributes["elements"] = reader.trace.elements(output)
    reader.operations.append(pooling)
    channels = found.channels.size
    made = reader.make(node, "Affine", {"channels": channels, "scaled": True}, parameters=channels)
    return replace(made, inputs=(len(reader.operations) - 1,))


_RULES: dict[str, Rule] = {
    **dict.fromkeys(("Relu", "Tanh", "Sigmoid"), _activation),
    **dict.fromkeys(("HardSigmoid", "HardSwish"), _hard_sigmoid),
    **dict.fromkeys(("Clip", "Max", "Min"), _clip),
    "Conv": conv,
    **dict.fromkeys(("MaxPool", "AveragePool"), pool),
    "GlobalMaxPool": _one_window,
    **dict.fromkeys(("GlobalAveragePool", "ReduceMean", "ReduceSum"), _global_average),
    "LRN": _lrn,
    "BatchNormalization": _batch_norm,
    "LayerNormalization": _layer_norm,
    "Gelu": _gelu,
    **dict.fromkeys(("Gemm", "MatMul"), _linear),
    "Concat": _concat,
    "Gather": _embedding,
    "Slice": _part,
    "Split": _split,
    "Pad": _pad,
    "LSTM": _lstm,
    **dict.fromkeys(("Add", "Sum", "Sub", "Mul", "Div"), _arithmetic),
}
