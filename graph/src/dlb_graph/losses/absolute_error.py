"""The size of errors."""

from __future__ import annotations

from typing import Any

from dlb_graph.layers.base import Graph
from dlb_graph.layers.numbers import Array, np
from dlb_graph.losses.base import LOSS
from dlb_graph.losses.pointwise import OfErrors

__all__ = ["AbsoluteError"]


class AbsoluteError(OfErrors, tag="absolute_error", frozen=True):
    """The size of output minus target, averaged over all numbers of a batch.

    torch.nn.L1Loss, keras.losses.MeanAbsoluteError, gluon.loss.L1Loss, chainer.functions.mean_absolute_error.
    The gradient of an output that is its target is 0.
    """

    def _values(self, x: Array, y: Array) -> Any:
        return np.abs(x - y)

    def _slopes(self, x: Array, y: Array) -> Any:
        return np.sign(x - y)

    def _differences(self, x: Array, base: Array, y: Array) -> Any:
        """On one side of the target, the difference of the outputs with its sign."""
        errors, before = x - y, base - y
        one_side = errors * before > 0
        return np.where(one_side, np.sign(before) * (x - base), np.abs(errors) - np.abs(before))

    def _add_values(self, graph: Graph, outputs: str) -> str:
        return graph.node("Abs", [self._add_errors(graph, outputs)], f"{LOSS}/sizes")
