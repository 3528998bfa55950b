"""Resizing by interpolation: what each element along an axis is computed from (ONNX Resize, Upsample)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from dlb.graph.decimals import decimal
from dlb.graph.resizing import Resizing, resizing_of
from dlb.workload.layers import Resize
from dlb.workload.lower import resize_taps
from dlb.workload.resizing import COORDINATES, Taps, resized

__all__ = ["along", "interpolated_axes", "interpolation_of"]

Array = npt.NDArray[Any]


def interpolation_of(
    node: onnx.NodeProto, opset: int, shape: Sequence[int], constants: Sequence[Array | None]
) -> Resize | None:
    """The resize of all axes of a value, the batch included, that a Resize or Upsample is.

    Args:
        opset: the operator set of the node.
        shape: of what it resizes.
        constants: its other inputs; None for those that are left out.

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


def interpolated_axes(layer: Resize, shape: Sequence[int]) -> list[tuple[int, Taps]]:
    """The taps of each axis that a resize of all axes changes, the batch included; 0 is the first axis."""
    return [(axis - 1, of) for axis, of in resize_taps(layer, tuple(shape))]


def along(x: Array, axis: int, matrix: Array) -> Array:
    """A matrix [size after, size before] times the numbers along an axis, in the type of the numbers."""
    product: Array = np.tensordot(x, matrix.astype(x.dtype), (axis, 1))
    return np.moveaxis(product, -1, axis)
