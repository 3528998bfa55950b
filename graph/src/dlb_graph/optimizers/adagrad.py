"""Adagrad."""

from __future__ import annotations

import math

from dlb_graph.layers.numbers import Array
from dlb_graph.optimizers.base import EpsilonPlace, Optimizer, over_root

__all__ = ["Adagrad"]


class Adagrad(Optimizer, tag="adagrad", kw_only=True, frozen=True):
    """Adagrad (Duchi, Hazan and Singer 2011, the diagonal variant)::

        sum = sum + g * g                           sum starts at initial_accumulator
        w = w - lr * g / (sqrt(sum) + epsilon)      outside
        w = w - lr * g / sqrt(sum + epsilon)        inside

    torch and Chainer add epsilon outside of the root, Keras and MXNet inside. ``weight_decay`` (coupled) and
    clipping work as in :class:`SGD`.
    """

    learning_rate: float = 0.01
    initial_accumulator: float = 0.0
    epsilon: float = 1e-10
    epsilon_place: EpsilonPlace = "outside"

    slots = ("sum",)
    operations = 7

    @property
    def slot_start(self) -> float:
        return self.initial_accumulator

    def direction(self, gradient: Array, slots: list[Array], steps: int) -> Array:
        (total,) = slots
        total += gradient**2
        return over_root(gradient, total, self.epsilon, self.epsilon_place)

    def fault(self) -> str:
        start = self.initial_accumulator
        if fault := super().fault():
            return fault
        if not 0 <= start < math.inf:
            return f"optimizer.initial_accumulator = {start} must be 0 or more, and finite"
        return ""
