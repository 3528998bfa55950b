"""Faults of steps that take a batch in parts, and of roundings that a gradient passes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from dlb_seeded_faults.faults import fault
from dlb_torch import functions
from dlb_torch import model as torch_model
from dlb_worker.parts import in_parts


@fault("the gradients of parts added up, not their mean", "update", "", "accumulated")
def _(model: Any) -> None:
    step = model.optimizer.step

    def of_sums(closure: Any = None) -> None:
        for group in model.optimizer.param_groups:
            for weight in group["params"]:
                weight.grad *= model.workload.optimizer.accumulate
        step(closure)

    model.optimizer.step = of_sums


@fault("the first part again for the second", "update", "", "accumulated")
def _(model: Any) -> None:
    def first_again(count: int, *arrays: Any) -> Iterator[list[Any]]:
        first = next(in_parts(count, *arrays))
        yield from [first] * count

    torch_model.in_parts = first_again


@fault("a step for each part", "update", "", "accumulated")
def _(model: Any) -> None:
    phases = model.step_phases

    def each(inputs: Any, labels: Any) -> Iterator[Any]:
        for part, targets in in_parts(2, inputs, labels):
            # As for a batch of its own, which is not halved again.
            torch_model.in_parts = lambda count, *arrays: iter([list(arrays)] * count)
            yield from phases(part, targets)

    model.step_phases = each


@fault("a straight-through rounding whose gradient is 0", "gradients float64", "", "quantised")
def _(model: Any) -> None:
    functions.FUNCTIONS["straight_through_round"] = torch.round


@fault(
    "a straight-through rounding of halves away from 0",
    "isolated layers, extremes",
    "rounded",
    "quantised",
)
def _(model: Any) -> None:
    def away(x: torch.Tensor) -> torch.Tensor:
        return x + (torch.sign(x) * torch.floor(torch.abs(x) + 0.5) - x).detach()

    functions.FUNCTIONS["straight_through_round"] = away
