"""Stochastic gradient descent."""

from __future__ import annotations

from dlb_graph.layers.numbers import Array
from dlb_graph.optimizers.base import Optimizer

__all__ = ["SGD"]


class SGD(Optimizer, tag="sgd", kw_only=True, frozen=True):
    """Stochastic gradient descent with momentum.

    With gradient g, weight w, velocity v, learning rate lr::

        g = g + weight_decay * w
        v = momentum * v + g
        w = w - lr * v                          plain
        w = w - lr * (g + momentum * v)         Nesterov

    The velocity is *not* scaled by the learning rate (Sutskever et al. 2013, as written in
    torch.optim.SGD), so a change of the rate acts at once. ``weight_decay`` is coupled and applies to
    every trained parameter, biases and batch-norm scales included. With ``weight_decay_on = "weights"`` it
    applies to parameters whose role ends with ``weight`` alone (He et al., arXiv:1812.01187, section 3.1;
    Keras's ``exclude_from_weight_decay``).

    With a ``clip_norm`` above 0, all gradients are first multiplied by
    ``clip_norm / max(norm, clip_norm)``, where ``norm`` is the L2 norm of all of them together
    (Pascanu et al. 2013; tf.clip_by_global_norm). With a ``clip_value`` above 0, every element of a gradient
    is first limited to ``-clip_value`` and ``clip_value`` (torch.nn.utils.clip_grad_value_). With a
    ``clip_variable_norm`` above 0, the gradient of each parameter is first multiplied by
    ``clip_variable_norm / max(norm, clip_variable_norm)``, where ``norm`` is its own (tf.clip_by_norm, Keras's
    ``clipnorm``). Only one of the three may be above 0, and decay comes after.

    With ``accumulate`` above 1, a step takes its batch in so many equal parts, one after the other, and its
    gradient is the mean of theirs (Keras's ``gradient_accumulation_steps``, whose batches are the parts). All
    else comes after. The parts differ from a whole batch where samples meet: a batch normalisation has the
    statistics of each part, and its running ones move once for each.
    """

    momentum: float = 0.0
    nesterov: bool = False

    @property
    def slots(self) -> tuple[str, ...]:
        return ("velocity",) if self.momentum else ()

    @property
    def operations(self) -> int:
        if not self.momentum:
            return 2
        return 6 if self.nesterov else 4

    def direction(self, gradient: Array, slots: list[Array], steps: int) -> Array:
        if not slots:
            return gradient
        (velocity,), momentum = slots, gradient.dtype.type(self.momentum)
        velocity *= momentum
        velocity += gradient
        return gradient + momentum * velocity if self.nesterov else velocity
