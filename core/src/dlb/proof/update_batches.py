"""Small batches of noise that updates and float32 gradients are proven on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

__all__ = ["UpdateBatches", "as_dtype"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class UpdateBatches:
    """What updates are proven on.

    Attributes:
        folder: with an .npz file of ``inputs`` and ``labels`` in each dtype.
        inputs: [samples, ...] float64 or int64; labels: int64 [samples] or [samples, T].
        order: int64 [steps, batch].
    """

    folder: Path
    inputs: Array
    labels: Array
    order: Array

    @property
    def batch_size(self) -> int:
        """Samples of a step: few, so that few of them meet a kink."""
        return int(self.order.shape[1])

    def path(self, dtype: str) -> Path:
        """The file of a dtype."""
        return self.folder / f"updates-{dtype}.npz"


def as_dtype(inputs: Array, dtype: str) -> Array:
    """Real inputs in a dtype; integers as they are."""
    return inputs.astype(dtype) if inputs.dtype.kind == "f" else inputs
