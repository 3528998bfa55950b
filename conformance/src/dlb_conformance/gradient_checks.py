"""Gradients against derivatives of the canonical loss, along random directions."""

from __future__ import annotations

import numpy as np

from dlb import workload as W
from dlb_worker.contract import Gradients

from . import truth
from .subject import PLAIN_LOSS, Arrays

#: How far a slope may be from the true one, in units of its gradient's norm (or of a hundredth of
#: that of all gradients, where its own is next to nothing, as that of a bias before a batch norm),
#: beside what the differences themselves may be off by. In float64 the rounding is some 1e-14; one rounding to
#: float32 anywhere leaves 3e-8. In float32 a ReLU or a maximum next to a tie takes the other
#: side, besides the rounding.
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
    seed: int = 2,
    masks: Arrays | None = None,
    by: W.Loss | None = None,
) -> None:
    """Each gradient, dotted with a random direction, is the slope of the loss along it.

    A direction is drawn from the normal distribution for each tensor by itself, so that an error
    anywhere in it shows, and by as much as its own size.
    """
    random = np.random.default_rng(seed)
    loss = truth.Loss(model, weights, inputs, labels, masks or {}, by or PLAIN_LOSS)
    gradients = dict(found.parameters)
    if found.inputs is not None:
        gradients[model.input.name] = found.inputs
    total = np.sqrt(sum(float(np.linalg.norm(each)) ** 2 for each in gradients.values()))
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
