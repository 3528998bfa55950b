"""Resizing by the nearest element: which elements of each axis it takes (ONNX Resize, Upsample)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy.typing as npt
import onnx
from onnx import helper

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
    attributes = {
        attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute
    }
    # Before operator set 11, and in Upsample, places are divided by the scale and rounded down.
    first = opset < 11 or node.op_type == "Upsample"
    words = {
        "mode": b"nearest",
        "coordinate_transformation_mode": b"asymmetric" if first else b"half_pixel",
        "nearest_mode": b"floor" if first else b"round_prefer_floor",
        "keep_aspect_ratio_policy": b"stretch",
    }
    mode, coordinates, rounding, policy = (
        attributes.get(name, default).decode() for name, default in words.items()
    )
    if (mode, policy) != ("nearest", "stretch"):
        return None
    if coordinates not in _COORDINATES or rounding not in _ROUNDINGS:
        return None
    numbers = [None if array is None or not array.size else array.ravel() for array in constants]
    scales = attributes.get("scales", next(iter(numbers), None)) if first else None
    sizes = None
    if not first:
        scales, sizes = (numbers[k] if k < len(numbers) else None for k in (1, 2))
    axes = [axis % len(shape) for axis in attributes.get("axes", range(len(shape)))]
    given = scales if sizes is None else sizes
    if given is None or len(given) != len(axes):
        return None
    indices = {}
    for axis, number in zip(axes, given):
        size = shape[axis]
        output = math.floor(size * float(number)) if sizes is None else int(number)
        scale = float(number) if sizes is None else output / size
        if output != size or scale != 1:
            places = _COORDINATES[coordinates](size, output, scale)
            indices[axis] = [min(max(_ROUNDINGS[rounding](x), 0), size - 1) for x in places]
    return indices


def _half_pixel(size: int, output: int, scale: float) -> list[float]:
    return [(place + 0.5) / scale - 0.5 for place in range(output)]


def _pytorch_half_pixel(size: int, output: int, scale: float) -> list[float]:
    return _half_pixel(size, output, scale) if output > 1 else [0.0]


def _half_pixel_symmetric(size: int, output: int, scale: float) -> list[float]:
    offset = size / 2 * (1 - output / (scale * size))
    return [offset + place for place in _half_pixel(size, output, scale)]


def _align_corners(size: int, output: int, scale: float) -> list[float]:
    return [place * (size - 1) / max(1, output - 1) for place in range(output)]


def _asymmetric(size: int, output: int, scale: float) -> list[float]:
    return [place / scale for place in range(output)]


def _tf_half_pixel(size: int, output: int, scale: float) -> list[float]:
    return [(place + 0.5) / scale for place in range(output)]


#: The place in the input of each place in the output, from both sizes and the scale.
_COORDINATES: dict[str, Callable[[int, int, float], list[float]]] = {
    "half_pixel": _half_pixel,
    "pytorch_half_pixel": _pytorch_half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "align_corners": _align_corners,
    "asymmetric": _asymmetric,
    "tf_half_pixel_for_nn": _tf_half_pixel,
}
