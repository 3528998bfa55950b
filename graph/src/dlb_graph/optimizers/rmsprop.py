"""RMSprop."""

from __future__ import annotations

from dlb_graph.layers.numbers import Array
from dlb_graph.optimizers.base import EpsilonPlace, Optimizer, over_root, rho_fault

__all__ = ["RMSprop"]


class RMSprop(Optimizer, tag="rmsprop", kw_only=True, frozen=True):
    """RMSprop (Tieleman and Hinton 2012, lecture 6.5), with momentum as in torch.optim.RMSprop::

        v = rho * v + (1 - rho) * g * g
        velocity = momentum * velocity + g / (sqrt(v) + epsilon)        outside
        velocity = momentum * velocity + g / sqrt(v + epsilon)          inside
        w = w - lr * velocity

    torch and Chainer add epsilon outside of the root, Keras and MXNet inside. The velocity is *not* scaled by
    the learning rate. ``weight_decay`` (coupled) and clipping work as in :class:`SGD`.

    There is no centred variant: ``v - mean ** 2`` cancels, and its sign would be that of rounding.
    """

    learning_rate: float = 1e-3
    rho: float = 0.9
    momentum: float = 0.0
    epsilon: float = 1e-8
    epsilon_place: EpsilonPlace = "outside"

    @property
    def slots(self) -> tuple[str, ...]:
        return ("v", "velocity") if self.momentum else ("v",)

    @property
    def operations(self) -> int:
        return 11 if self.momentum else 9

    def direction(self, gradient: Array, slots: list[Array], steps: int) -> Array:
        rho, momentum, unit = map(gradient.dtype.type, (self.rho, self.momentum, 1))
        v, *velocities = slots
        v[...] = rho * v + (unit - rho) * gradient**2
        change = over_root(gradient, v, self.epsilon, self.epsilon_place)
        for velocity in velocities:
            velocity[...] = momentum * velocity + change
            return velocity
        return change

    def fault(self) -> str:
        return super().fault() or rho_fault(self.rho)
