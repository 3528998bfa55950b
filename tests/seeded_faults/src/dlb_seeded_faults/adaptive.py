"""Faults of RMSprop, of clipping by value, of AdamW, and of class weights."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from dlb_seeded_faults.faults import fault, flat, with_loss
from dlb_torch.optimizers import Composed
from dlb_worker.model import Optimizer


@fault("RMSprop's epsilon inside of the root for outside", "update", "", "rmsprop")
def _(model: Any) -> None:
    described = model.workload.optimizer
    inside = Optimizer(described.kind, {**described.attributes, "epsilon_place": "inside"})
    model.optimizer = Composed([{"params": model.optimizer.param_groups[0]["params"]}], inside)


@fault("RMSprop's velocity that holds the learning rate", "trajectory", "", "rmsprop")
def _(model: Any) -> None:
    set_rate, rates = model.set_learning_rate, []

    def kept(rate: float) -> None:
        rates.append(rate)
        set_rate(rate)
        for state in model.optimizer.state.values():
            # As where a velocity holds the rate, and nothing scales it to the new one.
            if len(rates) > 1 and state.get("momentum_buffer") is not None:
                state["momentum_buffer"] *= rates[-2] / rate

    model.set_learning_rate = kept


@fault("gradients limited with their decay", "update", "", "rmsprop")
def _(model: Any) -> None:
    limited, decay = nn.utils.clip_grad_value_, model.workload.optimizer.weight_decay

    def with_decay(parameters: Any, limit: float) -> None:
        weights = list(parameters)
        for weight in weights:
            weight.grad += decay * weight.detach()
        limited(weights, limit)
        for weight in weights:
            weight.grad -= decay * weight.detach()

    nn.utils.clip_grad_value_ = with_decay


@fault("a weighted loss divided by the sum of its weights", "gradients float64", "", "adamw")
def _(model: Any) -> None:
    weights = torch.tensor(model.workload.loss.class_weights, dtype=model.type)
    with_loss(model, lambda *given: F.cross_entropy(*flat(*given), weight=weights))


@fault("AdamW's decay coupled", "update", "", "adamw")
def _(model: Any) -> None:
    model.optimizer.param_groups[0]["decoupled_weight_decay"] = False


@fault("AdamW's decay without the learning rate", "update", "", "adamw")
def _(model: Any) -> None:
    group = model.optimizer.param_groups[0]
    group["weight_decay"] /= group["lr"]
