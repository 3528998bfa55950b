"""Faults that no check finds: the limits of the proof, which its documentation lists.

Each is proven all the same. One that is found one day leaves this list and the documentation.
"""

from __future__ import annotations

from typing import Any

import torch

from dlb_seeded_faults.faults import Apply, Fault, around

__all__ = ["NOT_FOUND"]

NOT_FOUND: dict[str, Fault] = {}


def not_found(name: str) -> Any:
    """Register a function that seeds a fault which is not found."""

    def register(apply: Apply) -> Apply:
        NOT_FOUND[name] = Fault(name, "bounds", "", "", apply)
        return apply

    return register


@not_found("weights held between -1000 and 1000")
def _(model: Any) -> None:
    step = model.optimizer.step

    def held(closure: Any = None) -> None:
        step()
        with torch.no_grad():
            for parameter in model.network.parameters():
                parameter.clamp_(-1000, 1000)

    model.optimizer.step = held


@not_found("1e-12 added to the logits")
def _(model: Any) -> None:
    around(model, "logits", lambda linear, x: linear(x) + 1e-12)


@not_found("nothing learned after step 1000")
def _(model: Any) -> None:
    step, steps = model.optimizer.step, [0]

    def early(closure: Any = None) -> None:
        steps[0] += 1
        if steps[0] <= 1000:
            step()

    model.optimizer.step = early
