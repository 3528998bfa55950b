"""What a Resize or an Upsample asks for, in any operator set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
import onnx
from onnx import helper

__all__ = ["Resizing", "resizing_of"]

Array = npt.NDArray[Any]


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
