"""The input of all models: the user's array or seeded noise, converted to each model's layout."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.errors import RequestError
from dlb.proof.input_arrays import read_arrays

__all__ = [
    "LAYOUTS",
    "InputSpec",
    "check_layout",
    "make_input",
    "to_canonical_layout",
    "to_model_layout",
]

Array = npt.NDArray[Any]
#: Layouts other than the canonical [N, C, ...] or [N, T, ...]: the order of the canonical axes.
LAYOUTS = {
    "NHWC": (0, 2, 3, 1),
    "NWC": (0, 2, 1),
    "NDHWC": (0, 2, 3, 4, 1),
    "TNC": (1, 0, 2),
    "TN": (1, 0),
}
#: Default number of samples of noise.
BATCH = 8


@dataclass(frozen=True)
class InputSpec:
    """The input that the user asked for.

    Attributes:
        file: an .npz file with one array [batch, ...] in canonical layout.
        shape: shape of one sample of noise, in canonical layout.
        tokens: upper bound of random integers, which replace noise.
        batch: samples of noise.
        seed: seed of the noise and of the cotangents.
    """

    file: Path | None = None
    shape: tuple[int, ...] | None = None
    tokens: int | None = None
    batch: int = BATCH
    seed: int = 0


def make_input(input_spec: InputSpec) -> Array:
    """The input, float64 or int64 [batch, ...], in canonical layout.

    Raises:
        DataError: the file is no .npz file of plain numbers.
        RequestError: the file does not hold one array [batch, ...], or the shape is not valid.
    """
    if input_spec.file is not None:
        return _read(input_spec.file)
    assert input_spec.shape is not None
    if input_spec.batch < 1 or any(size < 1 for size in input_spec.shape):
        raise RequestError(
            f"an input of {input_spec.batch} samples of shape {list(input_spec.shape)} cannot be made; every "
            "number must be 1 or more"
        )
    generator = np.random.default_rng(input_spec.seed)
    shape = (input_spec.batch, *input_spec.shape)
    try:
        if input_spec.tokens is None:
            return generator.standard_normal(shape)
        return generator.integers(0, input_spec.tokens, shape, dtype=np.int64)
    except (MemoryError, ValueError) as error:
        raise RequestError(f"an input of shape {list(shape)} cannot be made: {error}") from None


def _read(path: Path) -> Array:
    arrays = read_arrays(path)
    if len(arrays) != 1:
        raise RequestError(
            f"holds {len(arrays)} arrays ({', '.join([*arrays][:5])}); an input is one "
            "array, [batch, ...]",
            path=path,
        )
    (array,) = arrays.values()
    if array.dtype.kind not in "fiu":
        raise RequestError(
            f"its array is of {array.dtype}; reals or integers are needed", path=path
        )
    if array.ndim < 1 or array.size == 0:
        raise RequestError(
            f"its array has shape {list(array.shape)}; [batch, ...] is needed", path=path
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise RequestError("its array holds a NaN or an infinity", path=path)
    return array.astype(np.float64 if array.dtype.kind == "f" else np.int64)


def check_layout(model: str, layout: str) -> str:
    """Check the name of a layout, and return it; "" is the canonical layout.

    Raises:
        RequestError: there is no such layout.
    """
    if layout and layout not in LAYOUTS:
        raise RequestError(
            f"'{layout}' is not a layout that '{model}' can have; choose from {', '.join(LAYOUTS)}, or "
            "leave it out for the canonical layout"
        )
    return layout


def to_model_layout(array: Array, layout: str, model: str) -> Array:
    """Convert an array from canonical layout to a model's layout.

    Raises:
        RequestError: the array has another number of axes than the layout.
    """
    if not layout:
        return array
    axes = LAYOUTS[layout]
    if array.ndim != len(axes):
        raise RequestError(
            f"'{model}' is said to have layout {layout}, which has {len(axes)} axes; the array has "
            f"shape {list(array.shape)}"
        )
    return np.ascontiguousarray(array.transpose(axes))


def to_canonical_layout(array: Array, layout: str) -> Array:
    """Convert an array from a model's layout to canonical; unchanged if the number of axes differs."""
    if not layout or array.ndim != len(LAYOUTS[layout]):
        return array
    return np.ascontiguousarray(array.transpose(np.argsort(LAYOUTS[layout])))
