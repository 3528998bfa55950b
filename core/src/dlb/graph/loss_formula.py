"""What every loss is in NumPy and in ONNX; :mod:`dlb.graph.losses` has them all."""

from __future__ import annotations

import abc
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.graph.layer_nodes import Graph

__all__ = ["LABELS", "LOSS", "Formula", "ratio"]

Array = npt.NDArray[Any]
LABELS = "labels"
LOSS = "loss"


class Formula(abc.ABC):
    """What a loss is of a batch's outputs and targets.

    Outputs are float64 or float32 [batch, ...], and results are computed in their type. Targets are
    what :func:`dlb.workload.losses.target_kind` says.
    """

    @abc.abstractmethod
    def value_and_gradient(self, outputs: Array, targets: Array) -> tuple[float, Array]:
        """The mean loss, and its gradient with respect to the outputs."""

    @abc.abstractmethod
    def difference(self, outputs: Array, base: Array, targets: Array) -> float:
        """The loss of ``outputs`` minus that of ``base``, without the digits that subtracting both loses."""

    @abc.abstractmethod
    def add_nodes(self, graph: Graph, outputs: str, shape: tuple[int, ...]) -> None:
        """Add the ONNX nodes from ``outputs``, of a shape of samples, and :data:`LABELS` to :data:`LOSS`."""

    def steepness(self, outputs: Array, targets: Array) -> float:
        """How many times the loss may be off by an error that every output has."""
        return 1.0

    def cancellation(self, outputs: Array, targets: Array) -> float:
        """How many times the gradient multiplies the relative error of what it is a difference of."""
        return 1.0

    def accuracy(self, outputs: Array, targets: Array) -> float | None:
        """The share of predictions that are right; None for a loss of no decisions."""
        return None


def ratio(whole: Array, left: Array) -> float:
    """The norm of what a difference is of over the difference's, at least 1; 1 if there is none."""
    before, after = np.linalg.norm(whole), np.linalg.norm(left)
    return max(1.0, float(before / after)) if np.isfinite(before) and after > 0 else 1.0
