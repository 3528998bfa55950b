"""Functions of two values, and along axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from dlb.graph.decimals import ROUNDING, decimal
from dlb.imported.importer import Importer
from dlb.imported.layers import unsupported
from dlb.imported.views import Shape, ValueView
from dlb.workload.layers import Layer, Mul
from dlb.workload.primitives import Binary, Elementwise, Reduce, Softmax

__all__ = ["BINARY", "broadcast", "by_a_number", "power", "reduce", "softmax", "whole_value"]

Attributes = Mapping[str, Any]

#: Functions by operator.
BINARY: Mapping[str, Any] = {"Add": "add", "Sum": "add", "Sub": "sub", "Mul": "mul", "Div": "div"}
#: Axes of a sample at most.
_MOST_AXES = 3


def whole_value(importer: Importer, node: onnx.NodeProto, name: str) -> str:
    """The layer that computes a value in the file's own layout, batch first."""
    shape = importer.value_shape(name)
    view = importer.materialise_layout(name)
    if view.index_map is not None or importer.shape(view) != shape:
        raise unsupported(node, f"reads {list(shape)} in an order that no layer produces")
    if len(shape) > _MOST_AXES + 1:
        raise unsupported(node, f"reads a value of {len(shape)} axes; at most 4 are supported")
    return view.layer


def broadcast(importer: Importer, node: onnx.NodeProto, names: Sequence[str]) -> ValueView:
    """A sum, difference, product or quotient of two values, of which one or both are repeated."""
    if len(names) != 2:
        raise unsupported(node, "repeats one of more than two values")
    output = importer.value_shape(node.output[0])
    layers = []
    for name in names:
        layer, shape = whole_value(importer, node, name), importer.value_shape(name)
        if shape[0] != output[0]:
            raise unsupported(node, "repeats a value along the batch")
        if len(shape) < len(output):
            # Axes are aligned from the last, so the batch of a shorter value meets another axis.
            raise unsupported(node, "combines values with different numbers of axes")
        layers.append(layer)
    function = Binary(function=BINARY[node.op_type])
    return ValueView(importer.add(node, function, layers, output))


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
        if alpha * number != 1:
            raise unsupported(node, f"divides by {number:g}, whose inverse no float32 holds")
    else:
        alpha = -1.0 if node.op_type == "Sub" and first else 1.0
        beta = -number if node.op_type == "Sub" and not first else number
    if alpha == 0 or (alpha, beta) == (1, 0):
        raise unsupported(node, "makes a constant of the input")
    importer.nominal_values[constant] = number
    view = importer.elementwise(name)
    layer = Elementwise(function="affine", alpha=alpha, beta=beta)
    layer_name = importer.add(node, layer, [view.layer], importer.shape(view))
    return ValueView(layer_name, view.index_map)


def power(importer: Importer, node: onnx.NodeProto, attributes: Attributes) -> ValueView:
    """A square, as a product, or a square root."""
    exponent = importer.trace.constant(node, 1)
    if exponent is None or exponent.size != 1 or exponent.item() not in (2, 0.5):
        raise unsupported(node, "only powers of 2 and 0.5 are supported")
    view = importer.elementwise(node.input[0])
    square = exponent.item() == 2
    layer: Layer = Mul() if square else Elementwise(function="sqrt")
    sources = [view.layer] * (2 if square else 1)
    return ValueView(importer.add(node, layer, sources, importer.shape(view)), view.index_map)


def reduce(importer: Importer, node: onnx.NodeProto, attributes: Attributes) -> ValueView:
    """A mean, sum, maximum or minimum along axes of a sample."""
    shape = importer.value_shape(node.input[0])
    axes = attributes.get("axes", importer.trace.constant(node, 1))
    if 0 in shape:
        raise unsupported(node, "reduces a value without numbers")
    numbers = range(len(shape)) if axes is None else np.ravel(axes).tolist()
    reduced = tuple(sorted({int(axis) % len(shape) for axis in numbers}))
    if not reduced or 0 in reduced:
        raise unsupported(node, "reduces the batch; only axes of a sample are supported")
    keepdims = bool(attributes.get("keepdims", 1))
    if not keepdims and len(reduced) == len(shape) - 1:
        raise unsupported(node, "leaves no axis of a sample")
    source = whole_value(importer, node, node.input[0])
    function: Any = node.op_type.removeprefix("Reduce").lower()
    layer = Reduce(function=function, axes=reduced, keepdims=keepdims)
    return ValueView(importer.add(node, layer, [source], importer.value_shape(node.output[0])))


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
    if axis == 0:
        raise unsupported(node, "adds up along the batch")
    source = whole_value(importer, node, node.input[0])
    layer = Softmax(axis=axis, log=node.op_type == "LogSoftmax")
    return ValueView(importer.add(node, layer, [source], shape))
