"""Losses of each output and its target, averaged over all numbers."""

from __future__ import annotations

from typing import Any, ClassVar

from dlb_graph.layers.base import Graph
from dlb_graph.layers.numbers import Array, np
from dlb_graph.losses.base import LABELS, LOSS, Loss, TargetKind

__all__ = ["OfErrors", "Pointwise"]


class Pointwise(Loss, frozen=True):
    """A loss of each output and its target, which have one shape, averaged over all numbers.

    Methods of one underscore are of arrays: outputs x and targets y in their type.
    """

    targets: ClassVar[TargetKind] = "number"

    def _values(self, x: Array, y: Array) -> Any:
        """The loss of each number."""
        raise NotImplementedError

    def _slopes(self, x: Array, y: Array) -> Any:
        """Its derivative with respect to the output."""
        raise NotImplementedError

    def _differences(self, x: Array, base: Array, y: Array) -> Any:
        """The loss of each number minus that at ``base``."""
        raise NotImplementedError

    def _add_values(self, graph: Graph, outputs: str) -> str:
        """Add the ONNX nodes of each number's loss; returns its name."""
        raise NotImplementedError

    def value_and_gradient(self, outputs: Array, targets: Array) -> tuple[float, Array]:
        targets = targets.astype(outputs.dtype, copy=False)
        slopes = self._slopes(outputs, targets)
        value = float(self._values(outputs, targets).mean())
        return value, slopes / outputs.dtype.type(outputs.size)

    def difference(self, outputs: Array, base: Array, targets: Array) -> float:
        return float(self._differences(outputs, base, targets.astype(outputs.dtype)).mean())

    def add_nodes(self, graph: Graph, outputs: str, shape: tuple[int, ...]) -> None:
        graph.node("ReduceMean", [self._add_values(graph, outputs)], LOSS, keepdims=0)

    def steepness(self, outputs: Array, targets: Array) -> float:
        slopes = self._slopes(outputs, targets.astype(outputs.dtype))
        return max(1.0, float(np.abs(slopes).mean()))


class OfErrors(Pointwise, frozen=True):
    """A loss of errors, output minus target."""

    def _add_errors(self, graph: Graph, outputs: str) -> str:
        return graph.node("Sub", [outputs, LABELS], f"{LOSS}/errors")
