"""Adamax."""

from __future__ import annotations

from dlb_graph.layers.numbers import Array, np
from dlb_graph.optimizers.base import EpsilonPlace, Optimizer

__all__ = ["Adamax"]


class Adamax(Optimizer, tag="adamax", kw_only=True, frozen=True):
    """Adamax (Kingma and Ba, arXiv:1412.6980, algorithm 2)::

        m = beta1 * m + (1 - beta1) * g
        u = max(beta2 * u, abs(g))                          outside
        u = max(beta2 * u, abs(g) + epsilon)                inside
        w = w - lr / (1 - beta1 ** t) * m / (u + epsilon)   outside
        w = w - lr / (1 - beta1 ** t) * m / u               inside

    The paper has no epsilon, as MXNet. Keras adds it outside, torch inside. Without it, a weight whose
    gradients were all 0 becomes NaN. ``weight_decay`` (coupled) and clipping work as in :class:`SGD`.
    """

    learning_rate: float = 2e-3
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    epsilon_place: EpsilonPlace = "outside"

    slots = ("m", "u")
    operations = 11

    def direction(self, gradient: Array, slots: list[Array], steps: int) -> Array:
        scalar = gradient.dtype.type
        unit, beta1, beta2 = map(scalar, (1, self.beta1, self.beta2))
        (m, u), epsilon = slots, scalar(self.epsilon)
        inside = epsilon if self.epsilon_place == "inside" else scalar(0)
        m[...] = beta1 * m + (unit - beta1) * gradient
        u[...] = np.maximum(beta2 * u, np.abs(gradient) + inside)
        mean = m / (unit - beta1 ** scalar(steps))
        return np.asarray(mean / (u + (epsilon - inside)))
