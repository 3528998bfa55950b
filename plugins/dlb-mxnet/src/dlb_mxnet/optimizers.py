"""MXNet's optimizers, mapped to the updates that workloads define.

In float32 they are MXNet's fused operators. Those keep the learning rate, momentum, betas and
epsilon in float32 whatever the weights are, so in float64 the same updates are composed of
array operators, whose scalars are float64.
"""

from __future__ import annotations

import math
from typing import Any

import mxnet as mx
import numpy as np
from mxnet.ndarray import NDArray

from dlb_worker import updates
from dlb_worker.errors import UnsupportedError
from dlb_worker.model import Optimizer

#: A parameter's index, and the context of one of its copies.
Key = tuple[int, mx.Context]


class KeptStates:
    """Keeps the state that the optimizer creates for each copy of each parameter."""

    def __init__(self, **hyperparameters: Any) -> None:
        super().__init__(**hyperparameters)
        self.states: dict[Key, Any] = {}

    def create_state(self, index: int, weight: NDArray) -> Any:
        state = super().create_state(index, weight)  # type: ignore[misc]
        self.states[index, weight.context] = state
        return state


class ScaledVelocity(KeptStates):
    """MXNet's velocity is -lr times the workload's, so it is scaled when the rate changes."""

    def set_learning_rate(self, lr: float) -> None:
        if not lr > 0:
            raise UnsupportedError(f"MXNet's SGD with momentum needs a rate above 0, not {lr}")
        if lr != self.lr:  # type: ignore[has-type]
            for velocity in self.states.values():
                if velocity is not None:
                    velocity *= lr / self.lr  # type: ignore[has-type]
        self.lr = lr

    def slots(self, key: Key) -> dict[str, NDArray]:
        velocity = self.states.get(key)
        return {} if velocity is None else {"velocity": velocity / -self.lr}


class SGD(ScaledVelocity, mx.optimizer.SGD):
    pass


class Nesterov(ScaledVelocity, mx.optimizer.NAG):
    """Decays before the operator, which would decay by the weight that it has already updated."""

    def _update_impl(
        self,
        index: int,
        weight: NDArray,
        grad: NDArray,
        state: NDArray | None,
        multi_precision: bool = False,
    ) -> None:
        decay = self._get_wd(index)
        if not decay or state is None:
            super()._update_impl(index, weight, grad, state, multi_precision)
            return
        self._update_count(index)
        mx.nd.nag_mom_update(
            weight,
            grad * self.rescale_grad + decay * weight,
            state,
            out=weight,
            lr=self._get_lr(index),
            momentum=self.momentum,
        )


class Adam(KeptStates, mx.optimizer.Adam):
    """MXNet's operator, with the bias correction folded into the rate and into epsilon.

    MXNet folds it into the rate only. The operator has its betas in float32, where 1 - 0.999 is
    1.3e-5 wrong, and so is the scale of a moment. The correction uses the same betas, and
    :meth:`slots` corrects the scale.
    """

    def slots(self, key: Key) -> dict[str, NDArray]:
        moments = zip(("m", "v"), (self.beta1, self.beta2), self.states.get(key, ()))
        return {slot: array * ((1 - beta) / (1 - _rounded(beta))) for slot, beta, array in moments}

    def update(
        self, index: int, weight: NDArray, grad: NDArray, state: tuple[NDArray, NDArray]
    ) -> None:
        self._update_count(index)
        step = self._index_update_count[index]
        beta1, beta2 = _rounded(self.beta1), _rounded(self.beta2)
        root = math.sqrt(1 - beta2**step)
        mx.nd.adam_update(
            weight,
            grad,
            *state,
            out=weight,
            lr=self._get_lr(index) * root / (1 - beta1**step),
            beta1=self.beta1,
            beta2=self.beta2,
            epsilon=self.epsilon * root,
            wd=self._get_wd(index),
            rescale_grad=self.rescale_grad,
        )


