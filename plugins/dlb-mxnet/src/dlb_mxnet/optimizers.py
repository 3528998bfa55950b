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

from dlb_worker.errors import UnsupportedError
from dlb_worker.model import Optimizer


class KeptStates:
    """Keeps the state that the optimizer creates for each parameter, by the parameter's index."""

    def __init__(self, **hyperparameters: Any) -> None:
        super().__init__(**hyperparameters)
        self.states: dict[int, Any] = {}

    def create_state(self, index: int, weight: NDArray) -> Any:
        self.states[index] = super().create_state(index, weight)  # type: ignore[misc]
        return self.states[index]


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

    def slots(self, index: int) -> dict[str, NDArray]:
        velocity = self.states.get(index)
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


class Moments(KeptStates):
    """The state is the two moments of Adam."""

    def slots(self, index: int) -> dict[str, NDArray]:
        return dict(zip(("m", "v"), self.states.get(index, ())))


class Adam(Moments, mx.optimizer.Adam):
    """MXNet's operator, with the bias correction folded into the rate and into epsilon.

    MXNet folds it into the rate only. The operator has its betas in float32, where 1 - 0.999 is
    1.3e-5 wrong, and so is the scale of a moment. The correction uses the same betas, and
    :meth:`slots` corrects the scale.
    """

    def slots(self, index: int) -> dict[str, NDArray]:
        betas = {"m": self.beta1, "v": self.beta2}
        return {
            slot: moment * ((1 - betas[slot]) / (1 - _rounded(betas[slot])))
            for slot, moment in super().slots(index).items()
        }

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


def _rounded(number: float) -> float:
    return float(np.float32(number))


class SGDInDouble(KeptStates, mx.optimizer.Optimizer):
    def __init__(self, momentum: float, nesterov: bool, **hyperparameters: Any) -> None:
        super().__init__(**hyperparameters)
        self.momentum, self.nesterov = momentum, nesterov

    def create_state(self, index: int, weight: NDArray) -> NDArray:
        self.states[index] = mx.nd.zeros_like(weight)
        return self.states[index]

    def update(self, index: int, weight: NDArray, grad: NDArray, state: NDArray) -> None:
        self._update_count(index)
        # In place where possible: every temporary takes as much memory as the weight.
        grad = grad * self.rescale_grad
        grad += self._get_wd(index) * weight
        state *= self.momentum
        state += grad
        weight -= self._get_lr(index) * (grad + self.momentum * state if self.nesterov else state)

    def slots(self, index: int) -> dict[str, NDArray]:
        return {"velocity": self.states[index]} if self.momentum and index in self.states else {}


class AdamInDouble(Moments, mx.optimizer.Adam):
    def update(
        self, index: int, weight: NDArray, grad: NDArray, state: tuple[NDArray, NDArray]
    ) -> None:
        self._update_count(index)
        step = self._index_update_count[index]
        m, v = state
        grad = grad * self.rescale_grad + self._get_wd(index) * weight
        m[:] = self.beta1 * m + (1 - self.beta1) * grad
        v[:] = self.beta2 * v + (1 - self.beta2) * grad * grad
        deviation = mx.nd.sqrt(v / (1 - self.beta2**step)) + self.epsilon
        weight -= self._get_lr(index) * (m / (1 - self.beta1**step)) / deviation


def make_optimizer(optimizer: Optimizer, dtype: str) -> mx.optimizer.Optimizer:
    """The optimizer for gluon's Trainer, of fused operators in float32, composed in float64."""
    shared = {"learning_rate": optimizer.learning_rate, "wd": optimizer.weight_decay}
    if optimizer.kind == "adam":
        kind = AdamInDouble if dtype == "float64" else Adam
        return kind(
            beta1=optimizer.beta1, beta2=optimizer.beta2, epsilon=optimizer.epsilon, **shared
        )
    if dtype == "float64":
        return SGDInDouble(momentum=optimizer.momentum, nesterov=optimizer.nesterov, **shared)
    kind = Nesterov if optimizer.nesterov else SGD
    return kind(momentum=optimizer.momentum, **shared)
