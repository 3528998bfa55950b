"""The optimizers' formulas, for frameworks whose own optimizers are others.

The formulas use arithmetic operators only, so they work for arrays and for symbolic variables. Definitions:
:mod:`dlb_graph.optimizers`.
"""

from typing import Any, Callable, Dict, Mapping, Optional, Tuple

from dlb_worker.model import Optimizer

__all__ = ["decays", "initial_slot", "slots", "updated", "with_decay"]


def slots(optimizer: Optimizer) -> Tuple[str, ...]:
    """Names of the arrays that the optimizer keeps for each parameter."""
    if optimizer.kind == "sgd":
        return ("velocity",) if optimizer.momentum else ()
    if optimizer.kind == "rmsprop":
        return ("v", "velocity") if optimizer.momentum else ("v",)
    if optimizer.attributes.get("amsgrad"):
        return ("m", "v", "v_max")
    return _SLOTS[optimizer.kind]


_SLOTS = {
    "adam": ("m", "v"),
    "adamw": ("m", "v"),
    "adagrad": ("sum",),
    "adadelta": ("v", "u"),
    "adamax": ("m", "u"),
}


def decays(optimizer: Optimizer, role: str) -> bool:
    """Whether weight decay acts on the parameters of a role, such as ``weight`` or ``bias``."""
    everywhere = optimizer.weight_decay_on == "all"
    return bool(optimizer.weight_decay) and (everywhere or role.endswith("weight"))


def with_decay(optimizer: Optimizer, weight_decay: float) -> Optimizer:
    """The optimizer with another weight decay."""
    return Optimizer(optimizer.kind, dict(optimizer.attributes, weight_decay=weight_decay))


def initial_slot(optimizer: Optimizer) -> float:
    """What the arrays that the optimizer keeps are full of before the first step."""
    return float(optimizer.attributes.get("initial_accumulator", 0.0))


def updated(
    optimizer: Optimizer,
    weight: Any,
    gradient: Any,
    state: Mapping[str, Any],
    rate: Any,
    step: Any,
    sqrt: Callable[[Any], Any],
    maximum: Optional[Callable[[Any, Any], Any]] = None,
) -> Tuple[Any, Dict[str, Any]]:
    """A parameter and its state after one step.

    Args:
        gradient: clipped already, where the optimizer clips.
        state: by slot.
        rate: the learning rate of this step.
        step: its number, counted from 1.
        sqrt: the square root for these arrays.
        maximum: the larger elements of two of these arrays; Adamax and ``amsgrad`` need it.
    """
    decay = optimizer.weight_decay * weight if optimizer.weight_decay else None
    if decay is not None and optimizer.kind != "adamw":
        gradient = gradient + decay
    if optimizer.kind == "sgd":
        if not optimizer.momentum:
            return weight - rate * gradient, {}
        velocity = optimizer.momentum * state["velocity"] + gradient
        change = gradient + optimizer.momentum * velocity if optimizer.nesterov else velocity
        return weight - rate * change, {"velocity": velocity}
    change, moved = _ADAPTIVE[optimizer.kind](optimizer, gradient, state, step, sqrt, maximum)
    if decay is not None and optimizer.kind == "adamw":
        change = change + decay
    return weight - rate * change, moved


def _adam(o: Optimizer, gradient: Any, state: Any, step: Any, sqrt: Any, maximum: Any) -> Any:
    m = o.beta1 * state["m"] + (1 - o.beta1) * gradient
    v = o.beta2 * state["v"] + (1 - o.beta2) * gradient * gradient
    moved = {"m": m, "v": v}
    if o.attributes.get("amsgrad"):
        v = moved["v_max"] = maximum(state["v_max"], v)
    change = (m / (1 - o.beta1**step)) / (sqrt(v / (1 - o.beta2**step)) + o.epsilon)
    return change, moved


def _adamax(o: Optimizer, gradient: Any, state: Any, step: Any, sqrt: Any, maximum: Any) -> Any:
    inside = o.epsilon_place == "inside"
    m = o.beta1 * state["m"] + (1 - o.beta1) * gradient
    size = abs(gradient) + o.epsilon if inside else abs(gradient)
    u = maximum(o.beta2 * state["u"], size)
    change = (m / (1 - o.beta1**step)) / (u if inside else u + o.epsilon)
    return change, {"m": m, "u": u}


def _rmsprop(o: Optimizer, gradient: Any, state: Any, step: Any, sqrt: Any, maximum: Any) -> Any:
    v = o.rho * state["v"] + (1 - o.rho) * gradient * gradient
    change = _over_root(o, gradient, v, sqrt)
    if not o.momentum:
        return change, {"v": v}
    velocity = o.momentum * state["velocity"] + change
    return velocity, {"v": v, "velocity": velocity}


def _adagrad(o: Optimizer, gradient: Any, state: Any, step: Any, sqrt: Any, maximum: Any) -> Any:
    total = state["sum"] + gradient * gradient
    return _over_root(o, gradient, total, sqrt), {"sum": total}


def _adadelta(o: Optimizer, gradient: Any, state: Any, step: Any, sqrt: Any, maximum: Any) -> Any:
    v = o.rho * state["v"] + (1 - o.rho) * gradient * gradient
    change = sqrt(state["u"] + o.epsilon) / sqrt(v + o.epsilon) * gradient
    return change, {"v": v, "u": o.rho * state["u"] + (1 - o.rho) * change * change}


def _over_root(o: Optimizer, gradient: Any, squares: Any, sqrt: Any) -> Any:
    if o.epsilon_place == "inside":
        return gradient / sqrt(squares + o.epsilon)
    return gradient / (sqrt(squares) + o.epsilon)


_ADAPTIVE = {
    "adam": _adam,
    "adamw": _adam,
    "adamax": _adamax,
    "rmsprop": _rmsprop,
    "adagrad": _adagrad,
    "adadelta": _adadelta,
}
