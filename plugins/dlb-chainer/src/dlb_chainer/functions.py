"""Functions: Chainer's own, and those that are composed."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from contextvars import ContextVar
from functools import partial

import chainer
import chainer.functions as F
import numpy as np
from chainer import Variable

from dlb_chainer import modules
from dlb_worker.interpolation import Product
from dlb_worker.model import Node

#: Whether functions are traced for an exporter, which needs no gradients.
EXPORTING = ContextVar("exporting", default=False)
#: What asks a sort to keep the order of equal numbers; CuPy's always does.
STABLE = {np: {"kind": "stable"}}
OPERATORS = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "max": F.maximum,
    "min": F.minimum,
}


def affine(inputs: Variable, alpha: float, beta: float) -> Variable:
    scaled = inputs if alpha == 1 else inputs * alpha
    return scaled if beta == 0 else scaled + beta


def acosh(inputs: Variable) -> Variable:
    return F.log(inputs + F.sqrt(inputs - 1) * F.sqrt(inputs + 1))


def asinh(inputs: Variable) -> Variable:
    """Composed of the function of the distance from 0, which is exact on either side."""
    away = F.absolute(inputs)
    return F.sign(inputs) * F.log1p(away + away * away / (1 + F.sqrt(away * away + 1)))


def atanh(inputs: Variable) -> Variable:
    return (F.log1p(inputs) - F.log1p(-inputs)) / 2


def celu(inputs: Variable, alpha: float) -> Variable:
    return F.elu(inputs / alpha) * alpha


def clip(inputs: Variable, min: float = -math.inf, max: float = math.inf) -> Variable:
    return F.clip(inputs, min, max)


def elu(inputs: Variable, alpha: float) -> Variable:
    """Composed where the gradient of F.elu at 0, which is 1, is not ``alpha``."""
    if alpha == 1:
        return F.elu(inputs)
    above = F.relu(inputs)
    return above + (F.elu(inputs) - above) * alpha


def hard_sigmoid(inputs: Variable, alpha: float, beta: float) -> Variable:
    return F.clip(inputs * alpha + beta, 0.0, 1.0)


def hard_swish(inputs: Variable) -> Variable:
    return inputs * modules.hard_sigmoid(inputs)


def leaky_relu(inputs: Variable, alpha: float) -> Variable:
    """Composed, since the gradient of F.leaky_relu at 0 is 1."""
    return inputs * alpha + F.relu(inputs) * (1 - alpha)


def mish(inputs: Variable) -> Variable:
    return inputs * F.tanh(F.softplus(inputs))


def neg(inputs: Variable) -> Variable:
    return -inputs


def power(inputs: Variable, alpha: float) -> Variable:
    return inputs**alpha


def reciprocal(inputs: Variable) -> Variable:
    return 1 / inputs


def rounded(inputs: Variable) -> Variable:
    """To the even number where two are as near; F.fix and F.floor leave no gradient either."""
    below = F.floor(inputs)
    beyond = inputs.array - below.array
    odd = below.array % 2
    up = (beyond > 0.5) | ((beyond == 0.5) & (odd == 1))
    return below + up.astype(inputs.dtype)


def selu(inputs: Variable) -> Variable:
    """Composed, as :func:`elu`."""
    scale = 1.0507009873554804934
    return elu(inputs, 1.6732632423543772848) * scale


def silu(inputs: Variable) -> Variable:
    return inputs * F.sigmoid(inputs)


def softsign(inputs: Variable) -> Variable:
    return inputs / (1 + F.absolute(inputs))


def straight_through_round(inputs: Variable) -> Variable:
    return inputs + (rounded(inputs).array - inputs.array)


#: By the function's name.
FUNCTIONS = {
    "abs": F.absolute,
    "acos": F.arccos,
    "acosh": acosh,
    "affine": affine,
    "asin": F.arcsin,
    "asinh": asinh,
    "atan": F.arctan,
    "atanh": atanh,
    "ceil": F.ceil,
    "celu": celu,
    "clip": clip,
    "cos": F.cos,
    "cosh": F.cosh,
    "elu": elu,
    "erf": F.erf,
    "exp": F.exp,
    "floor": F.floor,
    "hard_sigmoid": hard_sigmoid,
    "hard_swish": hard_swish,
    "leaky_relu": leaky_relu,
    "log": F.log,
    "mish": mish,
    "neg": neg,
    "pow": power,
    "reciprocal": reciprocal,
    "round": rounded,
    "selu": selu,
    "sign": F.sign,
    "silu": silu,
    "sin": F.sin,
    "sinh": F.sinh,
    "softplus": F.softplus,
    "softsign": softsign,
    "sqrt": F.sqrt,
    "straight_through_round": straight_through_round,
    "tan": F.tan,
}


def apply(inputs: Variable, function: str, **numbers: float) -> Variable:
    # The model's input is an array, of which an operator of Python would make another.
    return FUNCTIONS[function](chainer.as_variable(inputs), **numbers)


def elementwise(node: Node) -> partial[Variable]:
    return partial(apply, **node.attributes)


def repeated(values: Iterable[Variable], shape: tuple[int, ...]) -> list[Variable]:
    """Values in the shape of a sample, along whose axes some are repeated."""
    return [
        each if each.shape[1:] == shape else F.broadcast_to(each, (len(each), *shape))
        for each in map(chainer.as_variable, values)
    ]


def where(
    condition: Variable,
    *values: Variable,
    first: float | None,
    second: float | None,
    shape: tuple[int, ...],
) -> Variable:
    chosen, *others = repeated((condition, *values), shape)
    rest = iter(others)
    return choose(chosen, *(next(rest) if each is None else each for each in (first, second)))


def choose(condition: Variable, first: Variable | float, second: Variable | float) -> Variable:
    """Of two values of one shape, of which one may be a number."""
    both = (
        each if isinstance(each, Variable) else condition.xp.full_like(condition.array, each)
        for each in (first, second)
    )
    return F.where(condition.array != 0, *both)


def top_k(inputs: Variable, axis: int, k: int, largest: bool) -> Variable:
    return indices_of_largest(chainer.as_variable(inputs), axis=axis, k=k, largest=largest)


def indices_of_largest(inputs: Variable, *, axis: int, k: int, largest: bool) -> Variable:
    """Of an array: Chainer has no such function. Of equal numbers, the first comes first."""
    array, xp = inputs.array, inputs.xp
    order = xp.argsort(-array if largest else array, axis=axis, **STABLE.get(xp, {}))
    found = order[(slice(None),) * axis + (slice(k),)]
    return chainer.as_variable(found.astype(array.dtype))


def gather_elements(inputs: Variable, places: Variable, axis: int) -> Variable:
    inputs, places = map(chainer.as_variable, (inputs, places))
    shape = [max(sizes) for sizes in zip(inputs.shape, places.shape)]
    value, indices = (
        F.broadcast_to(each, (*shape[:axis], each.shape[axis], *shape[axis + 1 :]))
        for each in (inputs, places)
    )
    return elements(value, indices, axis=axis)


def elements(value: Variable, places: Variable, *, axis: int) -> Variable:
    """Numbers of a value in places along an axis; both have the same sizes along all others."""
    xp = value.xp
    indices = list(xp.indices(places.shape))
    indices[axis] = xp.clip(places.array, 0, value.shape[axis] - 1).astype(np.int64)
    return F.get_item(value, tuple(indices))


def binary(first: Variable, second: Variable, function: str, shape: tuple[int, ...]) -> Variable:
    values = repeated((first, second), shape)
    result: Variable = OPERATORS[function](*values)
    if EXPORTING.get() or function not in ("max", "min"):
        return result
    # Of two equal numbers, Chainer gives the first the whole gradient.
    a, b = values
    return F.where(a.array == b.array, (a + b) / 2, result)


class Scale(chainer.Link):
    """A parameter that multiplies every sample."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__()
        with self.init_scope():
            self.W = chainer.Parameter(1, sizes)

    def forward(self, inputs: Variable) -> Variable:
        inputs = chainer.as_variable(inputs)
        return inputs * F.broadcast_to(self.W, inputs.shape)


