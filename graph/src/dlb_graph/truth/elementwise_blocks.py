"""Functions of single numbers in graphs, as an operator or decomposed, and PReLUs written as sums of ReLUs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from dlb_graph.layers.decimals import decimal, six_digits, unrounded
from dlb_graph.layers.functions import FUNCTIONS
from dlb_graph.layers.numbers import Array
from dlb_graph.truth.block_search import (
    candidates,
    is_near,
    nominal_constants,
    real_constants,
    run_nodes,
)
from dlb_graph.truth.recognised import Block, Recognised
from dlb_graph.truth.trace import Trace

__all__ = ["DECOMPOSED_OPERATORS", "NAMED", "decomposed", "named", "prelu"]

#: Functions by their ONNX operator, but for those that have rules of their own, and for a gradient that no
#: graph shows.
NAMED: Mapping[str, str] = {
    function.operator: name
    for name, function in FUNCTIONS.items()
    if function.operator
    and function.operator not in ("Clip", "HardSigmoid", "HardSwish")
    and name != "straight_through_round"
}
_TESTS = {"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Not"}
_ARITHMETIC = {"Add", "Cast", "Div", "Identity", "Mul", "Neg", "Pow", "Reciprocal", "Sub", "Sum"}
_BENT = ("Abs", "Celu", "Clip", "Elu", "Exp", "LeakyRelu", "Log", "Max", "Min", "Relu", "Softplus")
#: Every operator that may be part of a function.
DECOMPOSED_OPERATORS = _TESTS | _ARITHMETIC | {*_BENT, "Tanh", "Where"}
#: The largest number of operators of a function.
_LONGEST = 12
#: Beyond this no number is tried, so that no bound may lie there.
_FARTHEST = 40.0
#: Where functions are compared: every piece of each, and far beyond.
_PLACES = np.concatenate(
    [np.linspace(-9.0, 9.0, 73), [-_FARTHEST, -0.05, 0.05, _FARTHEST], np.linspace(-1.3, 1.3, 15)]
)


def named(node: onnx.NodeProto, attributes: Mapping[str, Any]) -> tuple[str, Mapping[str, float]]:
    """The function of one operator of :data:`NAMED`, and its numbers by name.

    Constants of the operator are among these if they are others than ONNX's own: no layer has them.
    """
    function = NAMED[node.op_type]
    defaults = FUNCTIONS[function].defaults or {}
    numbers = {key: decimal(attributes.get(key, default)) for key, default in defaults.items()}
    for key, exact in (FUNCTIONS[function].constants or {}).items():
        number = attributes.get(key, exact)
        if np.float32(number) != np.float32(exact):
            numbers[key] = decimal(number)
    return function, numbers


def _at(x: float) -> int:
    return int(np.abs(_PLACES - x).argmin())


def _ratio(numerator: Any, denominator: float) -> dict[str, float]:
    return {"alpha": six_digits(float(numerator) / denominator)}


_ONE = float(_PLACES[_at(-1.0)])
#: Functions that exporters write in parts, and how their numbers follow from values.
_FITS: Mapping[str, Callable[[Array], dict[str, float]]] = {
    "softplus": lambda y: {},
    "softsign": lambda y: {},
    "mish": lambda y: {},
    "selu": lambda y: {},
    "abs": lambda y: {},
    "leaky_relu": lambda y: _ratio(y[_at(_ONE)], _ONE),
    "elu": lambda y: _ratio(y[_at(_ONE)], math.expm1(_ONE)),
    "celu": lambda y: _ratio(-y[_at(-_FARTHEST)], 1.0),
    "hard_sigmoid": lambda y: {
        "alpha": float(f"{float(y[_at(0.05)] - y[_at(-0.05)]) / 0.1:.7g}"),
        "beta": six_digits(float(y[_at(0.05)] + y[_at(-0.05)]) / 2),
    },
}


def decomposed(known: Recognised, end: onnx.NodeProto) -> Block | None:
    """The function whose last operator is a node, or None."""
    trace, found = known.trace, None
    for start, nodes in candidates(trace, end, DECOMPOSED_OPERATORS, _BENT):
        if len(nodes) < 2 or len(nodes) > _LONGEST:
            continue
        shape = trace.values[start].shape
        constants = real_constants(trace, nodes).values()
        if trace.values[end.output[0]].shape != shape or any(
            constant.size != 1 or constant.ndim > len(shape) or abs(constant.item()) > _FARTHEST
            for constant in constants
        ):
            continue
        x = _PLACES.reshape(-1, *(1,) * (len(shape) - 1))
        with np.errstate(all="ignore"):
            output = run_nodes(trace, nodes, {start: x}, end.output[0])
        if output.shape == x.shape and np.isfinite(output).all():
            match = _match(output.ravel())
            # Shortest first; the sum of a hard sigmoid is a hard sigmoid of the product before it.
            if match is not None and (found is None or match[0] == found.attributes["function"]):
                function, numbers = match
                found = Block(
                    "Where",  # the importer's rule for all functions
                    {"function": function, **numbers},
                    (start,),
                    nominal_values=_exact_constants(trace, nodes, function, numbers),
                    intermediates=tuple(
                        name for node in nodes for name in node.output if node is not end
                    ),
                )
                if function != "hard_sigmoid":
                    return found
    return found


def _exact_constants(
    trace: Trace, nodes: Sequence[onnx.NodeProto], function: str, numbers: Mapping[str, float]
) -> dict[str, float]:
    """The constants of a function's parts that a file keeps rounded, such as 0.8 next to a slope of 0.2."""
    exact = {}
    for name, constant in real_constants(trace, nodes).items():
        number = float(constant.ravel()[0])
        if unrounded(number) != number:
            exact[name] = unrounded(number)
    own = list((FUNCTIONS[function].constants or {}).values())
    products = [math.prod(own)] if own else []
    return exact | nominal_constants(trace, nodes, [*numbers.values(), *own, *products])


