"""torch's optimizers, as :mod:`dlb_graph.optimizers` defines them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dlb_worker import updates
from dlb_worker.model import Optimizer

#: torch's names for what its optimizers keep, by kind.
SLOTS = {
    "sgd": {"momentum_buffer": "velocity"},
    "adam": {"exp_avg": "m", "exp_avg_sq": "v", "max_exp_avg_sq": "v_max"},
    "adamw": {"exp_avg": "m", "exp_avg_sq": "v", "max_exp_avg_sq": "v_max"},
    "rmsprop": {"square_avg": "v", "momentum_buffer": "velocity"},
    "adagrad": {"sum": "sum"},
    "adadelta": {"square_avg": "v", "acc_delta": "u"},
    "adamax": {"exp_avg": "m", "exp_inf": "u"},
}


class Composed(torch.optim.Optimizer):
    """The workload's formulas, of tensor operations, where torch's optimizer adds epsilon elsewhere."""

    def __init__(self, groups: list[dict[str, Any]], described: Optimizer) -> None:
        shared = {"lr": described.learning_rate, "weight_decay": described.weight_decay}
        super().__init__(groups, shared)
        self.described = described

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            described = updates.with_decay(self.described, group["weight_decay"])
            for weight in group["params"]:
                if weight.grad is not None:
                    self._update(weight, group["lr"], described)

    def _update(self, weight: Tensor, rate: float, described: Optimizer) -> None:
        state = self.state[weight]
        if not state:
            start = updates.initial_slot(described)
            for slot in updates.slots(described):
                state[slot] = torch.full_like(weight, start)
            state["step"] = 0
        state["step"] += 1
        moved_weight, moved = updates.updated(
            described,
            weight,
            weight.grad,
            state,
            rate,
            state["step"],
            torch.sqrt,
            torch.maximum,
        )
        weight.copy_(moved_weight)
        state.update(moved)


def make_optimizer(
    optimizer: Optimizer, parameters: list[Tensor], undecayed: Sequence[Tensor] = ()
) -> torch.optim.Optimizer:
    """torch's own optimizer where it is as the workload defines it, else the formulas.

    A group may be empty, where torch refuses an empty list: a model may have nothing to train.

    Args:
        undecayed: those of the parameters on which weight decay does not act: a group of their own.
    """
    exempt = set(map(id, undecayed)) if optimizer.weight_decay else set()
    groups: list[dict[str, Any]] = [{"params": [p for p in parameters if id(p) not in exempt]}]
    if exempt:
        groups.append({"params": list(undecayed), "weight_decay": 0.0})
    shared: dict[str, Any] = {
        "lr": optimizer.learning_rate,
        "weight_decay": optimizer.weight_decay,
    }
    if optimizer.kind == "sgd":
        return torch.optim.SGD(
            groups,
            momentum=optimizer.momentum,
            # Without momentum the two are one, and torch refuses the second name for it.
            nesterov=optimizer.nesterov and optimizer.momentum > 0,
            **shared,
        )
    if is_composed(optimizer):
        return Composed(groups, optimizer)
    shared["eps"] = optimizer.epsilon
    if optimizer.kind == "rmsprop":
        return torch.optim.RMSprop(
            groups, alpha=optimizer.rho, momentum=optimizer.momentum, **shared
        )
    if optimizer.kind == "adagrad":
        start = optimizer.initial_accumulator
        return torch.optim.Adagrad(groups, initial_accumulator_value=start, **shared)
    if optimizer.kind == "adadelta":
        return torch.optim.Adadelta(groups, rho=optimizer.rho, **shared)
    shared["betas"] = (optimizer.beta1, optimizer.beta2)
    if optimizer.kind == "adamax":
        return torch.optim.Adamax(groups, **shared)
    adam = torch.optim.AdamW if optimizer.kind == "adamw" else torch.optim.Adam
    return adam(groups, amsgrad=optimizer.amsgrad, **shared)


def is_composed(optimizer: Optimizer) -> bool:
    """Whether torch's own optimizer adds epsilon in another place."""
    own = {"rmsprop": "outside", "adagrad": "outside", "adamax": "inside"}
    kind = optimizer.kind
    return kind in own and bool(optimizer.epsilon) and optimizer.epsilon_place != own[kind]


def state_of(
    optimizer: torch.optim.Optimizer, described: Optimizer, parameter: Tensor
) -> dict[str, Tensor]:
    """What the optimizer keeps for a parameter, by slot; nothing before the first step."""
    state = optimizer.state.get(parameter, {})
    # Adagrad has its sums from the beginning.
    if not state.get("step", 1):
        return {}
    names = {slot: slot for slot in updates.slots(described)}
    kept = names if isinstance(optimizer, Composed) else SLOTS[described.kind]
    return {slot: state[name] for name, slot in kept.items() if state.get(name) is not None}
