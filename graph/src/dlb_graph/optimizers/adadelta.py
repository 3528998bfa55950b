"""Adadelta."""

from __future__ import annotations

from dlb_graph.layers.numbers import Array, np
from dlb_graph.optimizers.base import Optimizer, rho_fault

__all__ = ["Adadelta"]


class Adadelta(Optimizer, tag="adadelta", kw_only=True, frozen=True):
    """Adadelta (Zeiler, arXiv:1212.5701, algorithm 1)::

        v = rho * v + (1 - rho) * g * g
        change = sqrt(u + epsilon) / sqrt(v + epsilon) * g
        u = rho * u + (1 - rho) * change * change
        w = w - lr * change

    The paper has no learning rate: it is 1. epsilon is inside of both roots everywhere. ``weight_decay``
    (coupled) and clipping work as in :class:`SGD`.
    """

    learning_rate: float = 1.0
    rho: float = 0.95
    epsilon: float = 1e-6

    slots = ("v", "u")
    operations = 16

    def direction(self, gradient: Array, slots: list[Array], steps: int) -> Array:
        (v, u), scalar = slots, gradient.dtype.type
        rho, unit, epsilon = map(scalar, (self.rho, 1, self.epsilon))
        v[...] = rho * v + (unit - rho) * gradient**2
        change = np.sqrt(u + epsilon) / np.sqrt(v + epsilon) * gradient
        u[...] = rho * u + (unit - rho) * change**2
        return np.asarray(change)

    def fault(self) -> str:
        return super().fault() or rho_fault(self.rho)
