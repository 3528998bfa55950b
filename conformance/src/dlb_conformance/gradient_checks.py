"""Gradients against the core's backward pass, and slopes along random directions against differences."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dlb_graph import workload as W
from dlb_worker.contract import Gradients

from . import truth
from .subject import PLAIN_LOSS, Arrays

#: How far a gradient, or a slope, may be from the true one, in units of its gradient's norm (or of a
#: hundredth of that of all gradients, where its own is next to nothing, as that of a bias before a batch
#: norm). In float64 the rounding is some 1e-14; one rounding to float32 anywhere leaves 3e-8. In float32 a
#: ReLU or a maximum next to a tie takes the other side, besides the rounding.
_ALLOWED = {"float64": 1e-9, "float32": 1e-4}
#: Differences that are further off than this prove nothing. Losses are of order 1.
_UNCERTAINTY = {"float64": 2e-8, "float32": 1e-5}


def assert_gradients(
    found: Gradients,
    model: W.Model,
    weights: Arrays,
    inputs: np.ndarray,
    labels: np.ndarray,
    dtype: str = "float64",
    masks: Arrays | None = None,
    by: W.Loss | None = None,
) -> None:
    """Every element of each gradient is that of the backward pass in float64."""
    true = truth.gradients(model, weights, inputs, labels, masks or {}, by or PLAIN_LOSS)
    total = _norm_of_all(true)
    for name, gradient in by_name(found, model).items():
        assert gradient.shape == true[name].shape, f"gradient of {name} is {gradient.shape}"
        apart = float(np.linalg.norm(gradient.astype(np.float64) - true[name]))
        allowed = _ALLOWED[dtype] * max(float(np.linalg.norm(true[name])), total / 100)
        assert apart <= allowed, (
            f"gradient of {name} is {apart:.2g} from the truth; {allowed:.1g} is allowed"
        )


def assert_slopes(
    gradients: Mapping[str, np.ndarray],
    model: W.Model,
    weights: Arrays,
    inputs: np.ndarray,
    labels: np.ndarray,
    dtype: str = "float64",
    by: W.Loss | None = None,
) -> None:
    """Each gradient, dotted with a random direction, is the slope of the loss along it.

    A direction is drawn from the normal distribution for each tensor by itself, so that an error
    anywhere in it shows, and by as much as its own size.
    """
    random = np.random.default_rng(2)
    loss = truth.Loss(model, weights, inputs, labels, by=by or PLAIN_LOSS)
    total = _norm_of_all(gradients)
    # Directions are the same whatever order an adapter names its gradients in: some cross a ReLU's kink.
    for name in sorted(gradients, key=[*weights, model.input.name].index):
        gradient = gradients[name]
        direction = random.standard_normal(gradient.shape)
        slope = loss.along({name: direction})
        assert slope.uncertainty <= _UNCERTAINTY[dtype], f"no slope along {name}: {slope}"
        own = float(np.sum(gradient.astype(np.float64) * direction))
        norm = max(float(np.linalg.norm(gradient)), total / 100)
        allowed = _ALLOWED[dtype] * norm + 4 * slope.uncertainty
        assert abs(own - slope.value) <= allowed, (
            f"gradient of {name} gives a slope of {own!r}, and the loss has {slope.value!r} "
            f"(within {slope.uncertainty:.1g}); {allowed:.1g} apart is allowed"
        )


def by_name(found: Gradients, model: W.Model) -> dict[str, np.ndarray]:
    """Gradients of parameters, and of the input where it has one."""
    named = dict(found.parameters)
    return named if found.inputs is None else {**named, model.input.name: found.inputs}


def _norm_of_all(gradients: Mapping[str, np.ndarray]) -> float:
    return float(np.sqrt(sum(float(np.linalg.norm(each)) ** 2 for each in gradients.values())))
