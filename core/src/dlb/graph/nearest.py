"""Resizing by the nearest element: which elements of each axis it takes (ONNX Resize, Upsample)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy.typing as npt
import onnx

from dlb.graph.resizing import resizing_of
from dlb.workload.resizing import COORDINATES, resized

__all__ = ["nearest_indices"]

Array = npt.NDArray[Any]

#: The nearest of two elements by the coordinate between them.
_ROUNDINGS: dict[str, Callable[[float], int]] = {
    "round_prefer_floor": lambda x: math.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: math.floor(x + 0.5),
    "floor": math.floor,
    "ceil": math.ceil,
}


def nearest_indices(
    node: onnx.NodeProto, opset: int, shape: Sequence[int], constants: Sequence[Array | None]
) -> dict[int, list[int]] | None:
    """The indices that a Resize or Upsample takes along each axis that it changes.

    Args:
        opset: the operator set of the node.
        shape: of what it resizes.
        constants: its other inputs; None for those that are left out.

    Returns:
        None for other modes than ``nearest``, for a crop, for sizes that keep a ratio, and without sizes.
    """
    asked = resizing_of(node, opset, len(shape), constants)
    if asked is None or asked.mode != "nearest":
        return None
    if asked.coordinates not in COORDINATES or asked.rounding not in _ROUNDINGS:
        return None
    indices = {}
    for axis in asked.sizes or asked.scales:
        size = shape[axis]
        if asked.sizes:
            output, scale = asked.sizes[axis], asked.sizes[axis] / size
        else:
            output, scale = resized(size, asked.scales[axis]), asked.scales[axis]
        if output != size or scale != 1:
            places = COORDINATES[asked.coordinates](size, output, scale)
            indices[axis] = [min(max(_ROUNDINGS[asked.rounding](x), 0), size - 1) for x in places]
    return indices
