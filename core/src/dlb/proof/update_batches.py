"""Small batches of noise for the checks of updates and of float32 gradients."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

__all__ = ["UpdateBatches", "as_dtype"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class UpdateBatches:
    """The batches for the checks of updates.

    Attributes:
        folder: folder with an .npz file of ``inputs`` and ``labels`` for each dtype.
        inputs: float64 or int64 [samples, ...].
        labels: int64 [samples] or [samples, T].
        order: rows of each batch, int64 [steps, batch].
    """

    folder: Path
    inputs: Array
    labels: Array
    order: Array

    @property
    def batch_size(self) -> int:
        """Samples of a step: few, so that few values lie near a kink."""
        return int(self.order.shape[1])

    def path(self, dtype: str) -> Path:
        """The file for a dtype."""
        return self.folder / f"updates-{dtype}.npz"


def as_dtype(inputs: Array, dtype: str) -> Array:
    """Real inputs converted to a dtype; integers unchanged."""
    return inputs.astype(dtype) if inputs.dtype.kind == "f" else inputs
