"""The inputs of all models: the user's arrays or seeded noise, converted to each model's layout."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.errors import RequestError
from dlb.proof.update_batches import as_dtype
from dlb_graph.pairs.input_arrays import read_arrays
from dlb_graph.pairs.layouts import LAYOUTS

__all__ = [
    "INPUT",
    "LAYOUTS",
    "InputSpec",
    "Inputs",
    "check_layout",
    "further_inputs",
    "in_dtype",
    "in_model_layout",
    "make_inputs",
    "spec_of",
    "to_canonical_layout",
    "to_model_layout",
    "widened",
]

Array = npt.NDArray[Any]
#: Every input by name, in the order of the models' arguments.
Inputs = Mapping[str, Array]
#: The name of the only input.
INPUT = "input"
#: Default number of samples of noise.
BATCH = 8
#: Further inputs of a model that reads noise are the first one times these, so that values reach bounds
#: far from zero, such as that of ReLU6.
SCALES = (8.0, 64.0)
#: The share of the noise that stays around one value a channel.
AROUND = 0.125


@dataclass(frozen=True)
class InputSpec:
    """The inputs that the user asked for.

    Attributes:
        file: an .npz file with the arrays [batch, ...] in canonical layout, in the models' order.
        shapes: shape of one sample of noise, in canonical layout, by name; "" is the only input.
        tokens: upper bound of random integers, which replace noise, by name.
        batch: samples of noise.
        seed: seed of the noise and of the cotangents.
    """

    file: Path | None = None
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    tokens: Mapping[str, int] = field(default_factory=dict)
    batch: int = BATCH
    seed: int = 0


def spec_of(
    inputs: str | Path | InputSpec | None,
    input_shape: Sequence[int] | Mapping[str, Sequence[int]] | None,
    tokens: int | Mapping[str, int] | None,
    seed: int,
) -> InputSpec:
    """The inputs that arguments of :func:`dlb_port.verify_port` ask for."""
    if isinstance(inputs, InputSpec):
        return inputs
    if not isinstance(input_shape, Mapping):
        input_shape = {} if input_shape is None else {"": input_shape}
    shapes = {name: tuple(shape) for name, shape in input_shape.items()}
    if isinstance(tokens, int):
        tokens = dict.fromkeys(shapes or ("",), tokens)
    file = None if inputs is None else Path(inputs)
    return InputSpec(file=file, shapes=shapes, tokens=tokens or {}, seed=seed)


def make_inputs(input_spec: InputSpec) -> dict[str, Array]:
    """The inputs, float64, int64 or bool [batch, ...], in canonical layout.

    Raises:
        DataError: the file is no .npz file of plain numbers.
        RequestError: the file does not hold arrays [batch, ...], or a shape is not valid.
    """
    if input_spec.file is not None:
        arrays = read_arrays(input_spec.file)
        if not arrays:
            raise RequestError("holds no arrays; [batch, ...] is needed", path=input_spec.file)
        for name, array in arrays.items():
            _check_array(name, array, input_spec.file)
        if len(arrays) == 1:
            return {INPUT: widened(next(iter(arrays.values())))}
        return {name: widened(array) for name, array in arrays.items()}
    unknown = set(input_spec.tokens) - set(input_spec.shapes)
    if unknown:
        name = sorted(unknown)[0]
        raise RequestError(
            f"--tokens {name}: there is no input '{name}'; give its --input-shape {name}=..., or N alone"
        )
    generator = np.random.default_rng(input_spec.seed)
    return {
        name or INPUT: _noise(input_spec, generator, shape, input_spec.tokens.get(name))
        for name, shape in input_spec.shapes.items()
    }


def _noise(
    input_spec: InputSpec,
    generator: np.random.Generator,
    sample_shape: tuple[int, ...],
    tokens: int | None,
) -> Array:
    if input_spec.batch < 1 or any(size < 1 for size in sample_shape):
        raise RequestError(
            f"an input of {input_spec.batch} samples of shape {list(sample_shape)} cannot be made; every "
            "number must be 1 or more"
        )
    shape = (input_spec.batch, *sample_shape)
    try:
        if tokens is None:
            return generator.standard_normal(shape)
        return generator.integers(0, tokens, shape, dtype=np.int64)
    except (MemoryError, ValueError) as error:
        raise RequestError(f"an input of shape {list(shape)} cannot be made: {error}") from None


def _check_array(name: str, array: Array, path: Path) -> None:
    if array.dtype.kind not in "fiub":
        raise RequestError(
            f"'{name}' is of {array.dtype}; reals, integers or booleans are needed", path=path
        )
    if array.ndim < 1 or array.size == 0:
        raise RequestError(
            f"'{name}' has shape {list(array.shape)}; [batch, ...] is needed", path=path
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise RequestError(f"'{name}' holds a NaN or an infinity", path=path)


def widened(array: Array) -> Array:
    """An array as float64, int64 or bool."""
    if array.dtype.kind == "b":
        return array
    return array.astype(np.float64 if array.dtype.kind == "f" else np.int64)


def in_dtype(inputs: Inputs, dtype: str) -> dict[str, Array]:
    """Real inputs converted to a dtype; others unchanged."""
    return {name: as_dtype(array, dtype) for name, array in inputs.items()}


def further_inputs(inputs: Inputs) -> list[tuple[str, dict[str, Array]]]:
    """Other inputs to compare outputs on, each with what to call it; none if no input is real.

    Noise has both signs in nearly every window, and seldom a large number. So the inputs are taken times each
    of :data:`SCALES`, and around one value for each sample and channel, so that all of a window has one sign:
    a border of zeros differs then from one that is left out.
    """
    if not any(array.dtype.kind == "f" for array in inputs.values()):
        return []
    further: list[tuple[str, dict[str, Array]]] = [
        (f"inputs times {scale:g}", _each_real(inputs, partial(np.multiply, scale)))
        for scale in SCALES
    ]
    if any(array.dtype.kind == "f" and array.ndim > 2 for array in inputs.values()):
        further.append(("inputs around one value a channel", _each_real(inputs, _around)))
    return further


def _each_real(inputs: Inputs, change: Callable[[Array], Array]) -> dict[str, Array]:
    return {
        name: change(array) if array.dtype.kind == "f" else array for name, array in inputs.items()
    }


def _around(array: Array) -> Array:
    if array.ndim <= 2:
        return array
    first = array
    for axis in range(2, array.ndim):
        first = first.take([0], axis)
    return first + AROUND * array


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


def in_model_layout(inputs: Inputs, layout: str, model: str) -> dict[str, Array]:
    """Inputs in a model's layout. Of several, those with as many axes as the layout are converted.

    Raises:
        RequestError: no input has as many axes as the layout.
    """
    if not layout or len(inputs) == 1:
        return {name: to_model_layout(array, layout, model) for name, array in inputs.items()}
    axes = len(LAYOUTS[layout])
    if not any(array.ndim == axes for array in inputs.values()):
        shapes = ", ".join(str(list(array.shape)) for array in inputs.values())
        raise RequestError(
            f"'{model}' is said to have layout {layout}, which has {axes} axes; the arrays have "
            f"shapes {shapes}"
        )
    fits = {name for name, array in inputs.items() if array.ndim == axes}
    return {
        name: to_model_layout(array, layout, model) if name in fits else array
        for name, array in inputs.items()
    }


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
