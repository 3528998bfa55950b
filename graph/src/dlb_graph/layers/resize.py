"""Resizing by interpolation: the layer, where the elements of its result lie, and what each is computed from.

The formulas are those of ONNX Resize, https://onnx.ai/onnx/operators/onnx__Resize.html, opset 19.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dlb_graph.layers.base import Gradients, Graph, Layer, Pass, Shape, ShapeMismatch
from dlb_graph.layers.numbers import Array, np

__all__ = ["Resize"]

ResizeMode = Literal["linear", "cubic"]
Coordinates = Literal[
    "half_pixel", "pytorch_half_pixel", "half_pixel_symmetric", "align_corners", "asymmetric"
]


def resized(size: int, scale: float) -> int:
    """The size of an axis that is multiplied by a scale: rounded down, in float32 as ONNX Runtime does."""
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
    indices: Array
    weights: Array

    @property
    def matrix(self) -> Array:
        """The weights as a matrix, float64 [size after it, size before it]."""
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


def along(x: Array, axis: int, matrix: Array) -> Array:
    """A matrix [size after, size before] times the numbers along an axis, in the type of the numbers."""
    product: Array = np.tensordot(x, matrix.astype(x.dtype), (axis, 1))
    return np.moveaxis(product, -1, axis)


def _cubic(distance: Array, a: float) -> Array:
    """The cubic kernel at distances of at most 2."""
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    found: Array = np.where(distance <= 1, near, far)
    return found


def _half_pixel(size: int, output: int, scale: float) -> list[float]:
    return [(place + 0.5) / scale - 0.5 for place in range(output)]


#: The place in the input of each place in the output, from both sizes and the scale. The last one is of the
#: nearest element only.
COORDINATES: Mapping[str, Callable[[int, int, float], list[float]]] = {
    "half_pixel": _half_pixel,
    "pytorch_half_pixel": lambda size, output, scale: (
        _half_pixel(size, output, scale) if output > 1 else [0.0]
    ),
    "half_pixel_symmetric": lambda size, output, scale: [
        size / 2 * (1 - output / (scale * size)) + place
        for place in _half_pixel(size, output, scale)
    ],
    "align_corners": lambda size, output, scale: [
        place * (size - 1) / max(1, output - 1) for place in range(output)
    ],
    "asymmetric": lambda size, output, scale: [place / scale for place in range(output)],
    "tf_half_pixel_for_nn": lambda size, output, scale: [
        (place + 0.5) / scale for place in range(output)
    ],
}


class Resize(Layer, tag="resize", kw_only=True, frozen=True):
    """Every axis of a sample resized by interpolation, ONNX Resize in the modes linear and cubic.

    Each axis is resized by itself: an element of the result is a weighted sum of two (linear) or four
    (cubic, Keys 1981) elements along the axis. An element before the first counts as the first, and one
    after the last as the last. :func:`dlb_graph.layers.resize.taps_of` has the formulas.

    Attributes:
        sizes: of every axis of a sample after it.
        mode: of the interpolation.
        coordinates: where an element of the result lies among those that it reads.
        cubic_a: the coefficient of the cubic kernel.
        exclude_outside: cubic elements outside count nothing instead, and the weights of the others
            are divided by their sum.
        scales: by which every axis was multiplied, where that is not its size after over that before;
            the sizes are rounded down. Empty for none.
    """

    mistakes = (
        "how coordinates are mapped (corners, half pixels), the rounding of the nearest place, or what lies "
        "beyond the border"
    )

    sizes: tuple[int, ...]
    mode: ResizeMode = "linear"
    coordinates: Coordinates = "half_pixel"
    cubic_a: float = -0.75
    exclude_outside: bool = False
    scales: tuple[float, ...] = ()

    homogeneous = True
    keeps_means = True

    def fault(self) -> str:
        if not self.sizes or min(self.sizes) < 1:
            return (
                f"sizes = {list(self.sizes)} needs a size of at least 1 for each axis of a sample"
            )
        if self.scales and len(self.scales) != len(self.sizes):
            return f"scales = {list(self.scales)} needs a number for each of {len(self.sizes)} axes, or none"
        if not all(math.isfinite(scale) and scale > 0 for scale in self.scales):
            return f"scales = {list(self.scales)} must be finite and above 0"
        if self.exclude_outside and self.mode == "linear":
            return "exclude_outside is of mode 'cubic'"
        return ""

    def output_shape(self, inputs: list[Shape]) -> Shape:
        (shape,) = inputs
        if len(self.sizes) != len(shape):
            raise ShapeMismatch(
                f"sizes = {list(self.sizes)} needs {len(shape)} sizes, one for each axis of a sample"
            )
        scaled = tuple(map(resized, shape, self.scales))
        if self.scales and scaled != self.sizes:
            raise ShapeMismatch(
                f"scales = {list(self.scales)} makes sizes {list(scaled)}, not {list(self.sizes)}"
            )
        if self.sizes == shape and set(self.scales) <= {1}:
            raise ShapeMismatch("it has these sizes already; leave the layer out")
        return self.sizes

    def taps(self, shape: Shape) -> list[tuple[int, Taps]]:
        """The axes that it changes, with their taps; first those that shrink most, which takes least work.

        Args:
            shape: of a sample before it.
        """
        scales = self.scales or (None,) * len(shape)
        changed = [
            (axis, size, output, scale)
            for axis, (size, output, scale) in enumerate(zip(shape, self.sizes, scales), start=1)
            if size != output or scale not in (None, 1)
        ]
        return [
            (
                axis,
                taps_of(
                    size,
                    output,
                    scale,
                    mode=self.mode,
                    coordinates=self.coordinates,
                    cubic_a=self.cubic_a,
                    exclude_outside=self.exclude_outside,
                ),
            )
            for axis, size, output, scale in sorted(
                changed, key=lambda each: (each[2] / each[1], each[1])
            )
        ]

    def attributes(self, shape: Shape) -> dict[str, Any]:
        listed = ((axis, of.indices.tolist(), of.weights.tolist()) for axis, of in self.taps(shape))
        return {"mode": self.mode, "sizes": self.sizes, "taps": tuple(map(_tuples, listed))}

    def nodes(self, graph: Graph, name: str, inputs: list[str], shapes: list[Shape]) -> None:
        """Sizes include the batch's, which is read from the value."""
        attributes: dict[str, Any] = {
            "mode": self.mode,
            "coordinate_transformation_mode": self.coordinates,
        }
        if self.mode == "cubic":
            attributes |= {
                "cubic_coeff_a": self.cubic_a,
                "exclude_outside": int(self.exclude_outside),
            }
        if self.scales:
            # Scales are float32 in a graph of any type.
            graph.initializers[f"{name}/scales"] = np.array([1, *self.scales], np.float32)
            graph.node("Resize", [*inputs, "", f"{name}/scales"], name, **attributes)
            return
        within = graph.within(name)
        shape = within.add("Shape", *inputs)
        batch = within.add("Gather", shape, within.held([0]), axis=0)
        whole = within.add("Concat", batch, within.held(self.sizes), axis=0)
        within.end("Resize", *inputs, "", "", whole, **attributes)

    def gradients(self, read: Pass, cotangent: Array) -> Gradients:
        """What was spread over an axis is collected, the last axis first."""
        for axis, of in reversed(self.taps(read.input.shape[1:])):
            cotangent = along(cotangent, axis, of.matrix.T)
        return (cotangent,), {}


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, (list, tuple)) else value
