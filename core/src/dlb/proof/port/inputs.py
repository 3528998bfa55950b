"""What the models are run on: an array of the user's, or seeded noise; and each one's layout."""

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
#: How a model may read what is canonically [N, C, ...] or [N, T, ...]: the order of its axes.
LAYOUTS = {
    "NHWC": (0, 2, 3, 1),
    "NWC": (0, 2, 1),
    "NDHWC": (0, 2, 3, 4, 1),
    "TNC": (1, 0, 2),
    "TN": (1, 0),
}
#: Samples of noise, when nothing else is said.
BATCH = 8


@dataclass(frozen=True)
class InputSpec:
    """What is said of the input.

    Attributes:
        file: an .npz file with one array [batch, ...] in canonical layout.
        shape: of one sample, canonical, for noise.
        tokens: integers below this instead of noise.
        batch: samples of noise.
        seed: of noise, and of the cotangents.
    """

    file: Path | None = None
    shape: tuple[int, ...] | None = None
    tokens: int | None = None
    batch: int = BATCH
    seed: int = 0


def make_input(input_spec: InputSpec) -> Array:
    """[batch, ...] float64 or int64, canonical.

    Raises:
        DataError: the file is no .npz file of plain numbers.
        RequestError: it holds other than one array [batch, ...], or the shape is none.
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
    """The word itself, if it is a layout.

    Raises:
        RequestError: it is none.
    """
    if layout and layout not in LAYOUTS:
        raise RequestError(
            f"'{layout}' is no layout that '{model}' could have; there are {', '.join(LAYOUTS)}, and "
            "canonical layout is the one that needs no word"
        )
    return layout


def to_model_layout(array: Array, layout: str, model: str) -> Array:
    """From canonical layout to a model's.

    Raises:
        RequestError: the array has another number of axes than the layout.
    """
    if not layout:
        return array
    axes = LAYOUTS[layout]
    if array.ndim != len(axes):
        raise RequestError(
            f"'{model}' is said to have layout {layout}, which is of {len(axes)} axes; the array has "
            f"shape {list(array.shape)}"
        )
    return np.ascontiguousarray(array.transpose(axes))


def to_canonical_layout(array: Array, layout: str) -> Array:
    """From a model's layout to canonical; as it is if it has another number of axes."""
    if not layout or array.ndim != len(LAYOUTS[layout]):
        return array
    return np.ascontiguousarray(array.transpose(np.argsort(LAYOUTS[layout])))
