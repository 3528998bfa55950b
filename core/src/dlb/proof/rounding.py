"""Types that a computation may round to, and what they make of a layer or a gradient, by NumPy."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dlb.proof.reference import Reference
from dlb_graph.comparing.tolerances import (
    BFLOAT16_LEAST,
    BFLOAT16_MULTIPLE,
    FLOAT32_LEAST,
    FLOAT32_MULTIPLE,
    Tensors,
)
from dlb_worker.contract import PRECISION

__all__ = ["BFLOAT16", "FLOAT32", "Rounding", "rounding_of", "to_bfloat16"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Rounding:
    """A type, and how far from float64 a computation in it may be.

    Attributes:
        name: of the type.
        least: a smaller error counts as this.
        multiple: how many times the error of the same computation by NumPy passes.
    """

    name: Literal["float32", "bfloat16"]
    least: float
    multiple: float

    @property
    def of(self) -> Literal["numpy_float32", "numpy_bfloat16"]:
        """What the error of NumPy is called in findings."""
        return "numpy_float32" if self.name == "float32" else "numpy_bfloat16"

    def layers(
        self,
        reference: Reference,
        values: Tensors,
        weights: Mapping[str, Array],
        training: bool,
        layers: Collection[str] | None = None,
    ) -> Iterator[tuple[str, Array]]:
        """Every layer's value from a subject's inputs to it, rounded to the type; or those of some layers."""
        if self.name == "float32":
            yield from reference.isolated_layers(
                values, training=training, weights=weights, dtype="float32", layers=layers
            )
            return
        rounded = _rounded_inputs(reference)
        for name, array in rounded.isolated_layers(
            _rounded(values), training=training, weights=_rounded(weights), layers=layers
        ):
            yield name, _stored(array)

    def gradients(
        self, reference: Reference, values: Tensors, weights: Mapping[str, Array]
    ) -> dict[str, Array]:
        """The loss and its gradients from a subject's values of layers, rounded to the type."""
        if self.name == "float32":
            return reference.gradients(values, weights, "float32")
        rounded = _rounded_inputs(reference)
        return _rounded(rounded.gradients(_rounded(values), _rounded(weights), rounded=to_bfloat16))

    def logits_error(self, reference: Reference) -> float:
        """The distance of the logits in float64 at rounded weights and inputs from those at the given ones."""
        from dlb_graph.comparing.distance import relative_l2

        rounded = _rounded_inputs(reference, _rounded(reference.weights))
        return relative_l2(rounded.logits, reference.logits)


FLOAT32 = Rounding("float32", FLOAT32_LEAST, FLOAT32_MULTIPLE)
BFLOAT16 = Rounding("bfloat16", BFLOAT16_LEAST, BFLOAT16_MULTIPLE)


def rounding_of(variant: Mapping[str, str]) -> Rounding:
    """The type that a model of a variant computes in, whose dtype is float32."""
    return BFLOAT16 if variant.get(PRECISION) == BFLOAT16.name else FLOAT32


def to_bfloat16(array: Array) -> Array:
    """Real numbers rounded to the nearest of bfloat16, ties to even; integers as they are.

    NumPy has no such type. Its numbers are those of float32 whose last 16 bits are zero.
    """
    if array.dtype.kind != "f":
        return array
    bits = np.atleast_1d(array).astype(np.float32).view(np.uint32)
    nearest = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    rounded = (nearest & np.uint32(0xFFFF0000)).view(np.float32).reshape(array.shape)
    return np.where(np.isfinite(array), rounded, array).astype(array.dtype)


#: The largest finite numbers of bfloat16 and of float32.
_MOST, _MOST_OF_FLOAT32 = 3.3895313892515355e38, 3.4028234663852886e38


def _stored(array: Array) -> Array:
    """An array in bfloat16, in which what is finite in float32 stays finite.

    A mask replaces numbers by the lowest of float32. Adapters that compute in bfloat16 take its lowest.
    """
    if array.dtype.kind != "f" or not (np.abs(array) > _MOST).any():
        return to_bfloat16(array)
    within = np.abs(array) <= _MOST_OF_FLOAT32
    return to_bfloat16(np.where(within, np.clip(array, -_MOST, _MOST), array).astype(array.dtype))


def _rounded(arrays: Mapping[str, Array]) -> dict[str, Array]:
    return {name: _stored(np.asarray(array)) for name, array in arrays.items()}


def _rounded_inputs(reference: Reference, weights: Mapping[str, Array] | None = None) -> Reference:
    """The reference on rounded inputs, at its weights or at others."""
    return Reference(
        reference.model,
        reference.weights if weights is None else weights,
        to_bfloat16(reference.inputs),
        reference.labels,
        reference.masks,
        reference.loss,
    )
