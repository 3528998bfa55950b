"""Faults of Huber's loss and of binary cross-entropy."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F

from dlb_seeded_faults.faults import fault, with_loss


@fault("Huber's loss divided by its delta", "gradients float64", "loss", "huber")
def _(model: Any) -> None:
    beta = model.workload.loss.delta
    with_loss(model, lambda x, y: F.smooth_l1_loss(x, y, beta=beta))


@fault("Huber's loss with a delta of 1", "gradients float64", "loss", "huber")
def _(model: Any) -> None:
    with_loss(model, F.huber_loss)


@fault("Huber's loss summed over the outputs of a sample", "gradients float64", "loss", "huber")
def _(model: Any) -> None:
    delta = model.workload.loss.delta
    with_loss(model, lambda x, y: F.huber_loss(x, y, delta=delta, reduction="sum") / len(x))


@fault("shares taken for the nearest of 0 and 1", "gradients float64", "loss", "shares")
def _(model: Any) -> None:
    with_loss(model, lambda x, y: F.binary_cross_entropy_with_logits(x, y.round()))


@fault("targets rounded to bfloat16", "gradients float64", "loss", "huber")
def _(model: Any) -> None:
    delta = model.workload.loss.delta
    with_loss(model, lambda x, y: F.huber_loss(x, y.bfloat16().to(x.dtype), delta=delta))
