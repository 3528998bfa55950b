"""One layer of many functions of each number: the ONNX operators of the same meanings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from dlb_graph.layers.activation import Activation
from dlb_graph.layers.base import Shape
from dlb_graph.layers.numbers import Array, np

if TYPE_CHECKING:
    from dlb_graph.layers.functions import Function
    from dlb_graph.truth.layer_nodes import Graph

__all__ = ["FUNCTION_NUMBERS", "Elementwise", "ElementwiseFunction"]

ElementwiseFunction = Literal[
    "abs", "acos", "acosh", "affine", "asin", "asinh", "atan", "atanh", "ceil", "celu", "clip", "cos",
    "cosh", "elu", "erf", "exp", "floor", "hard_sigmoid", "hard_swish", "leaky_relu", "log", "mish", "neg",
    "pow", "reciprocal", "round", "selu", "sign", "silu", "sin", "sinh", "softplus", "softsign", "sqrt",
    "straight_through_round", "tan",
]  # fmt: skip

#: The numbers that a function needs, by function; ``clip`` needs one of its two.
FUNCTION_NUMBERS: Mapping[str, tuple[str, ...]] = {
    "affine": ("alpha", "beta"),
    "celu": ("alpha",),
    "clip": ("min", "max"),
    "elu": ("alpha",),
    "hard_sigmoid": ("alpha", "beta"),
    "leaky_relu": ("alpha",),
    "pow": ("alpha",),
}


class Elementwise(Activation, tag="elementwise", kw_only=True, frozen=True):
    """A function of each number, the ONNX operator of the same meaning.

    Attributes:
        function: its name; :data:`dlb_graph.layers.functions.FUNCTIONS` has the formulas.
            ``straight_through_round`` is ``round`` with the gradient of the identity, by which quantised
            networks are trained (Bengio et al. 2013, arXiv:1308.3432).
        alpha: a number of ``affine``, ``celu``, ``elu``, ``hard_sigmoid``, ``leaky_relu`` and ``pow``.
        beta: a number of ``affine`` and ``hard_sigmoid``.
        min, max: bounds of ``clip``; without one, that side has none.
    """

    mistakes = "another operator or constant, or the way halves are rounded"

    function: ElementwiseFunction
    alpha: float | None = None
    beta: float | None = None
    min: float | None = None
    max: float | None = None

    @property
    def numbers(self) -> dict[str, float]:
        """The function's numbers by name."""
        fields = {name: getattr(self, name) for name in ("alpha", "beta", "min", "max")}
        return {name: float(number) for name, number in fields.items() if number is not None}

    @property
    def formula(self) -> Function:
        """Its value, slope and ONNX operator."""
        from dlb_graph.layers.functions import FUNCTIONS  # which imports NumPy

        return FUNCTIONS[self.function]

    def fault(self) -> str:
        needed, numbers = FUNCTION_NUMBERS.get(self.function, ()), self.numbers
        extra = [name for name in numbers if name not in needed]
        if extra:
            return f"function '{self.function}' has no {extra[0]}; leave it out"
        missing = [name for name in needed if name not in numbers]
        if self.function == "clip":
            if len(missing) == len(needed):
                return "function 'clip' needs min, max or both"
            if not missing and not numbers["min"] < numbers["max"]:
                return f"min = {self.min} must be below max = {self.max}"
        elif missing:
            return f"function '{self.function}' needs {' and '.join(missing)}"
        if not all(map(math.isfinite, numbers.values())):
            return "its numbers must be finite"
        if self.function == "affine" and (self.alpha == 0 or (self.alpha, self.beta) == (1, 0)):
            return f"alpha = {self.alpha} and beta = {self.beta} make a constant, or change nothing"
        if self.function == "pow" and self.alpha in (0, 1):
            return f"alpha = {self.alpha} makes a constant, or changes nothing"
        if self.function in ("celu", "hard_sigmoid") and not numbers["alpha"] > 0:
            return f"alpha = {self.alpha} must be above 0"
        return ""

    def attributes(self, shape: Shape) -> dict[str, Any]:
        return {"function": self.function, **self.numbers}

    def nodes(self, graph: Graph, name: str, inputs: list[str], shapes: list[Shape]) -> None:
        within = graph.within(name)
        if self.function == "clip":
            sides = (self.numbers.get(side) for side in ("min", "max"))
            within.end("Clip", *inputs, *("" if n is None else within.held(n) for n in sides))
            return
        if name in graph.offsets:
            within.end("Add", *inputs, within.held(graph.offsets[name]))
            return
        if self.function == "affine":
            steps = [
                (operator, number)
                for operator, number, same in (("Mul", self.alpha, 1.0), ("Add", self.beta, 0.0))
                if number != same
            ]
            (value,), (last, number) = inputs, steps.pop()
            for operator, first in steps:
                value = within.add(operator, value, within.held(first))
            within.end(last, value, within.held(number))
            return
        if self.function == "pow":
            within.end("Pow", *inputs, within.held(self.alpha))
            return
        gates = {"silu": ("Sigmoid",), "mish": ("Softplus", "Tanh")}.get(self.function, ())
        if not gates:
            numbers: dict[str, Any] = dict(self.numbers)
            graph.node(self.formula.operator, inputs, name, **numbers)
            return
        (gate,) = inputs
        for operator in gates:
            gate = within.add(operator, gate)
        within.end("Mul", *inputs, gate)

    def slope(self, x: Array) -> Array:
        """The derivative at each number, in the type of ``x``."""
        with np.errstate(all="ignore"):
            slopes: Array = np.asarray(self.formula.slope(x, **self.numbers))
        return slopes.astype(x.dtype, copy=False)

    def is_bounded(self) -> bool:
        return self.formula.bounded or {"min", "max"} <= self.numbers.keys()

    def has_limited_domain(self) -> bool:
        return self.formula.limited

    def has_finite_gradient(self, x: Array) -> bool:
        return bool(np.isfinite(self.slope(x)).all())
