"""Functions without weights: MXNet's own, and those that are composed.

MXNet's operators keep their numbers in float32, and the gradient of erf has a constant in float32. In float64
these functions are composed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import mxnet as mx

from dlb_mxnet.modules import EXPORTING, Operator, plain
from dlb_worker.interpolation import products
from dlb_worker.masks import kept_places
from dlb_worker.model import Node


def affine(F: Any, x: Any, dtype: str, alpha: float, beta: float) -> Any:
    scaled = x if alpha == 1 else x * alpha
    return scaled if beta == 0 else scaled + beta


def celu(F: Any, x: Any, dtype: str, alpha: float) -> Any:
    return F.LeakyReLU(x / alpha, act_type="elu", slope=1.0) * alpha


def clip(F: Any, x: Any, dtype: str, min: float = -math.inf, max: float = math.inf) -> Any:
    above = x if min == -math.inf else F.maximum(x, min)
    return above if max == math.inf else F.minimum(above, max)


def elu(F: Any, x: Any, dtype: str, alpha: float) -> Any:
    if dtype == "float32" or alpha == 1:
        return F.LeakyReLU(x, act_type="elu", slope=alpha)
    above = F.relu(x)
    return above + (F.LeakyReLU(x, act_type="elu", slope=1.0) - above) * alpha


def erf(F: Any, x: Any, dtype: str) -> Any:
    """In float64 without a gradient of its own; a zero is added whose gradient is the derivative."""
    if dtype == "float32":
        return F.erf(x)
    density = F.BlockGrad(F.exp(-1.0 * x * x) * (2 / math.sqrt(math.pi)))
    return F.BlockGrad(F.erf(x)) + (x - F.BlockGrad(x)) * density


def hard_sigmoid(F: Any, x: Any, dtype: str, alpha: float, beta: float) -> Any:
    return F.clip(x * alpha + beta, 0, 1)


def leaky_relu(F: Any, x: Any, dtype: str, alpha: float) -> Any:
    if dtype == "float32":
        return F.LeakyReLU(x, act_type="leaky", slope=alpha)
    return x * alpha + F.relu(x) * (1 - alpha)


def power(F: Any, x: Any, dtype: str, alpha: float) -> Any:
    return x**alpha


def rounded(F: Any, x: Any, dtype: str) -> Any:
    """Composed, since F.rint rounds a half down, and not to the even number; exported as that."""
    if EXPORTING.get():
        return F.rint(x)
    below = F.floor(x)
    half = x - below == 0.5
    odd = below - 2 * F.floor(below / 2)
    return below + (x - below > 0.5) + half * odd


def selu(F: Any, x: Any, dtype: str) -> Any:
    """Composed, since the gradient of the operator is wrong below 0, and its numbers are float32."""
    return elu(F, x, dtype, 1.6732632423543772848) * 1.0507009873554804934


def straight_through_round(F: Any, x: Any, dtype: str) -> Any:
    """Exported as a rounding."""
    result = rounded(F, x, dtype)
    return result if EXPORTING.get() else x + F.BlockGrad(result - x)


#: By the function's name: of the module of operators, the input, the dtype and the numbers.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": lambda F, x, dtype: F.abs(x),
    "acos": lambda F, x, dtype: F.arccos(x),
    "acosh": lambda F, x, dtype: F.arccosh(x),
    "affine": affine,
    "asin": lambda F, x, dtype: F.arcsin(x),
    "asinh": lambda F, x, dtype: F.arcsinh(x),
    "atan": lambda F, x, dtype: F.arctan(x),
    "atanh": lambda F, x, dtype: F.arctanh(x),
    "ceil": lambda F, x, dtype: F.ceil(x),
    "celu": celu,
    "clip": clip,
    "cos": lambda F, x, dtype: F.cos(x),
    "cosh": lambda F, x, dtype: F.cosh(x),
    "elu": elu,
    "erf": erf,
    "exp": lambda F, x, dtype: F.exp(x),
    "floor": lambda F, x, dtype: F.floor(x),
    "hard_sigmoid": hard_sigmoid,
    "hard_swish": lambda F, x, dtype: x * F.minimum(F.relu(x + 3), 6) / 6,
    "leaky_relu": leaky_relu,
    "log": lambda F, x, dtype: F.log(x),
    "mish": lambda F, x, dtype: x * F.tanh(F.Activation(x, act_type="softrelu")),
    "neg": lambda F, x, dtype: F.negative(x),
    "pow": power,
    "reciprocal": lambda F, x, dtype: F.reciprocal(x),
    "round": rounded,
    "selu": selu,
    "sign": lambda F, x, dtype: F.sign(x),
    "silu": lambda F, x, dtype: x * F.sigmoid(x),
    "sin": lambda F, x, dtype: F.sin(x),
    "sinh": lambda F, x, dtype: F.sinh(x),
    "softplus": lambda F, x, dtype: F.Activation(x, act_type="softrelu"),
    "softsign": lambda F, x, dtype: F.softsign(x),
    "sqrt": lambda F, x, dtype: F.sqrt(x),
    "straight_through_round": straight_through_round,
    "tan": lambda F, x, dtype: F.tan(x),
}


class Elementwise(Operator):
    """A function, by its name."""

    def __init__(self, dtype: str, function: str, **numbers: float) -> None:
        super().__init__(function, **numbers)
        self.dtype = dtype

    def hybrid_forward(self, F: Any, inputs: Any) -> Any:
        return FUNCTIONS[self.operator](F, inputs, self.dtype, **self.arguments)


class Binary(Operator):
    """A function of two values. For max and min, zeros are added by which equal numbers share a gradient."""

    def hybrid_forward(self, F: Any, first: Any, second: Any) -> Any:
        name = {"max": "maximum", "min": "minimum"}.get(self.operator, self.operator)
        result = getattr(F, f"broadcast_{name}")(first, second)
        if EXPORTING.get() or name == self.operator:
            return result
        beyond = F.broadcast_greater if name == "maximum" else F.broadcast_lesser
        share = F.BlockGrad(beyond(first, second) + F.broadcast_equal(first, second) / 2)
        result = F.BlockGrad(result)
        for value, part in ((first, share), (second, 1 - share)):
            result = result + F.broadcast_mul(value - F.BlockGrad(value), part)
        return result


class Where(Operator):
    """Of two values by a third; the operator reads values of one shape."""

    def __init__(self, node: Node, dtype: str) -> None:
        super().__init__(first=node.first, second=node.second)
        #: An input as large as the value, which others are repeated to; None if none is.
        self.largest = dict(zip(node.input_shapes, range(len(node.inputs)))).get(node.shape)
        self.repeats = tuple(shape != node.shape for shape in node.input_shapes)
        with self.name_scope():
            for number in (node.first, node.second):
                if number is not None:
                    array = mx.nd.full((1,) * (1 + len(node.shape)), number, dtype=dtype)
                    self.number = self.params.get_constant("number", array)

    def hybrid_forward(self, F: Any, *values: Any, number: Any = None) -> Any:
        like = reduce(F.broadcast_add, values) if self.largest is None else values[self.largest]
        condition, *both = (
            F.broadcast_like(each, like) if repeated else each
            for each, repeated in zip(values, self.repeats)
        )
        if number is not None:
            both.insert(self.second is not None, F.broadcast_like(number, condition))
        return F.where(condition, *both)


class Reduce(Operator):
    """A reduction. For max and min, a zero is added whose gradient makes equal numbers share."""

    def __init__(self, function: str, axes: tuple[int, ...], keepdims: bool) -> None:
        super().__init__(function, axis=axes, keepdims=keepdims)

    def hybrid_forward(self, F: Any, inputs: Any) -> Any:
        reduced = getattr(F, self.operator)(inputs, **self.arguments)
        if EXPORTING.get() or self.operator not in ("max", "min"):
            return reduced
        kept = getattr(F, self.operator)(inputs, axis=self.axis, keepdims=True)
        equal = F.BlockGrad(F.broadcast_equal(inputs, kept))
        count = F.sum(equal, **self.arguments)
        fixed = F.BlockGrad(reduced)
        return fixed + (reduced - fixed) / F.BlockGrad(count)


class Mask(Operator):
    """The operator reads values of one shape: what it chooses by, and the number, are repeated."""

    def __init__(self, node: Node, dtype: str) -> None:
        super().__init__(sizes=node.sizes, value=node.value)
        kept = mx.nd.array(kept_places(node)[None], dtype=dtype)
        other = mx.nd.full((1,) * kept.ndim, node.value, dtype=dtype)
        with self.name_scope():
            self.kept = self.params.get_constant("kept", kept)
            self.other = self.params.get_constant("other", other)

    def hybrid_forward(self, F: Any, inputs: Any, kept: Any, other: Any) -> Any:
        return F.where(F.broadcast_like(kept, inputs), inputs, F.broadcast_like(other, inputs))


class Resize(Operator):
    """A product with a constant matrix along each axis that changes; of maps, in MXNet's own layout."""

    def __init__(self, node: Node, dtype: str) -> None:
        super().__init__(sizes=node.sizes, mode=node.mode)
        self.products = tuple(products(node))
        with self.name_scope():
            for place, product in enumerate(self.products):
                matrix = mx.nd.array(product.matrix.T, dtype=dtype)
                constant = self.params.get_constant(f"weights{place}", matrix)
                setattr(self, f"weights{place}", constant)

    def hybrid_forward(self, F: Any, *inputs: Any, **weights: Any) -> Any:
        (value,) = inputs
        value = plain(F, value) if len(self.sizes) == 3 else value
        for place, product in enumerate(self.products):
            matrix, (size, output) = weights[f"weights{place}"], product.matrix.shape[::-1]
            if product.after == 1:
                result = F.dot(F.reshape(value, shape=(-1, size)), matrix)
            else:
                rows = F.swapaxes(F.reshape(value, shape=(-1, size, product.after)), dim1=1, dim2=2)
                result = F.dot(F.reshape(rows, shape=(-1, size)), matrix)
                rows = F.reshape(result, shape=(-1, product.after, output))
                result = F.swapaxes(rows, dim1=1, dim2=2)
            value = F.reshape(result, shape=(-1, *product.shape))
        return plain(F, value) if len(self.sizes) == 3 else value