class AdamW(Adam):
    """MXNet's operator for decoupled decay; gluon has no optimizer of it in MXNet 1.

    It adds the decay without the learning rate.
    """

    def update(
        self, index: int, weight: NDArray, grad: NDArray, state: tuple[NDArray, NDArray]
    ) -> None:
        self._update_count(index)
        step, rate = self._index_update_count[index], self._get_lr(index)
        beta1, beta2 = _rounded(self.beta1), _rounded(self.beta2)
        root = math.sqrt(1 - beta2**step)
        mx.nd.contrib.adamw_update(
            weight,
            grad,
            *state,
            self._scale(weight),
            out=weight,
            lr=rate * root / (1 - beta1**step),
            eta=1.0,
            beta1=self.beta1,
            beta2=self.beta2,
            epsilon=self.epsilon * root,
            wd=rate * self._get_wd(index),
        )

    def _scale(self, weight: NDArray) -> NDArray:
        """The factor of gradients, which this operator takes as an array."""
        kept = self.__dict__.setdefault("scales", {})
        key = (weight.context, self.rescale_grad)
        if key not in kept:
            kept[key] = mx.nd.full((1,), self.rescale_grad, ctx=weight.context)
        return kept[key]


class RMSProp(KeptStates, mx.optimizer.RMSProp):
    """MXNet's operator, whose epsilon is inside of the root.

    It has rho in float32, where 1 - 0.999 is 1.3e-5 wrong, and so is the scale of what it keeps. The
    rate and epsilon make up for that, and :meth:`slots` corrects the scale.
    """

    def slots(self, key: Key) -> dict[str, NDArray]:
        return {slot: array * self._share for slot, array in zip("v", self.states.get(key, ()))}

    @property
    def _share(self) -> float:
        return (1 - self.gamma1) / (1 - _rounded(self.gamma1))

    def update(self, index: int, weight: NDArray, grad: NDArray, state: tuple[NDArray]) -> None:
        self._update_count(index)
        mx.nd.rmsprop_update(
            weight,
            grad,
            *state,
            out=weight,
            lr=self._get_lr(index) / math.sqrt(self._share),
            gamma1=self.gamma1,
            epsilon=self.epsilon / self._share,
            wd=self._get_wd(index),
            rescale_grad=self.rescale_grad,
        )


def _rounded(number: float) -> float:
    return float(np.float32(number))


class Composed(mx.optimizer.Optimizer):
    """The workload's formulas, of array operators."""

    def __init__(self, optimizer: Optimizer) -> None:
        super().__init__(learning_rate=optimizer.learning_rate, wd=optimizer.weight_decay)
        self.described = optimizer
        self.states: dict[Key, dict[str, NDArray]] = {}

    def create_state(self, index: int, weight: NDArray) -> dict[str, NDArray]:
        names = updates.slots(self.described)
        start = updates.initial_slot(self.described)
        state = {slot: mx.nd.zeros_like(weight) + start for slot in names}
        self.states[index, weight.context] = state
        return state

    def update(self, index: int, weight: NDArray, grad: NDArray, state: dict[str, NDArray]) -> None:
        self._update_count(index)
        step, rate = self._index_update_count[index], self._get_lr(index)
        gradient = grad * self.rescale_grad
        described = updates.with_decay(self.described, self._get_wd(index))
        weight[:], moved = updates.updated(
            described, weight, gradient, state, rate, step, mx.nd.sqrt, mx.nd.maximum
        )
        for slot, array in moved.items():
            state[slot][:] = array

    def slots(self, key: Key) -> dict[str, NDArray]:
        return self.states.get(key, {})


def make_optimizer(optimizer: Optimizer, dtype: str) -> mx.optimizer.Optimizer:
    """The optimizer for gluon's Trainer, of fused operators in float32, composed in float64.

    MXNet's own AdaGrad, AdaDelta and Adamax are of array operators, too, with another decay.
    """
    own = optimizer.kind in ("sgd", "adam", "adamw") and not optimizer.attributes.get("amsgrad")
    native = own or (
        optimizer.kind == "rmsprop"
        and not optimizer.momentum
        and (optimizer.epsilon_place == "inside" or not optimizer.epsilon)
    )
    if dtype == "float64" or not native:
        return Composed(optimizer)
    shared = {"learning_rate": optimizer.learning_rate, "wd": optimizer.weight_decay}
    if optimizer.kind == "sgd":
        kind = Nesterov if optimizer.nesterov else SGD
        return kind(momentum=optimizer.momentum, **shared)
    shared["epsilon"] = optimizer.epsilon
    if optimizer.kind == "rmsprop":
        return RMSProp(gamma1=optimizer.rho, **shared)
    adam = AdamW if optimizer.kind == "adamw" else Adam
    return adam(beta1=optimizer.beta1, beta2=optimizer.beta2, **shared)
