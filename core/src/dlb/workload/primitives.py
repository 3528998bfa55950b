"""Layers that are one arithmetic function: of each number alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import msgspec

__all__ = ["FUNCTION_NUMBERS", "Elementwise", "ElementwiseFunction", "elementwise_fault"]


class _Primitive(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type"):
    """Base class: immutable, compared by value, unknown fields are rejected."""


ElementwiseFunction = Literal[
    "abs",
    "celu",
    "clip",
    "cos",
    "elu",
    "erf",
    "exp",
    "hard_sigmoid",
    "hard_swish",
    "leaky_relu",
    "log",
    "mish",
    "neg",
    "reciprocal",
    "selu",
    "silu",
    "sin",
    "softplus",
    "softsign",
    "sqrt",
]

#: The numbers that a function needs, by function; ``clip`` needs one of its two.
FUNCTION_NUMBERS: Mapping[str, tuple[str, ...]] = {
    "celu": ("alpha",),
    "clip": ("min", "max"),
    "elu": ("alpha",),
    "hard_sigmoid": ("alpha", "beta"),
    "leaky_relu": ("alpha",),
}


class Elementwise(_Primitive, tag="elementwise", kw_only=True, frozen=True):
    """A function of each number, the ONNX operator of the same meaning.

    Attributes:
        function: its name; :data:`dlb.graph.elementwise.FUNCTIONS` has the formulas.
        alpha, beta: numbers of ``celu``, ``elu``, ``leaky_relu`` (alpha) and ``hard_sigmoid`` (both).
        min, max: bounds of ``clip``; without one, that side has none.
    """

    function: ElementwiseFunction
    alpha: float | None = None
    beta: float | None = None
    min: float | None = None
    max: float | None = None

    @property
    def numbers(self) -> dict[str, float]:
        """The function's numbers by name."""
        given = {name: getattr(self, name) for name in ("alpha", "beta", "min", "max")}
        return {name: float(number) for name, number in given.items() if number is not None}


def elementwise_fault(layer: Elementwise) -> str:
    """What is wrong with a layer's numbers; "" if nothing is."""
    needed, numbers = FUNCTION_NUMBERS.get(layer.function, ()), layer.numbers
    extra = [name for name in numbers if name not in needed]
    if extra:
        return f"function '{layer.function}' has no {extra[0]}; leave it out"
    missing = [name for name in needed if name not in numbers]
    if layer.function == "clip":
        if len(missing) == len(needed):
            return "function 'clip' needs min, max or both"
        if not missing and not numbers["min"] < numbers["max"]:
            return f"min = {layer.min} must be below max = {layer.max}"
    elif missing:
        return f"function '{layer.function}' needs {' and '.join(missing)}"
    if not all(map(math.isfinite, numbers.values())):
        return "its numbers must be finite"
    if layer.function in ("celu", "hard_sigmoid") and not numbers["alpha"] > 0:
        return f"alpha = {layer.alpha} must be above 0"
    return ""
