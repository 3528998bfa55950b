"""Functions: TensorFlow's own, and those that are composed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from dlb_tf.modules import EXPORTING, Layouts, Operator, to_canonical, to_maps
from dlb_worker.interpolation import products
from dlb_worker.masks import kept_places
from dlb_worker.model import Node


def affine(inputs: tf.Tensor, alpha: float, beta: float) -> tf.Tensor:
    scaled = inputs if alpha == 1 else inputs * alpha
    return scaled if beta == 0 else scaled + beta


def celu(inputs: tf.Tensor, alpha: float) -> tf.Tensor:
    """Composed of elu: the gradient of Keras's own at 0 is 2."""
    return alpha * tf.nn.elu(inputs / alpha)


def clip(inputs: tf.Tensor, min: float = -np.inf, max: float = np.inf) -> tf.Tensor:
    return tf.clip_by_value(inputs, min, max)


def elu(inputs: tf.Tensor, alpha: float) -> tf.Tensor:
    """Composed where ``alpha`` is not that of TensorFlow's own, 1."""
    if alpha == 1:
        return tf.nn.elu(inputs)
    above = tf.nn.relu(inputs)
    return above + (tf.nn.elu(inputs) - above) * alpha


def hard_sigmoid(inputs: tf.Tensor, alpha: float, beta: float) -> tf.Tensor:
    return tf.clip_by_value(inputs * alpha + beta, 0, 1)


def hard_swish(inputs: tf.Tensor) -> tf.Tensor:
    return inputs * keras.activations.hard_sigmoid(inputs)


def leaky_relu(inputs: tf.Tensor, alpha: float) -> tf.Tensor:
    """TensorFlow's own, and its composition in float64, for the operator keeps its slope in float32."""
    if inputs.dtype == tf.float64:
        return tf.where(inputs > 0, inputs, alpha * inputs)
    return tf.nn.leaky_relu(inputs, alpha)


def mish(inputs: tf.Tensor) -> tf.Tensor:
    return inputs * tf.tanh(tf.nn.softplus(inputs))


def power(inputs: tf.Tensor, alpha: float) -> tf.Tensor:
    return inputs**alpha


def selu(inputs: tf.Tensor) -> tf.Tensor:
    """Composed, since the gradient of tf.nn.selu at 0 is that on its right."""
    return 1.0507009873554804934 * elu(inputs, 1.6732632423543772848)


def straight_through_round(inputs: tf.Tensor) -> tf.Tensor:
    """Exported as a rounding."""
    rounded = tf.round(inputs)
    return rounded if EXPORTING.get() else inputs + tf.stop_gradient(rounded - inputs)


#: By the function's name.
FUNCTIONS = {
    "abs": tf.abs,
    "acos": tf.acos,
    "acosh": tf.acosh,
    "affine": affine,
    "asin": tf.asin,
    "asinh": tf.asinh,
    "atan": tf.atan,
    "atanh": tf.atanh,
    "ceil": tf.math.ceil,
    "celu": celu,
    "clip": clip,
    "cos": tf.cos,
    "cosh": tf.cosh,
    "elu": elu,
    "erf": tf.math.erf,
    "exp": tf.exp,
    "floor": tf.floor,
    "hard_sigmoid": hard_sigmoid,
    "hard_swish": hard_swish,
    "leaky_relu": leaky_relu,
    "log": tf.math.log,
    "mish": mish,
    "neg": tf.negative,
    "pow": power,
    "reciprocal": tf.math.reciprocal,
    "round": tf.round,
    "selu": selu,
    "sign": tf.sign,
    "silu": tf.nn.silu,
    "sin": tf.sin,
    "sinh": tf.sinh,
    "softplus": tf.nn.softplus,
    "softsign": tf.nn.softsign,
    "sqrt": tf.sqrt,
    "straight_through_round": straight_through_round,
    "tan": tf.tan,
}


def apart(function: Callable[..., tf.Tensor], *inputs: tf.Tensor) -> tf.Tensor:
    """The function of the inputs; for an exporter, which joins neighbours, apart from them, as HardSigmoid."""
    if not EXPORTING.get():
        return function(*inputs)
    return tf.stop_gradient(function(*map(tf.stop_gradient, inputs)))


class Elementwise(Operator):
    """A function of each number."""

    def __init__(self, function: str, **numbers: Any) -> None:
        super().__init__(function=function, **numbers)
        self.numbers = numbers

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return apart(partial(FUNCTIONS[self.function], **self.numbers), inputs)


#: By the function's name.
BINARY = {
    "add": tf.add,
    "sub": tf.subtract,
    "mul": tf.multiply,
    "div": tf.divide,
    "max": tf.maximum,
    "min": tf.minimum,
}


class Binary(Operator):
    """A function of two values."""

    def call(self, inputs: list[tf.Tensor]) -> tf.Tensor:
        function = BINARY[self.operator]
        if EXPORTING.get() or self.operator not in ("max", "min"):
            return apart(function, *inputs)
        # Of two equal numbers, TensorFlow gives the first the whole gradient.
        first, second = inputs
        return tf.where(tf.equal(first, second), (first + second) / 2, function(first, second))


class Where(Operator):
    """Of two values by a third; one of both may be a number."""

    def call(self, inputs: list[tf.Tensor]) -> tf.Tensor:
        condition, *values = inputs
        rest = iter(values)
        first, second = (
            next(rest) if each is None else tf.constant(each, condition.dtype)
            for each in (self.first, self.second)
        )
        return tf.where(tf.cast(condition, tf.bool), first, second)