class Shift(chainer.Link):
    """A parameter that is added to every sample."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__()
        with self.init_scope():
            self.b = chainer.Parameter(0, sizes)

    def forward(self, inputs: Variable) -> Variable:
        inputs = chainer.as_variable(inputs)
        return inputs + F.broadcast_to(self.b, inputs.shape)


def mask(inputs: Variable, kept: np.ndarray, value: float) -> Variable:
    inputs = chainer.as_variable(inputs)
    other = inputs.device.send(np.array(value, inputs.dtype))
    return F.where(inputs.device.send(kept), inputs, other)


def resize(inputs: Variable, products: tuple[Product, ...], sizes: tuple[int, ...]) -> Variable:
    """A product with a constant matrix along each axis that changes."""
    value = chainer.as_variable(inputs)
    for product in products:
        matrix = value.device.send(product.matrix.astype(value.dtype))
        if product.after == 1:
            result = F.linear(F.reshape(value, (-1, product.size)), matrix)
        else:
            result = F.matmul(matrix, F.reshape(value, (-1, product.size, product.after)))
        value = F.reshape(result, (-1, *product.shape))
    return value


def reduce(inputs: Variable, function: str, axes: tuple[int, ...], keepdims: bool) -> Variable:
    """A reduction. For max and min, a zero is added whose gradient makes equal numbers share."""
    inputs = chainer.as_variable(inputs)
    reduced = getattr(F, {"mean": "average"}.get(function, function))(
        inputs, axes, keepdims=keepdims
    )
    if EXPORTING.get() or function not in ("max", "min"):
        return reduced
    kept = reduced.array if keepdims else inputs.xp.expand_dims(reduced.array, axes)
    count = (inputs.array == kept).sum(axis=axes, keepdims=keepdims).astype(inputs.dtype)
    return reduced.array + (reduced - reduced.array) / count
