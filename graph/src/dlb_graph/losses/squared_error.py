"""The square of errors."""

from __future__ import annotations

from typing import Any

from dlb_graph.layers.base import Graph
from dlb_graph.layers.numbers import Array
from dlb_graph.losses.base import LOSS
from dlb_graph.losses.pointwise import OfErrors

__all__ = ["SquaredError"]


class SquaredError(OfErrors, tag="squared_error", frozen=True):
    """The square of output minus target, averaged over all numbers of a batch.

    torch.nn.MSELoss, keras.losses.MeanSquaredError, chainer.functions.mean_squared_error. gluon's L2Loss is
    half of it.
    """

    power = 2

    def _values(self, x: Array, y: Array) -> Any:
        errors = x - y
        return errors * errors

    def _slopes(self, x: Array, y: Array) -> Any:
        return 2 * (x - y)

    def _differences(self, x: Array, base: Array, y: Array) -> Any:
        return (x - base) * ((x - y) + (base - y))

    def _add_values(self, graph: Graph, outputs: str) -> str:
        errors = self._add_errors(graph, outputs)
        return graph.node("Mul", [errors, errors], f"{LOSS}/squares")
