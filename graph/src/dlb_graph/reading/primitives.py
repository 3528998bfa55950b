"""Functions of two values, and along axes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from dlb_graph.layers import Binary, Elementwise, Layer, MatMul, Mul, Reduce, Scale, Shift, Softmax
from dlb_graph.layers.decimals import ROUNDING, decimal
from dlb_graph.layers.numbers import Array
from dlb_graph.reading.importer import Attributes, Importer
from dlb_graph.reading.layers import unsupported
from dlb_graph.reading.masks import add_mask
from dlb_graph.reading.samples_first import (
    SamplesFirst,
    aligned,
    constant_value,
    repeated,
    samples_first,
)
from dlb_graph.reading.views import Shape, ValueView, of_a_sample
from dlb_graph.truth.masks import MASKED, UNBOUNDED, added_mask

__all__ = [
    "BINARY",
    "COMPOSED_REDUCTIONS",
    "broadcast",
    "by_a_number",
    "by_numbers",
    "matmul",
    "matmul_of_a_constant",
    "power",
    "reduce",
    "softmax",
    "times_a_number",
]


#: Functions by operator.
BINARY: Mapping[str, Any] = {
    **{"Add": "add", "Sum": "add", "Sub": "sub", "Mul": "mul", "Div": "div"},
    **{"Max": "max", "Min": "min"},
}


def broadcast(importer: Importer, node: onnx.NodeProto, names: Sequence[str]) -> ValueView:
    """A function of two values, of which one or both are repeated."""
    if len(names) != 2:
        raise unsupported(node, "repeats one of more than two values")
    # Axes are aligned from the last, so the batch of a shorter value meets another axis.
    rank = len(importer.value_shape(node.output[0]))
    first, second = aligned(importer, node, [importer.raised(name, rank) for name in names])
    if first.shape[0] != second.shape[0]:
        raise unsupported(node, "repeats a value along the batch")
    shape = np.broadcast_shapes(first.shape, second.shape)
    function = Binary(function=BINARY[node.op_type])
    return first.view(importer.add(node, function, [first.layer, second.layer], shape), shape)


def by_a_number(importer: Importer, node: onnx.NodeProto, name: str, constant: str) -> ValueView:
    """A value that is scaled or moved by one number, which is not trained."""
    exact = float(importer.trace.values[constant].ravel()[0])
    number = decimal(exact)
    if not abs(exact - number) <= ROUNDING * abs(exact):
        raise unsupported(node, f"its number {exact!r} is out of range")
    first = node.input[0] == constant
    if node.op_type == "Mul":
        alpha, beta = number, 0.0
    elif node.op_type == "Div":
        alpha, beta = decimal(1 / number), 0.0
        number = 1 / alpha  # the file's number is rounded, too
    else:
        alpha = -1.0 if node.op_type == "Sub" and first else 1.0
        beta = -number if node.op_type == "Sub" and not first else number
    if (alpha, beta) == (1, 0):
        raise unsupported(node, "makes a constant of the input")
    view = importer.elementwise(name)
    if alpha == 0:  # a zero that is infinite where the value is: the value less itself
        sources = [view.layer] * 2
        zero = importer.add(node, Binary(function="sub"), sources, importer.shape(view))
        return ValueView(zero, view.index_map)
    layer = Elementwise(function="affine", alpha=alpha, beta=beta)
    value = importer.apply(node, layer, view)
    importer.nominal_of[value.layer] = {constant: number}
    return value


def times_a_number(
    importer: Importer, node: onnx.NodeProto, view: ValueView, constant: str
) -> ValueView:
    """A view times a constant of one number, which is not trained."""
    exact = float(importer.trace.values[constant].ravel()[0])
    number = decimal(exact)
    layer = Elementwise(function="affine", alpha=number, beta=0.0)
    value = importer.apply(node, layer, view)
    importer.nominal_of[value.layer] = {constant: number}
    return value


def by_numbers(
    importer: Importer, node: onnx.NodeProto, view: ValueView, scale: Array, shift: Array
) -> ValueView:
    """A value times numbers that differ within a channel, plus others.

    Adding minus infinity, or a number so low that it stands for it, is a mask.

    Args:
        scale, shift: float64, broadcast to the value's shape.
    """
    kept = added_mask(shift)
    if kept is not None and kept.any() and (scale == 1).all():
        if shift[kept].any():
            view = by_numbers(importer, node, view, scale, np.where(kept, shift, 0.0))
        return add_mask(importer, node, view, kept, MASKED)
    if not all((np.abs(numbers) < UNBOUNDED).all() for numbers in (scale, shift)):
        raise unsupported(node, "adds or multiplies by infinity, or by a number that stands for it")
    shape, index_map = importer.shape(view), importer.index_map_of(view)
    if index_map.size != math.prod(shape):
        raise unsupported(
            node, "its constant differs within a channel of a part of a layer's value"
        )
    layer_name = view.layer
    for numbers, layer_type, role in ((scale, Scale, "scale"), (shift, Shift, "bias")):
        canonical = np.empty(numbers.size)
        canonical[index_map.ravel()] = numbers.ravel()
        sample = of_a_sample(canonical.reshape(shape))
        if sample is None:
            raise unsupported(node, "its constant differs between samples")
        if (sample == (role == "scale")).all():
            continue
        layer = layer_type(sizes=sample.shape)
        layer_name = importer.add(node, layer, [layer_name], shape, {role: sample})
    return ValueView(layer_name, view.index_map)


def matmul(importer: Importer, node: onnx.NodeProto) -> ValueView:
    """The matrix product of two values."""
    return _product(importer, node, *aligned(importer, node, node.input))


def matmul_of_a_constant(importer: Importer, node: onnx.NodeProto) -> ValueView:
    """The matrix product of a value and a constant, that is one of every sample."""
    place = 0 if node.input[0] in importer.trace.live else 1
    value = samples_first(importer, node, node.input[place])
    numbers = importer.trace.values[node.input[1 - place]]
    numbers = numbers.reshape((1,) * (len(value.shape) - numbers.ndim) + numbers.shape)
    constant = constant_value(importer, node, numbers, value)
    return _product(importer, node, *((value, constant) if place == 0 else (constant, value)))


def _product(
    importer: Importer, node: onnx.NodeProto, left: SamplesFirst, right: SamplesFirst
) -> ValueView:
    last = tuple(range(len(left.axes)))[-2:]
    if left.axes[-2:] != last or len(left.shape) < 3:
        raise unsupported(node, f"multiplies {list(left.shape)} by {list(right.shape)}")
    outer = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    if outer[0] != left.shape[0] or outer[0] != right.shape[0]:
        raise unsupported(node, "repeats a matrix along the batch")
    layers = [
        repeated(importer, node, value, (*outer, *value.shape[-2:])) for value in (left, right)
    ]
    shape = (*outer, left.shape[-2], right.shape[-1])
    return left.view(importer.add(node, MatMul(), layers, shape), shape)


def power(importer: Importer, node: onnx.NodeProto, attributes: Attributes) -> ValueView:
    """A power by a number: a square is a product."""
    exponent = importer.trace.constant(node, 1)
    if exponent is None or exponent.size != 1:
        raise unsupported(node, "only one constant number is supported as exponent")
    view, number = importer.elementwise(node.input[0]), decimal(float(exponent.item()))
    if number == 1:
        return view
    if number == 0:
        raise unsupported(node, "makes a constant of the input")
    layer: Layer = Elementwise(function="pow", alpha=number)
    if number in (2, 0.5):
        layer = Mul() if number == 2 else Elementwise(function="sqrt")
    importer.nominal_values[node.input[1]] = number
    sources = [view.layer] * (2 if number == 2 else 1)
    return ValueView(importer.add(node, layer, sources, importer.shape(view)), view.index_map)


def reduce(importer: Importer, node: onnx.NodeProto, attributes: Attributes) -> ValueView:
    """A mean, sum, maximum or minimum along axes of a sample."""
    shape = importer.value_shape(node.input[0])
    axes = attributes.get("axes", importer.trace.constant(node, 1))
    if 0 in shape:
        raise unsupported(node, "reduces a value without numbers")
    numbers = [] if axes is None else np.ravel(axes).tolist()
    if not numbers and not attributes.get("noop_with_empty_axes", 0):
        numbers = list(range(len(shape)))
    value = samples_first(importer, node, node.input[0])
    if value.shape[0] == 1:  # a batch of one, whose sample the whole value may be
        reduces_batch = 0 in {value.axis(int(axis) % len(shape)) for axis in numbers}
        value = samples_first(importer, node, node.input[0], alone=reduces_batch)
    reduced = tuple(sorted({value.axis(int(axis) % len(shape)) for axis in numbers}))
    if not reduced or 0 in reduced:
        raise unsupported(node, "reduces the batch; only axes of a sample are supported")
    # In another order of the axes, or without any, the layer keeps those that are left out.
    direct = value.shape == shape and len(reduced) < len(shape) - 1
    keepdims = bool(attributes.get("keepdims", 1)) or not direct
    source = value.layer
    first, operator, last = COMPOSED_REDUCTIONS.get(node.op_type, (None, node.op_type, ""))
    if first is not None:
        sources = [source] * (2 if isinstance(first, Mul) else 1)
        source = importer.add(node, first, sources, value.shape)
    function: Any = operator.removeprefix("Reduce").lower()
    layer = Reduce(function=function, axes=reduced, keepdims=keepdims)
    kept = tuple(1 if axis in reduced else size for axis, size in enumerate(value.shape))
    layer_shape = kept if keepdims else importer.value_shape(node.output[0])
    name = importer.add(node, layer, [source], layer_shape)
    if last:
        name = importer.add(node, Elementwise(function=last), [name], layer_shape)  # type: ignore[arg-type]
    if not keepdims:
        return ValueView(name)
    return importer.value_of(node, name, importer.index_map_of(value.view(name, kept)))


#: Reductions that are others of a function of each number, and a function of the result.
COMPOSED_REDUCTIONS: Mapping[str, tuple[Layer | None, str, str]] = {
    "ReduceL1": (Elementwise(function="abs"), "ReduceSum", ""),
    "ReduceL2": (Mul(), "ReduceSum", "sqrt"),
    "ReduceSumSquare": (Mul(), "ReduceSum", ""),
    "ReduceLogSum": (None, "ReduceSum", "log"),
    "ReduceLogSumExp": (Elementwise(function="exp"), "ReduceSum", "log"),
}


def softmax(importer: Importer, node: onnx.NodeProto, attributes: Attributes) -> ValueView:
    """A softmax along one axis of a sample. Operator sets before 13 mean all axes from one on."""
    shape: Shape = importer.value_shape(node.input[0])
    early = importer.opset < 13
    axis = attributes.get("axis", 1 if early else -1) % len(shape)
    if early:
        large = [place for place in range(axis, len(shape)) if shape[place] > 1] or [axis]
        if len(large) > 1:
            raise unsupported(node, "adds up along several axes")
        (axis,) = large
    value = samples_first(importer, node, node.input[0])
    if value.axis(axis) == 0:
        raise unsupported(node, "adds up along the batch")
    layer = Softmax(axis=value.axis(axis), log=node.op_type == "LogSoftmax")
    return value.view(importer.add(node, layer, [value.layer], value.shape), value.shape)
