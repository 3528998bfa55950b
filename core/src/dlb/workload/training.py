"""How a model is trained: loss, optimizer, schedule."""

from __future__ import annotations

from typing import Union

import msgspec

__all__ = [
    "SGD",
    "Adam",
    "Constant",
    "Loss",
    "Optimizer",
    "Schedule",
    "SoftmaxCrossEntropy",
    "Step",
    "learning_rate",
]


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type"):
    """Base: immutable, compared by value, unknown fields refused."""


class SoftmaxCrossEntropy(_Part, tag="softmax_cross_entropy", frozen=True):
    """Softmax cross-entropy with integer labels, averaged over samples (and time steps).

    ONNX SoftmaxCrossEntropyLoss with reduction ``mean``.
    """


Loss = SoftmaxCrossEntropy


class Constant(_Part, tag="constant", frozen=True):
    """The optimizer's learning rate throughout."""


class Step(_Part, tag="step", kw_only=True, frozen=True):
    """The learning rate times ``gamma`` from each of ``milestones`` (steps, from 0) on."""

    milestones: tuple[int, ...]
    gamma: float = 0.1


Schedule = Union[Constant, Step]


class SGD(_Part, tag="sgd", kw_only=True, frozen=True):
    """Stochastic gradient descent with momentum.

    With gradient g, weight w, velocity v, learning rate lr::

        g = g + weight_decay * w
        v = momentum * v + g
        w = w - lr * v                          plain
        w = w - lr * (g + momentum * v)         Nesterov

    The velocity is *not* scaled by the learning rate (Sutskever et al. 2013, as written in
    torch.optim.SGD), so a schedule acts at once. ``weight_decay`` is coupled and applies to every
    trained parameter, biases and batch-norm scales included.
    """

    learning_rate: float
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0


class Adam(_Part, tag="adam", kw_only=True, frozen=True):
    """Adam (Kingma and Ba, arXiv:1412.6980, algorithm 1)::

        m = beta1 * m + (1 - beta1) * g;   v = beta2 * v + (1 - beta2) * g * g
        w = w - lr * (m / (1 - beta1 ** t)) / (sqrt(v / (1 - beta2 ** t)) + epsilon)

    epsilon is added *after* the bias correction; coupled ``weight_decay`` as in :class:`SGD`.
    """

    learning_rate: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0


Optimizer = Union[SGD, Adam]


def learning_rate(optimizer: Optimizer, schedule: Schedule, step: int) -> float:
    """The learning rate of one step, counted from 0."""
    if isinstance(schedule, Step):
        passed = sum(step >= milestone for milestone in schedule.milestones)
        return optimizer.learning_rate * schedule.gamma**passed
    return optimizer.learning_rate
