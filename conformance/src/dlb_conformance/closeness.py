"""How near is near enough, and why."""

from __future__ import annotations

import numpy as np

#: Values, float64. Rounding is 1.1e-16; sums of a few hundred terms through a handful of layers
#: lose two or three digits of it. One rounding to float32 anywhere leaves 3e-8.
FLOAT64 = 1e-12
#: Values, float32. Rounding is 6e-8, and the same two digits are lost.
FLOAT32 = 1e-5
#: Weights after an update computed from the adapter's own gradients: a dozen operations each.
UPDATE = 1e-13

VALUES = {"float64": FLOAT64, "float32": FLOAT32}


def distance(found: np.ndarray, true: np.ndarray) -> float:
    """Relative L2 distance; where the truth is all zeros, the plain one."""
    found, true = np.asarray(found, np.float64), np.asarray(true, np.float64)
    size = float(np.linalg.norm(true))
    return float(np.linalg.norm(found - true)) / (size or 1.0)


def assert_near(found: np.ndarray, true: np.ndarray, bound: float, dtype: str, name: str) -> None:
    """The shape, the dtype and the values are right."""
    assert isinstance(found, np.ndarray), f"{name} is a {type(found).__name__}, not an array"
    assert found.shape == np.shape(true), f"{name} is {found.shape}, not {np.shape(true)}"
    assert found.dtype == np.dtype(dtype), f"{name} is of {found.dtype}, not {dtype}"
    away = distance(found, true)
    assert away <= bound, f"{name} is {away:.2g} from the truth; {bound:.0e} is allowed"


def assert_same_bits(found: np.ndarray, true: np.ndarray, name: str) -> None:
    """Equal to the last bit."""
    assert found.dtype == true.dtype, f"{name} is of {found.dtype}, not {true.dtype}"
    assert found.shape == true.shape, f"{name} is {found.shape}, not {true.shape}"
    same = np.ascontiguousarray(found).tobytes() == np.ascontiguousarray(true).tobytes()
    assert same, f"{name} is {distance(found, true):.2g} away, and should be equal bit for bit"
