"""Resizing an axis: where the elements of the result lie, and which elements each is computed from.

The formulas are those of ONNX Resize, https://onnx.ai/onnx/operators/onnx__Resize.html, opset 19.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:  # a description is read without NumPy
    import numpy.typing as npt

__all__ = ["COORDINATES", "Coordinates", "ResizeMode", "Taps", "resized", "taps_of"]

ResizeMode = Literal["linear", "cubic"]
Coordinates = Literal[
    "half_pixel",
    "pytorch_half_pixel",
    "half_pixel_symmetric",
    "align_corners",
    "asymmetric",
]


def resized(size: int, scale: float) -> int:
    """The size of an axis that is multiplied by a scale: rounded down, in float32 as ONNX Runtime does."""
    import numpy as np

    return math.floor(float(np.float32(size) * np.float32(scale)))


@dataclass(frozen=True, eq=False)
class Taps:
    """What each element along a resized axis is computed from.

    Attributes:
        size: of the axis before it.
        indices: int64 [size after it, taps], of the elements that are read.
        weights: float64 in the same shape, by which they are multiplied; they add up to 1.
    """

    size: int
    indices: npt.NDArray[Any]
    weights: npt.NDArray[Any]

    @property
    def matrix(self) -> npt.NDArray[Any]:
        """The weights as a matrix, float64 [size after it, size before it]."""
        import numpy as np

        matrix = np.zeros((len(self.indices), self.size))
        np.add.at(matrix, (np.arange(len(self.indices))[:, None], self.indices), self.weights)
        return matrix


def taps_of(
    size: int,
    output: int,
    scale: float | None = None,
    *,
    mode: str = "linear",
    coordinates: str = "half_pixel",
    cubic_a: float = -0.75,
    exclude_outside: bool = False,
) -> Taps:
    """The taps of an axis.

    Args:
        size, output: of the axis, before and after.
        scale: by which it is multiplied; None for the ratio of the sizes.
        mode: ``linear``, or ``cubic``: the kernel of Keys (1981, 10.1109/TASSP.1981.1163711).
        coordinates: a key of :data:`COORDINATES`.
        cubic_a: the coefficient of the kernel.
        exclude_outside: whether cubic elements outside count nothing, instead of as the nearest one.
    """
    import numpy as np

    scale = output / size if scale is None else scale
    places = np.array(COORDINATES[coordinates](size, output, scale))
    below = np.floor(places)
    after = (places - below)[:, None]
    if mode == "linear":
        offsets, weights = np.arange(2), np.concatenate([1 - after, after], axis=1)
    else:
        offsets = np.arange(-1, 3)
        weights = _cubic(np.abs(after - offsets), cubic_a)
    indices = below.astype(np.int64)[:, None] + offsets
    if exclude_outside and mode == "cubic":
        weights = np.where((indices >= 0) & (indices < size), weights, 0.0)
        weights = weights / weights.sum(axis=1, keepdims=True)
    return Taps(size, np.clip(indices, 0, size - 1), weights)


def _cubic(distance: npt.NDArray[Any], a: float) -> npt.NDArray[Any]:
    """The cubic kernel at distances of at most 2."""
    import numpy as np

    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    found: npt.NDArray[Any] = np.where(distance <= 1, near, far)
    return found


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


#: The place in the input of each place in the output, from both sizes and the scale. The last one is of the
#: nearest element only.
COORDINATES: Mapping[str, Callable[[int, int, float], list[float]]] = {
    "half_pixel": _half_pixel,
    "pytorch_half_pixel": _pytorch_half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "align_corners": _align_corners,
    "asymmetric": _asymmetric,
    "tf_half_pixel_for_nn": _tf_half_pixel,
}
