"""Cross-entropy of two classes for each output."""

from __future__ import annotations

from typing import Any

from dlb_graph.layers.base import Graph
from dlb_graph.layers.numbers import Array, np
from dlb_graph.layers.special_functions import sigmoid
from dlb_graph.losses.base import LABELS, LOSS, ratio
from dlb_graph.losses.pointwise import Pointwise

__all__ = ["BinaryCrossEntropy"]


class BinaryCrossEntropy(Pointwise, tag="binary_cross_entropy", frozen=True):
    """Binary cross-entropy of the sigmoid of each output, averaged over all numbers of a batch.

    With an output x, a logit, and its target z from 0 to 1 (torch.nn.BCEWithLogitsLoss;
    tf.nn.sigmoid_cross_entropy_with_logits)::

        max(x, 0) - x * z + log(1 + exp(-abs(x)))

    The gradient is sigmoid(x) - z, at x = 0 too.
    """

    targets = "share"

    def _values(self, x: Array, y: Array) -> Any:
        return np.maximum(x, 0) - x * y + np.log1p(np.exp(-np.abs(x)))

    def _slopes(self, x: Array, y: Array) -> Any:
        return sigmoid(x) - y

    def _differences(self, x: Array, base: Array, y: Array) -> Any:
        """log(1 + s * (exp(d) - 1)) - y * d, with s the sigmoid of ``base`` and d the difference."""
        return np.log1p(sigmoid(base) * np.expm1(x - base)) - y * (x - base)

    def _add_values(self, graph: Graph, outputs: str) -> str:
        soft = graph.node("Softplus", [outputs], f"{LOSS}/softplus")
        products = graph.node("Mul", [outputs, LABELS], f"{LOSS}/products")
        return graph.node("Sub", [soft, products], f"{LOSS}/numbers")

    def cancellation(self, outputs: Array, targets: Array) -> float:
        """The gradient is the difference of probabilities and targets."""
        probabilities = sigmoid(outputs.astype(np.float64))
        return ratio(probabilities, probabilities - targets)

    def accuracy(self, outputs: Array, targets: Array) -> float:
        """An output is above 0 where its target is above 1/2. Outputs that are not finite count as wrong."""
        return float((np.isfinite(outputs) & ((outputs > 0) == (targets > 0.5))).mean())