def _match(y: Array) -> tuple[str, dict[str, float]] | None:
    for function, fit in _FITS.items():
        numbers = fit(y)
        alpha = numbers.get("alpha", 0.5)
        # Of other slopes, it is a line, or a ReLU.
        if not math.isfinite(alpha) or (function == "leaky_relu" and alpha in (0.0, 1.0)):
            continue
        if (function == "elu" and not alpha) or (
            function in ("celu", "hard_sigmoid") and alpha <= 0
        ):
            continue
        if function == "hard_sigmoid" and (y.min(), y.max()) != (0.0, 1.0):
            continue
        expected = np.asarray(FUNCTIONS[function].value(_PLACES, **numbers))
        # On either side and at 0: a small number that is added to a ReLU is large below 0.
        sides = (_PLACES < 0, _PLACES == 0, _PLACES > 0)
        if all(is_near(y[side], expected[side]) for side in sides):
            return function, numbers
    return None


_SLOPED = ("Abs", "Relu")
_SUMS = ("Add", "Sub", "Sum")
_SLOPE_OPERATORS = {"Cast", "Mul", "Neg", *_SLOPED, *_SUMS}


def prelu(known: Recognised, end: onnx.NodeProto) -> Block | None:
    """The PReLU with a slope for each channel that ends in a node, or None.

    Sums of values, products with constants and bends at 0 keep factors above 0. So a function of single
    numbers that is made of them is known by its values at 1 and at -1.
    """
    trace = known.trace
    for start, nodes in candidates(trace, end, _SLOPE_OPERATORS, _SLOPED):
        shape = trace.values[start].shape
        sizes = {constant.size for constant in real_constants(trace, nodes).values()}
        if max(sizes, default=1) == 1 or any(
            trace.values[node.output[0]].shape != shape
            or len(trace.live_inputs(node)) != (len(node.input) if node.op_type in _SUMS else 1)
            for node in nodes
        ):
            continue
        above, below = (
            run_nodes(trace, nodes, {start: np.full(shape, number)}, end.output[0])
            for number in (1.0, -1.0)
        )
        if (above == 1).all() and (below == below[:1]).all():
            count = max(sizes)
            weights = {"slope": -below[:1]}
            return Block("PRelu", {"slopes": count}, (start,), weights=weights)
    return None
