"""Huber's loss."""

from __future__ import annotations

import math
from typing import Any

from dlb_graph.layers.base import Graph
from dlb_graph.layers.numbers import Array, np
from dlb_graph.losses.base import LOSS, Shape
from dlb_graph.losses.pointwise import OfErrors

__all__ = ["Huber"]


class Huber(OfErrors, tag="huber", kw_only=True, frozen=True):
    """Huber's loss of the error e, output minus target, averaged over all numbers of a batch.

    (Huber 1964, doi:10.1214/aoms/1177703732; torch.nn.HuberLoss; keras.losses.Huber)::

        e * e / 2                          where abs(e) <= delta
        delta * (abs(e) - delta / 2)       elsewhere

    gluon's HuberLoss and torch's SmoothL1Loss divide it by ``delta``.
    """

    delta: float = 1.0
    power = 2

    def fault(self, outputs: Shape) -> str:
        if not 0 < self.delta < math.inf:
            return f"loss.delta = {self.delta} must be above 0 and finite"
        return ""

    def _values(self, x: Array, y: Array) -> Any:
        sizes = np.abs(x - y)
        limited = np.minimum(sizes, self.delta)
        return limited * (sizes - limited / 2)

    def _slopes(self, x: Array, y: Array) -> Any:
        return np.clip(x - y, -self.delta, self.delta)

    def _differences(self, x: Array, base: Array, y: Array) -> Any:
        """On one piece of the function, the difference of the outputs times the slope between both."""
        errors, before, delta = x - y, base - y, self.delta
        inside = (np.abs(errors) <= delta) & (np.abs(before) <= delta)
        beyond = (np.minimum(np.abs(errors), np.abs(before)) > delta) & (errors * before > 0)
        slopes = np.where(inside, (errors + before) / 2, delta * np.sign(before))
        across = self._values(x, y) - self._values(base, y)
        return np.where(inside | beyond, (x - base) * slopes, across)

    def _add_values(self, graph: Graph, outputs: str) -> str:
        within = graph.within(f"{LOSS}/numbers")
        sizes = within.add("Abs", self._add_errors(graph, outputs))
        limited = within.add("Min", sizes, within.held(self.delta))
        halves = within.add("Mul", limited, within.held(0.5))
        return within.add("Mul", limited, within.add("Sub", sizes, halves))
