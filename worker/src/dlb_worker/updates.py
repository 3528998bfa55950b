"""The optimizers' formulas, for frameworks whose own optimizers are others.

The formulas use arithmetic operators only, so they work for arrays and for symbolic variables. Definitions:
:class:`dlb.workload.SGD` and :class:`dlb.workload.Adam`.
"""

from typing import Any, Callable, Dict, Mapping, Tuple

from dlb_worker.model import Optimizer

__all__ = ["slots", "updated"]


def slots(optimizer: Optimizer) -> Tuple[str, ...]:
    """Names of the arrays that the optimizer keeps for each parameter."""
    if optimizer.kind == "adam":
        return ("m", "v")
    return ("velocity",) if optimizer.momentum else ()


def updated(
    optimizer: Optimizer,
    weight: Any,
    gradient: Any,
    state: Mapping[str, Any],
    rate: Any,
    step: Any,
    sqrt: Callable[[Any], Any],
) -> Tuple[Any, Dict[str, Any]]:
    """A parameter and its state after one step.

    Args:
        gradient: clipped already, where the optimizer clips.
        state: by slot.
        rate: the learning rate of this step.
        step: its number, counted from 1.
        sqrt: the square root for these arrays.
    """
    if optimizer.weight_decay:
        gradient = gradient + optimizer.weight_decay * weight
    if optimizer.kind == "adam":
        beta1, beta2 = optimizer.beta1, optimizer.beta2
        m = beta1 * state["m"] + (1 - beta1) * gradient
        v = beta2 * state["v"] + (1 - beta2) * gradient * gradient
        change = (m / (1 - beta1**step)) / (sqrt(v / (1 - beta2**step)) + optimizer.epsilon)
        return weight - rate * change, {"m": m, "v": v}
    if not optimizer.momentum:
        return weight - rate * gradient, {}
    velocity = optimizer.momentum * state["velocity"] + gradient
    change = gradient + optimizer.momentum * velocity if optimizer.nesterov else velocity
    return weight - rate * change, {"velocity": velocity}
