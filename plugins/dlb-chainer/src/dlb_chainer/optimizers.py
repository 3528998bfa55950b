"""Chainer's optimizers, brought to the definitions of dlb.workload.SGD and dlb.workload.Adam."""

from __future__ import annotations

import math
from typing import Any

import chainer
from chainer import optimizer_hooks, optimizers
from chainer.optimizer import GradientMethod
from chainer.optimizers.adam import AdamRule
from chainer.optimizers.momentum_sgd import MomentumSGDRule

from dlb_worker.errors import UnsupportedError
from dlb_worker.model import Optimizer


class NesterovRule(MomentumSGDRule):
    """Nesterov's momentum on the velocity that MomentumSGD keeps.

    Chainer's own NesterovAG puts the new velocity where its formula has the old one, so it is
    another method.
    """

    def update_core(self, param: chainer.Parameter) -> None:
        if param.grad is None:
            return
        velocity, step = self.state["v"], self.hyperparam.lr * param.grad
        velocity *= self.hyperparam.momentum
        velocity -= step
        param.data += self.hyperparam.momentum * velocity
        param.data -= step


class Nesterov(optimizers.MomentumSGD):
    def create_update_rule(self) -> NesterovRule:
        return NesterovRule(self.hyperparam)


class LateEpsilonRule(AdamRule):
    """Adam with epsilon added after the bias correction.

    Chainer adds it before, where it weighs 1 / sqrt(1 - beta2 ** t) times as much.
    """

    def update_core(self, param: chainer.Parameter) -> None:
        shared = self.hyperparam.parent
        self.hyperparam.eps = shared.eps * math.sqrt(1 - math.pow(shared.beta2, self.t))
        super().update_core(param)


class Adam(optimizers.Adam):
    def create_update_rule(self) -> LateEpsilonRule:
        return LateEpsilonRule(self.hyperparam)


class Clipping(optimizer_hooks.GradientClipping):
    """Brings gradients down to a norm.

    Chainer's own adds the squares of a whole array up by one dot product: in float32, of an
    embedding's gradient of a million numbers, 5e-5 off. Here rows come first.
    """

    def __call__(self, optimizer: GradientMethod) -> None:
        gradients = [p.grad for p in optimizer.target.params(False) if p.grad is not None]
        xp = optimizer.target.xp
        matrices = [g.reshape(len(g) if g.ndim > 1 else 1, -1) for g in gradients]
        squares = xp.concatenate([xp.einsum("ij,ij->i", rows, rows) for rows in matrices])
        norm = float(xp.sqrt(squares.sum(dtype="float64")))
        if norm > self.threshold:
            for gradient in gradients:
                gradient *= self.threshold / norm


def make_optimizer(described: Optimizer, network: chainer.Link) -> GradientMethod:
    """The optimizer, set up on every parameter of the network."""
    rate = described.learning_rate
    optimizer: GradientMethod
    if described.kind == "adam":
        optimizer = Adam(rate, described.beta1, described.beta2, described.epsilon)
    elif not described.momentum:
        optimizer = optimizers.SGD(rate)
    else:
        kind = Nesterov if described.nesterov else optimizers.MomentumSGD
        optimizer = kind(rate, described.momentum)
    optimizer.setup(network)
    if described.clip_norm:
        optimizer.add_hook(Clipping(described.clip_norm))
    if described.weight_decay:
        optimizer.add_hook(optimizer_hooks.WeightDecay(described.weight_decay))
    return optimizer


def set_learning_rate(optimizer: GradientMethod, network: chainer.Link, rate: float) -> None:
    """The rate from the next update on.

    Chainer's momentum keeps the velocity times the learning rate; it is scaled to the new one.
    """
    if "alpha" in optimizer.hyperparam.get_dict():
        optimizer.hyperparam.alpha = rate
        return
    if rate == optimizer.hyperparam.lr:
        return
    velocities = [
        param.update_rule.state["v"] for param in network.params() if param.update_rule.state
    ]
    if velocities and rate == 0:
        raise UnsupportedError(
            "Chainer's momentum keeps velocities times the learning rate, which a rate of 0 would "
            "lose; use a schedule whose rates are above 0"
        )
    for velocity in velocities:
        velocity *= rate / optimizer.hyperparam.lr
    optimizer.hyperparam.lr = rate


def state_of(optimizer: GradientMethod, param: chainer.Parameter) -> dict[str, Any]:
    """A parameter's ``m`` and ``v``, or its ``velocity``, less the learning rate in it."""
    state = param.update_rule.state or {}
    if "m" in state or not state:
        return dict(state)
    return {"velocity": state["v"] / -optimizer.hyperparam.lr}
