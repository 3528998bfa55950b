"""Adam, with coupled and with decoupled weight decay."""

from __future__ import annotations

from dlb_graph.layers.numbers import Array, np
from dlb_graph.optimizers.base import Optimizer

__all__ = ["Adam", "AdamW"]


class _AdamStep(Optimizer, kw_only=True, frozen=True):
    """The step of both."""

    learning_rate: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    amsgrad: bool = False

    @property
    def slots(self) -> tuple[str, ...]:
        return ("m", "v", "v_max") if self.amsgrad else ("m", "v")

    @property
    def operations(self) -> int:
        return 15 if self.amsgrad else 14

    def direction(self, gradient: Array, slots: list[Array], steps: int) -> Array:
        scalar = gradient.dtype.type
        unit, beta1, beta2 = map(scalar, (1, self.beta1, self.beta2))
        m, v, *largest = slots
        m *= beta1
        m += (unit - beta1) * gradient
        v *= beta2
        v += (unit - beta2) * gradient**2
        for most in largest:
            v = np.maximum(most, v, out=most)
        count = scalar(steps)
        mean, square = m / (unit - beta1**count), v / (unit - beta2**count)
        return np.asarray(mean / (np.sqrt(square) + scalar(self.epsilon)))


class Adam(_AdamStep, tag="adam", kw_only=True, frozen=True):
    """Adam (Kingma and Ba, arXiv:1412.6980, algorithm 1)::

        m = beta1 * m + (1 - beta1) * g;   v = beta2 * v + (1 - beta2) * g * g
        w = w - lr * (m / (1 - beta1 ** t)) / (sqrt(v / (1 - beta2 ** t)) + epsilon)

    epsilon is added *after* the bias correction. With ``amsgrad``, ``v`` in the last line is the largest
    ``v`` of each weight so far, ``v_max``, and is corrected as ``v`` is (Reddi et al., arXiv:1904.09237,
    algorithm 2, which corrects nothing; torch.optim.Adam, keras.optimizers.Adam). ``weight_decay`` (coupled)
    and clipping work as in :class:`SGD`.
    """


class AdamW(_AdamStep, tag="adamw", kw_only=True, frozen=True):
    """Adam with decoupled weight decay (Loshchilov and Hutter, arXiv:1711.05101, algorithm 2)::

        w = w - lr * (adam's step + weight_decay * w)

    ``m``, ``v`` and ``amsgrad`` are those of :class:`Adam` and know nothing of the decay. The decay is
    multiplied by the step's learning rate, as in torch.optim.AdamW and keras.optimizers.AdamW; in the paper,
    by the schedule alone.
    """

    weight_decay: float = 0.01

    decouples_decay = True
