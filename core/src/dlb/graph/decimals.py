"""Real attributes of ONNX nodes, which are float32, read back as the decimal that was meant."""

from __future__ import annotations

import numpy as np

__all__ = ["ROUNDED", "decimal", "is_sixth", "six_digits", "unrounded"]

#: What rounding to float32, and once more in a product or quotient, makes of a number at most,
#: relatively.
ROUNDED = 2.0**-22


def decimal(value: float) -> float:
    """The shortest decimal that rounds to the same float32.

    ONNX keeps 1e-5 as 9.99999974738e-06. Computing in float64 with that number would differ from
    a framework that computes with 1e-5, by more than the rounding of float64.
    """
    return float(str(np.float32(value)))


def is_sixth(value: float) -> bool:
    """Whether a real attribute is 1/6, which is no decimal: the slope of a hard sigmoid."""
    return bool(np.float32(value) == np.float32(1 / 6))


def six_digits(value: float) -> float:
    """A real attribute as it is compared: exporters multiply and divide in float32."""
    return float(f"{value:.6g}")


def unrounded(value: float) -> float:
    """The decimal of at most six digits that rounding has made a number of, or the number."""
    short = six_digits(value)
    return short if abs(value - short) <= ROUNDED * abs(short) else value
