"""The losses of outputs and targets of one shape: of each number, its loss and the slope of that."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dlb_worker.model import Loss

Array = npt.NDArray[Any]


def losses_and_slopes(outputs: Array, targets: Array, loss: Loss) -> tuple[Array, Array]:
    """The loss of each number, and its derivative with respect to the output."""
    errors = outputs - targets
    sizes = np.abs(errors)
    if loss.kind == "binary_cross_entropy":
        losses = np.logaddexp(0, outputs) - outputs * targets
        shares = np.exp(-np.logaddexp(0, -outputs))
        return losses, shares - targets
    if loss.kind == "squared_error":
        return errors**2, 2 * errors
    if loss.kind == "absolute_error":
        return sizes, np.sign(errors)
    near = sizes <= loss.delta
    losses = np.where(near, errors**2 / 2, loss.delta * sizes - loss.delta**2 / 2)
    return losses, np.where(near, errors, loss.delta * np.sign(errors))
