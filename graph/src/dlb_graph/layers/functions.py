"""The functions of :class:`dlb_graph.layers.elementwise.Elementwise`: formula, derivative, ONNX operator.

Where a function has no derivative, one number counts, for all adapters: ``abs`` has 0 at 0; ``ceil``,
``floor``, ``round`` and ``sign`` have 0 everywhere, and ``straight_through_round`` has 1; ``elu``,
``leaky_relu`` and ``selu`` have the left one at 0; ``clip`` and ``hard_sigmoid`` have, at a bound, that
between the bounds.
Formulas are those of https://onnx.ai/onnx/operators/. They compute in the type of their input.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlb_graph.layers.decimals import is_sixth
from dlb_graph.layers.numbers import Array
from dlb_graph.layers.special_functions import erf, sigmoid, softplus

__all__ = ["FUNCTIONS", "Function"]


#: Klambauer et al. 2017, arXiv:1706.02515. ONNX keeps both rounded to float32.
SELU_ALPHA, SELU_GAMMA = 1.6732632423543772848, 1.0507009873554804934


@dataclass(frozen=True)
class Function:
    """One function.

    Attributes:
        operator: the ONNX operator; "" if opset 17 has none.
        value, slope: of an array and the function's numbers.
        defaults: ONNX's own values of the operator's attributes.
        constants: attributes of the operator that a layer has none of, and what they are exactly.
        bounded: values stay within bounds, whatever the input.
        limited: it is not finite, or has no finite derivative, for some inputs that a float32 holds.
    """

    operator: str
    value: Callable[..., Any]
    slope: Callable[..., Any]
    defaults: Mapping[str, float] | None = None
    constants: Mapping[str, float] | None = None
    bounded: bool = False
    limited: bool = False


def _elu(x: Array, alpha: float) -> Any:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def _celu(x: Array, alpha: float) -> Any:
    return np.maximum(x, 0) + np.minimum(0, alpha * np.expm1(np.minimum(x, 0) / alpha))


def _line(x: Array, alpha: float, beta: float) -> Any:
    return (1 / 6 if is_sixth(alpha) else alpha) * x + beta


def _hard_sigmoid_slope(x: Array, alpha: float, beta: float) -> Any:
    line = _line(x, alpha, beta)
    return ((line >= 0) & (line <= 1)) * (1 / 6 if is_sixth(alpha) else alpha)


def _mish_slope(x: Array) -> Any:
    curve = np.tanh(softplus(x))
    return curve + x * (1 - curve * curve) * sigmoid(x)


_ALPHA = {"alpha": 1.0}

FUNCTIONS: Mapping[str, Function] = {
    "abs": Function("Abs", np.abs, np.sign),
    "acos": Function("Acos", np.arccos, lambda x: -1 / np.sqrt(1 - x * x), limited=True),
    "acosh": Function("Acosh", np.arccosh, lambda x: 1 / np.sqrt(x * x - 1), limited=True),
    "affine": Function(
        "", lambda x, alpha, beta: alpha * x + beta, lambda x, alpha, beta: np.full_like(x, alpha)
    ),
    "asin": Function("Asin", np.arcsin, lambda x: 1 / np.sqrt(1 - x * x), limited=True),
    "asinh": Function("Asinh", np.arcsinh, lambda x: 1 / np.sqrt(x * x + 1)),
    "atan": Function("Atan", np.arctan, lambda x: 1 / (1 + x * x), bounded=True),
    "atanh": Function("Atanh", np.arctanh, lambda x: 1 / (1 - x * x), limited=True),
    "ceil": Function("Ceil", np.ceil, np.zeros_like),
    "celu": Function("Celu", _celu, lambda x, alpha: np.exp(np.minimum(x, 0) / alpha), _ALPHA),
    "clip": Function(
        "Clip",
        lambda x, min=-math.inf, max=math.inf: np.clip(x, min, max),
        lambda x, min=-math.inf, max=math.inf: (x >= min) & (x <= max),
    ),
    "cos": Function("Cos", np.cos, lambda x: -np.sin(x), bounded=True),
    "cosh": Function("Cosh", np.cosh, np.sinh, limited=True),
    "elu": Function(
        "Elu", _elu, lambda x, alpha: np.where(x > 0, 1, alpha * np.exp(np.minimum(x, 0))), _ALPHA
    ),
    "erf": Function("Erf", erf, lambda x: np.exp(-x * x) * (2 / math.sqrt(math.pi)), bounded=True),
    "exp": Function("Exp", np.exp, np.exp, limited=True),
    "floor": Function("Floor", np.floor, np.zeros_like),
    "hard_sigmoid": Function(
        "HardSigmoid",
        lambda x, alpha, beta: np.clip(_line(x, alpha, beta), 0, 1),
        _hard_sigmoid_slope,
        {"alpha": 0.2, "beta": 0.5},
        bounded=True,
    ),
    "hard_swish": Function(
        "HardSwish",
        lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
        lambda x: np.where(x > 3, 1, np.where(x < -3, 0, x / 3 + 0.5)),
    ),
    "leaky_relu": Function(
        "LeakyRelu",
        lambda x, alpha: np.where(x > 0, x, alpha * x),
        lambda x, alpha: np.where(x > 0, 1, alpha),
        {"alpha": 0.01},
    ),
    "log": Function("Log", np.log, lambda x: 1 / x, limited=True),
    "mish": Function("Mish", lambda x: x * np.tanh(softplus(x)), _mish_slope),
    "neg": Function("Neg", np.negative, lambda x: -np.ones_like(x)),
    "pow": Function(
        "",
        lambda x, alpha: np.power(x, alpha),
        lambda x, alpha: alpha * np.power(x, alpha - 1),
        limited=True,
    ),
    "reciprocal": Function("Reciprocal", lambda x: 1 / x, lambda x: -1 / (x * x), limited=True),
    "round": Function("Round", np.round, np.zeros_like),
    "selu": Function(
        "Selu",
        lambda x, alpha=SELU_ALPHA, gamma=SELU_GAMMA: gamma * _elu(x, alpha),
        lambda x: SELU_GAMMA * np.where(x > 0, 1, SELU_ALPHA * np.exp(np.minimum(x, 0))),
        constants={"alpha": SELU_ALPHA, "gamma": SELU_GAMMA},
    ),
    "sign": Function("Sign", np.sign, np.zeros_like, bounded=True),
    "silu": Function("", lambda x: x * sigmoid(x), lambda x: sigmoid(x) * (1 + x * sigmoid(-x))),
    "sin": Function("Sin", np.sin, np.cos, bounded=True),
    "sinh": Function("Sinh", np.sinh, np.cosh, limited=True),
    "softplus": Function("Softplus", softplus, sigmoid),
    "softsign": Function(
        "Softsign", lambda x: x / (1 + np.abs(x)), lambda x: 1 / (1 + np.abs(x)) ** 2, bounded=True
    ),
    "sqrt": Function("Sqrt", np.sqrt, lambda x: 0.5 / np.sqrt(x), limited=True),
    "straight_through_round": Function("Round", np.round, np.ones_like),
    "tan": Function("Tan", np.tan, lambda x: 1 + np.tan(x) ** 2, limited=True),
}
