"""What a Resize or an Upsample asks for, and what each element along an axis is computed from.

The nearest element is taken by its index; interpolation weighs several (ONNX Resize, Upsample).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
from onnx import helper

from dlb_graph.layers import Resize
from dlb_graph.layers.decimals import decimal
from dlb_graph.layers.numbers import Array
from dlb_graph.layers.resize import COORDINATES, resized

__all__ = ["Resizing", "interpolation_of", "nearest_indices", "resizing_of"]


@dataclass(frozen=True)
class Resizing:
    """The attributes of a Resize or Upsample, with defaults.

    Attributes:
        mode, coordinates, rounding: as they are named in ONNX.
        cubic_a: the coefficient of the cubic kernel.
        exclude_outside: whether elements outside count nothing.
        antialias: whether the kernel is widened where an axis shrinks.
        sizes: by axis, where sizes are given.
        scales: by axis, where scales are given; as they are written, in float32.
    """

    mode: str
    coordinates: str
    rounding: str
    cubic_a: float
    exclude_outside: bool
    antialias: bool
    sizes: Mapping[int, int]
    scales: Mapping[int, float]


def resizing_of(
    node: onnx.NodeProto, opset: int, rank: int, constants: Sequence[Array | None]
) -> Resizing | None:
    """What a Resize or Upsample asks for.

    Args:
        opset: the operator set of the node.
        rank: the number of axes of what it resizes.
        constants: its other inputs; None for those that are left out.

    Returns:
        None for sizes that keep a ratio, and without sizes.
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
    numbers = [None if array is None or not array.size else array.ravel() for array in constants]
    scales = attributes.get("scales", next(iter(numbers), None)) if first else None
    sizes = None
    if not first:
        scales, sizes = (numbers[k] if k < len(numbers) else None for k in (1, 2))
    axes = [axis % rank for axis in attributes.get("axes", range(rank))]
    given = scales if sizes is None else sizes
    if given is None or len(given) != len(axes) or policy != "stretch":
        return None
    return Resizing(
        # Operator sets before 9 call it so.
        mode="linear" if mode == "bilinear" else mode,
        coordinates=coordinates,
        rounding=rounding,
        cubic_a=attributes.get("cubic_coeff_a", -0.75),
        exclude_outside=bool(attributes.get("exclude_outside", 0)),
        antialias=bool(attributes.get("antialias", 0)),
        sizes={} if sizes is None else {axis: int(size) for axis, size in zip(axes, sizes)},
        scales={} if sizes is not None else dict(zip(axes, map(float, given))),
    )


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
        shape: of what it resizes; the others as of :func:`resizing_of`.

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


def interpolation_of(
    node: onnx.NodeProto, opset: int, shape: Sequence[int], constants: Sequence[Array | None]
) -> Resize | None:
    """The resize of all axes of a value, the batch included, that a Resize or Upsample is.

    Args:
        shape: of what it resizes; the others as of :func:`resizing_of`.

    Returns:
        the layer, whose scales are the decimals that float32 rounds to those of the node. None for other
        modes than ``linear`` and ``cubic``, with antialiasing, for a crop, for sizes that keep a ratio, and
        without sizes.
    """
    asked = resizing_of(node, opset, len(shape), constants)
    if asked is None or asked.mode not in ("linear", "cubic") or asked.antialias:
        return None
    if asked.coordinates not in COORDINATES or asked.coordinates == "tf_half_pixel_for_nn":
        return None
    sizes, scales = _sizes_and_scales(asked, shape)
    coordinates = asked.coordinates
    if coordinates == "half_pixel_symmetric" and not scales:  # nothing was rounded down
        coordinates = "half_pixel"
    cubic: dict[str, Any] = {}
    if asked.mode == "cubic":
        a = decimal(asked.cubic_a)
        cubic = {"cubic_a": a, "exclude_outside": asked.exclude_outside}
    return Resize(
        sizes=sizes,
        mode=asked.mode,  # type: ignore[arg-type]
        coordinates=coordinates,  # type: ignore[arg-type]
        scales=scales,
        **cubic,
    )


def _sizes_and_scales(
    asked: Resizing, shape: Sequence[int]
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """The size of each axis, and the scales where they are not the ratios of the sizes."""
    if asked.sizes:
        return tuple(asked.sizes.get(axis, size) for axis, size in enumerate(shape)), ()
    scales = tuple(decimal(asked.scales.get(axis, 1.0)) for axis in range(len(shape)))
    sizes = tuple(map(resized, shape, scales))
    ratios = (output / max(size, 1) for size, output in zip(shape, sizes))
    exact = asked.coordinates == "align_corners" or scales == tuple(ratios)
    return sizes, () if exact else scales