class MatMul(Operator):
    """A product of two values; feature maps, whose channels come last, are turned before and after it."""

    def call(self, inputs: list[tf.Tensor]) -> tf.Tensor:
        if not self.maps:
            return tf.matmul(*inputs)
        rank = len(inputs[0].shape) - 1
        product = tf.matmul(*(tf.transpose(each, (0, *to_canonical(rank))) for each in inputs))
        return tf.transpose(product, (0, *to_maps(rank)))


class Scale(Operator):
    """A weight that multiplies every sample."""

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        self.factors = self.add_weight(shape=self.sizes, initializer="ones")

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return apart(tf.multiply, inputs, self.factors)


class Shift(Operator):
    """A weight that is added to every sample."""

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        self.terms = self.add_weight(shape=self.sizes, initializer="zeros")

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return apart(tf.add, inputs, self.terms)


class Mask(Operator):
    """The places that stay are a constant, in the order of the value's axes."""

    def __init__(self, node: Node, layouts: Layouts) -> None:
        super().__init__(sizes=native_sizes(node, layouts), value=node.value)
        axes = layouts[node.inputs[0]].axes(len(node.sizes))
        self.kept = kept_places(node).transpose([axis - 1 for axis in axes])

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        # Fewer numbers are finite in bfloat16.
        value = min(max(self.value, float(inputs.dtype.min)), float(inputs.dtype.max))
        return tf.where(self.kept, inputs, tf.constant(value, inputs.dtype))


class Resize(Operator):
    """A product with a constant matrix along each axis that changes."""

    def __init__(self, node: Node, layouts: Layouts) -> None:
        super().__init__(sizes=native_sizes(node, layouts), mode=node.mode)
        order = layouts[node.inputs[0]].axes(len(node.sizes))
        self.products = tuple(products(node, order))

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        for product in self.products:
            matrix = tf.constant(product.matrix, inputs.dtype)
            if product.after == 1:
                rows = tf.reshape(inputs, (-1, product.size))
                result = tf.matmul(rows, matrix, transpose_b=True)
            else:
                result = tf.matmul(matrix, tf.reshape(inputs, (-1, product.size, product.after)))
            inputs = tf.reshape(result, (-1, *product.shape))
        return inputs


class Softmax(Operator):
    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return (tf.nn.log_softmax if self.log else tf.nn.softmax)(inputs, self.axis)


class Reduce(Operator):
    """A reduction, and the order of the axes that it leaves."""

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        reduced = getattr(tf, f"reduce_{self.function}")(inputs, self.axes, self.keepdims)
        in_order = self.order == tuple(range(len(self.order)))
        return reduced if in_order else tf.transpose(reduced, self.order)


class TopK(Operator):
    """Indices of the largest or smallest numbers; the operator reads the last axis."""

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        rows = _swapped(inputs, self.axis)
        found = tf.math.top_k(rows if self.largest else -rows, self.k).indices
        return tf.cast(_swapped(found, self.axis), inputs.dtype)


class GatherElements(Operator):
    """Numbers in places along an axis; the operator reads the last one, and values of one shape before it."""

    def call(self, inputs: list[tf.Tensor]) -> tf.Tensor:
        value, places = (_swapped(each, self.axis) for each in inputs)
        size = value.shape[-1]
        indices = tf.cast(tf.clip_by_value(places, 0, size - 1), tf.int32)
        value, indices = _repeated(value, indices), _repeated(indices, value)
        found = tf.gather(value, indices, batch_dims=len(value.shape) - 1)
        return _swapped(found, self.axis)


def _swapped(value: tf.Tensor, axis: int) -> tf.Tensor:
    """An axis and the last one, in each other's place."""
    order = [*range(len(value.shape))]
    order[axis], order[-1] = order[-1], order[axis]
    return value if axis == order[axis] else tf.transpose(value, order)


def _repeated(value: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
    """A value, repeated along axes of size 1 but the last, as often as another's."""
    sizes = [*map(max, value.shape[1:-1], other.shape[1:-1]), value.shape[-1]]
    if sizes == value.shape[1:]:
        return value
    return tf.broadcast_to(value, tf.concat([tf.shape(value)[:1], sizes], 0))


def top_k(node: Node, layouts: Layouts) -> Operator:
    axis = layouts[node.inputs[0]].native_axis(node.axis, len(node.shape))
    return TopK(axis=axis, k=node.k, largest=node.largest)


def gather_elements(node: Node, layouts: Layouts) -> Operator:
    return GatherElements(axis=layouts[node.inputs[0]].native_axis(node.axis, len(node.shape)))


def matmul(node: Node, layouts: Layouts) -> Operator:
    return MatMul(maps=layouts[node.name].kind == "maps")


def native_sizes(node: Node, layouts: Layouts) -> tuple[int, ...]:
    """The sizes that a layer has for each axis of a sample, in the order of the value's axes."""
    axes = layouts[node.inputs[0]].axes(len(node.sizes))
    return tuple(node.sizes[axis - 1] for axis in axes)


def softmax(node: Node, layouts: Layouts) -> Operator:
    axis = layouts[node.inputs[0]].native_axis(node.axis, len(node.shape))
    return Softmax(axis=axis, log=node.log)


def reduce(node: Node, layouts: Layouts) -> Operator:
    layout, rank = layouts[node.inputs[0]], len(node.input_shape)
    axes = tuple(layout.native_axis(axis, rank) for axis in node.axes)
    order: tuple[int, ...] = ()
    if not node.keepdims:
        left = [axis for axis in layout.axes(rank) if axis not in node.axes]
        after = [sorted(left)[axis - 1] for axis in layouts[node.name].axes(len(left))]
        order = (0, *(left.index(axis) + 1 for axis in after))
    return Reduce(function=node.function, axes=axes, keepdims=node.keepdims, order=order)
