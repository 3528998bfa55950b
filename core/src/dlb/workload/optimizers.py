"""The optimizers.

Frameworks put epsilon in different places and give the same names to different updates. So each formula is
written out, and where two places are in use, ``epsilon_place`` says which is meant.
"""

from __future__ import annotations

import math
from typing import Literal, Union

import msgspec

__all__ = [
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Optimizer",
    "Part",
    "RMSprop",
    "clips",
    "decays",
    "optimizer_fault",
]

#: Where epsilon is added: to the root, or to what the root is taken of. For Adamax: to the maximum, or to
#: the gradient's size before the maximum is taken.
EpsilonPlace = Literal["outside", "inside"]
#: What weight decay acts on: every trained parameter, or those alone whose role ends with ``weight``. The
#: others are biases, and the scales and slopes of normalisations and activations.
DecayOn = Literal["all", "weights"]


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type"):
    """Base class: immutable, compared by value, unknown fields are rejected."""


class SGD(Part, tag="sgd", kw_only=True, frozen=True):
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

    learning_rate: float
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    clip_norm: float = 0.0
    clip_value: float = 0.0
    clip_variable_norm: float = 0.0
    weight_decay_on: DecayOn = "all"
    accumulate: int = 1


class Adam(Part, tag="adam", kw_only=True, frozen=True):
    """Adam (Kingma and Ba, arXiv:1412.6980, algorithm 1)::

        m = beta1 * m + (1 - beta1) * g;   v = beta2 * v + (1 - beta2) * g * g
        w = w - lr * (m / (1 - beta1 ** t)) / (sqrt(v / (1 - beta2 ** t)) + epsilon)

    epsilon is added *after* the bias correction. With ``amsgrad``, ``v`` in the last line is the largest
    ``v`` of each weight so far, ``v_max``, and is corrected as ``v`` is (Reddi et al., arXiv:1904.09237,
    algorithm 2, which corrects nothing; torch.optim.Adam, keras.optimizers.Adam). ``weight_decay`` (coupled)
    and clipping work as in :class:`SGD`.
    """

    learning_rate: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    amsgrad: bool = False
    weight_decay: float = 0.0
    clip_norm: float = 0.0
    clip_value: float = 0.0
    clip_variable_norm: float = 0.0
    weight_decay_on: DecayOn = "all"
    accumulate: int = 1


class AdamW(Part, tag="adamw", kw_only=True, frozen=True):
    """Adam with decoupled weight decay (Loshchilov and Hutter, arXiv:1711.05101, algorithm 2)::

        w = w - lr * (adam's step + weight_decay * w)

    ``m``, ``v`` and ``amsgrad`` are those of :class:`Adam` and know nothing of the decay. The decay is
    multiplied by the step's learning rate, as in torch.optim.AdamW and keras.optimizers.AdamW; in the paper,
    by the schedule alone.
    """

    learning_rate: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    amsgrad: bool = False
    weight_decay: float = 0.01
    clip_norm: float = 0.0
    clip_value: float = 0.0
    clip_variable_norm: float = 0.0
    weight_decay_on: DecayOn = "all"
    accumulate: int = 1


class RMSprop(Part, tag="rmsprop", kw_only=True, frozen=True):
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
    weight_decay: float = 0.0
    clip_norm: float = 0.0
    clip_value: float = 0.0
    clip_variable_norm: float = 0.0
    weight_decay_on: DecayOn = "all"
    accumulate: int = 1


class Adagrad(Part, tag="adagrad", kw_only=True, frozen=True):
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
    weight_decay: float = 0.0
    clip_norm: float = 0.0
    clip_value: float = 0.0
    clip_variable_norm: float = 0.0
    weight_decay_on: DecayOn = "all"
    accumulate: int = 1


class Adadelta(Part, tag="adadelta", kw_only=True, frozen=True):
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
    weight_decay: float = 0.0
    clip_norm: float = 0.0
    clip_value: float = 0.0
    clip_variable_norm: float = 0.0
    weight_decay_on: DecayOn = "all"
    accumulate: int = 1


class Adamax(Part, tag="adamax", kw_only=True, frozen=True):
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
    weight_decay: float = 0.0
    clip_norm: float = 0.0
    clip_value: float = 0.0
    clip_variable_norm: float = 0.0
    weight_decay_on: DecayOn = "all"
    accumulate: int = 1


Optimizer = Union[SGD, Adam, AdamW, RMSprop, Adagrad, Adadelta, Adamax]


#: The fields that limit gradients.
_CLIPS = ("clip_norm", "clip_value", "clip_variable_norm")


def clips(optimizer: Optimizer) -> str:
    """The field that limits gradients; "" if none does."""
    return next((name for name in _CLIPS if getattr(optimizer, name)), "")


def decays(optimizer: Optimizer, parameter: str) -> bool:
    """Whether weight decay acts on a trained parameter, ``layer.role``."""
    is_weight = parameter.endswith("weight")
    return bool(optimizer.weight_decay) and (optimizer.weight_decay_on == "all" or is_weight)


def optimizer_fault(optimizer: Optimizer) -> str:
    """What is wrong with an optimizer's numbers; "" if nothing is."""
    rate = optimizer.learning_rate
    if optimizer.accumulate < 1:
        return f"optimizer.accumulate = {optimizer.accumulate} must be 1 or more"
    if not 0 < rate < math.inf:
        return f"optimizer.learning_rate = {rate} must be above 0 and finite"
    for name in _CLIPS:
        if not 0 <= (clip := getattr(optimizer, name)) < math.inf:
            return f"optimizer.{name} = {clip} must be 0 (none) or more, and finite"
    if len(limits := [name for name in _CLIPS if getattr(optimizer, name)]) > 1:
        first, second, *_ = limits
        return f"optimizer.{first} and optimizer.{second} are both above 0: set one of them to 0"
    if isinstance(optimizer, (RMSprop, Adadelta)) and not 0 <= optimizer.rho < 1:
        return f"optimizer.rho = {optimizer.rho} must be 0 or more, and below 1"
    if isinstance(optimizer, Adagrad) and not 0 <= optimizer.initial_accumulator < math.inf:
        start = optimizer.initial_accumulator
        return f"optimizer.initial_accumulator = {start} must be 0 or more, and finite"
    return ""
