"""Gradients of a linear map of the last axis."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

__all__ = ["linear_gradients"]

Array = npt.NDArray[Any]


def linear_gradients(x: Array, weight: Array, cotangent: Array) -> tuple[Array, dict[str, Array]]:
    """The gradients of x, and of ``weight`` and ``bias``, in x @ weight.T + bias.

    Args:
        x: [..., features].
        weight: [rows, features].
        cotangent: [..., rows].
    """
    rows = cotangent.reshape(-1, cotangent.shape[-1])
    of_weight = rows.T @ x.reshape(-1, x.shape[-1])
    return (rows @ weight).reshape(x.shape), {"weight": of_weight, "bias": rows.sum(axis=0)}
