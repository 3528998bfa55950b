"""Chainer's optimizers, brought to the definitions of :mod:`dlb_graph.optimizers`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import chainer
from chainer import optimizer_hooks, optimizers
from chainer.optimizer import GradientMethod, Hyperparameter, UpdateRule
from chainer.optimizers.ada_grad import AdaGradRule
from chainer.optimizers.adam import AdamRule
from chainer.optimizers.momentum_sgd import MomentumSGDRule

from dlb_worker import updates
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


class SummedRule(AdaGradRule):
    """AdaGrad whose sums start at a number."""

    def init_state(self, param: chainer.Parameter) -> None:
        super().init_state(param)
        self.state["h"] += self.hyperparam.start


class AdaGrad(optimizers.AdaGrad):
    def __init__(self, lr: float, eps: float, start: float) -> None:
        super().__init__(lr, eps)
        self.hyperparam.start = start

    def create_update_rule(self) -> SummedRule:
        return SummedRule(self.hyperparam)


class ComposedRule(UpdateRule):
    """The workload's formulas, of array operations, where Chainer has another update or none."""

    def __init__(self, hyperparam: Hyperparameter, described: Optimizer) -> None:
        super().__init__(hyperparam)
        self.described = described

    def init_state(self, param: chainer.Parameter) -> None:
        start = updates.initial_slot(self.described)
        for slot in updates.slots(self.described):
            self.state[slot] = param.device.xp.full_like(param.data, start)

    def update_core(self, param: chainer.Parameter) -> None:
        if param.grad is None:
            return
        xp = param.device.xp
        # Decay is a hook, which has been added to the gradient.
        weight, moved = updates.updated(
            self.described,
            param.data,
            param.grad,
            self.state,
            self.hyperparam.lr,
            self.t,
            xp.sqrt,
            xp.maximum,
        )
        param.data[...] = weight
        self.state.update(moved)


class Composed(GradientMethod):
    def __init__(self, described: Optimizer) -> None:
        super().__init__()
        self.described = updates.with_decay(described, 0.0)
        self.hyperparam.lr = described.learning_rate

    def create_update_rule(self) -> ComposedRule:
        return ComposedRule(self.hyperparam, self.described)


class Clipping(optimizer_hooks.GradientClipping):
    """Brings gradients down to a norm.

    Chainer's own adds the squares of a whole array up by one dot product: in float32, of an
    embedding's gradient of a million numbers, 5e-5 off. Here rows come first.
    """

    def __call__(self, optimizer: GradientMethod) -> None:
        _clip(optimizer.target.xp, optimizer.target.params(False), self.threshold)


class ClippingEach:
    """Brings the gradient of each parameter, which Chainer may keep several of in one, down to a norm."""

    name = "ClippingEach"
    timing = "pre"
    call_for_each_param = False

    def __init__(self, limit: float, natives: Sequence[Sequence[Any]]) -> None:
        self.limit, self.natives = limit, natives

    def __call__(self, optimizer: GradientMethod) -> None:
        for natives in self.natives:
            _clip(optimizer.target.xp, natives, self.limit)


def _clip(xp: Any, natives: Iterable[Any], limit: float) -> None:
    gradients = [native.grad for native in natives if native.grad is not None]
    if not gradients:
        return
    matrices = [g.reshape(len(g) if g.ndim > 1 else 1, -1) for g in gradients]
    squares = xp.concatenate([xp.einsum("ij,ij->i", rows, rows) for rows in matrices])
    norm = float(xp.sqrt(squares.sum(dtype="float64")))
    if norm > limit:
        for gradient in gradients:
            gradient *= limit / norm


def make_optimizer(
    described: Optimizer,
    network: chainer.Link,
    natives: Sequence[Sequence[Any]],
    undecayed: Sequence[chainer.Parameter],
) -> GradientMethod:
    """The optimizer, set up on every parameter of the network.

    Args:
        natives: those of each trained parameter.
        undecayed: parameters on which weight decay does not act.
    """
    optimizer = _make(described)
    optimizer.setup(network)
    if described.clip_norm:
        optimizer.add_hook(Clipping(described.clip_norm))
    if described.clip_value:
        limits = (-described.clip_value, described.clip_value)
        optimizer.add_hook(optimizer_hooks.GradientHardClipping(*limits))
    if described.clip_variable_norm:
        optimizer.add_hook(ClippingEach(described.clip_variable_norm, natives))
    if described.weight_decay:
        _add_decay(optimizer, described, undecayed)
    return optimizer


def _add_decay(
    optimizer: GradientMethod, described: Optimizer, undecayed: Sequence[chainer.Parameter]
) -> None:
    exempt = set(map(id, undecayed))
    for param in optimizer.target.params():
        if described.kind == "adamw" and id(param) in exempt:
            param.update_rule.hyperparam.weight_decay_rate = 0.0
        elif described.kind != "adamw" and id(param) not in exempt:
            param.update_rule.add_hook(optimizer_hooks.WeightDecay(described.weight_decay))


def _make(described: Optimizer) -> GradientMethod:
    rate = described.learning_rate
    if described.kind == "sgd":
        if not described.momentum:
            return optimizers.SGD(rate)
        kind = Nesterov if described.nesterov else optimizers.MomentumSGD
        return kind(rate, described.momentum)
    if described.kind in ("adam", "adamw"):
        decay = described.weight_decay * rate if described.kind == "adamw" else 0.0
        betas = (described.beta1, described.beta2)
        amsgrad = described.amsgrad
        return Adam(rate, *betas, described.epsilon, weight_decay_rate=decay, amsgrad=amsgrad)
    if described.kind == "rmsprop" and not described.momentum:
        inside = described.epsilon_place == "inside"
        return optimizers.RMSprop(rate, described.rho, described.epsilon, inside)
    if described.kind == "adagrad" and described.epsilon_place == "outside":
        return AdaGrad(rate, described.epsilon, described.initial_accumulator)
    return Composed(described)


def set_learning_rate(
    optimizer: GradientMethod, described: Optimizer, network: chainer.Link, rate: float
) -> None:
    """The rate from the next update on.

    Chainer's momentum keeps the velocity times the learning rate; it is scaled to the new one. Its decoupled
    decay does not contain the rate.
    """
    if described.kind in ("adam", "adamw"):
        optimizer.hyperparam.alpha = rate
        if described.kind == "adamw":
            optimizer.hyperparam.weight_decay_rate = described.weight_decay * rate
        return
    if described.kind != "sgd":
        optimizer.hyperparam.lr = rate
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


#: Chainer's names for what it keeps.
SLOTS = {"ms": "v", "h": "sum", "vhat": "v_max"}


def state_of(
    optimizer: GradientMethod, described: Optimizer, param: chainer.Parameter
) -> dict[str, Any]:
    """What is kept of a parameter, by slot; a velocity less the learning rate in it."""
    state = param.update_rule.state or {}
    if described.kind != "sgd":
        return {SLOTS.get(name, name): array for name, array in state.items()}
    return {"velocity": state["v"] / -optimizer.hyperparam.lr} if state else {}
