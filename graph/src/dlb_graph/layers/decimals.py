"""Real attributes of ONNX nodes, which are float32, converted back to the intended decimals."""

from __future__ import annotations

import numpy as np

__all__ = ["ROUNDING", "decimal", "is_sixth", "six_digits", "unrounded"]

#: Largest relative error of a number that was rounded to float32, and again in a product or
#: quotient.
ROUNDING = 2.0**-22


def decimal(value: float) -> float:
    """The shortest decimal that rounds to the same float32.

    ONNX stores 1e-5 as 9.99999974738e-06. In float64, a computation with that number differs from a
    framework's computation with 1e-5 by more than float64's rounding.
    """
    return float(str(np.float32(value)))


def is_sixth(value: float) -> bool:
    """Whether a real attribute is 1/6, the slope of a hard sigmoid, which is no short decimal."""
    return bool(np.float32(value) == np.float32(1 / 6))


def six_digits(value: float) -> float:
    """A real attribute, rounded for comparison: exporters multiply and divide in float32."""
    return float(f"{value:.6g}")


def unrounded(value: float) -> float:
    """The decimal of at most six digits whose float32 rounding is the number, or the number."""
    short = six_digits(value)
    return short if abs(value - short) <= ROUNDING * abs(short) else value
