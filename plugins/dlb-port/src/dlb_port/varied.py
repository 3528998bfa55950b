"""Weights at which a difference shows, in place of those that a factory leaves at one value.

Biases of zero, scales of one and running statistics that no step has moved hide much: a bias in another place,
scale and bias left out, means and variances exchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb_worker.contract import ParameterDescription

__all__ = ["varied"]

Array = npt.NDArray[Any]
#: Standard deviation of what is added to zero, and of the share that is added to other values.
_SPREAD = 0.1
#: Logarithm of the largest factor of a variance.
_LOG_FACTOR = 1.0
#: A parameter of at most this many different values was set, not drawn.
_FEW_VALUES = 2


def varied(
    weights: Mapping[str, Array], parameters: Mapping[str, ParameterDescription], seed: int
) -> dict[str, Array]:
    """Weights of a model, with seeded noise in parameters that hold one or two values only.

    States whose meaning is not known are left as they are, since any other value may be wrong.

    Args:
        weights: by parameter.
        parameters: the model's parameters by name.
    """
    generator = np.random.default_rng(seed)
    return {
        name: _vary(array, parameters[name], generator)
        if name in parameters
        and (parameters[name].trained or parameters[name].role)
        and np.unique(array).size <= min(_FEW_VALUES, array.size - 1)
        else array
        for name, array in weights.items()
    }


def _vary(array: Array, parameter: ParameterDescription, generator: np.random.Generator) -> Array:
    if parameter.role == "variance":
        factors = np.exp(generator.uniform(-_LOG_FACTOR, _LOG_FACTOR, array.shape))
        return np.asarray(array * factors, array.dtype)
    noise = _SPREAD * generator.standard_normal(array.shape)
    return np.asarray(np.where(array == 0, noise, array * (1 + noise)), array.dtype)
