"""Layers that move numbers: joined, in other shapes and orders, with padding around them."""

from __future__ import annotations

import math

from dlb_graph.layers.base import Gradients, Graph, Layer, Pass, Shape, ShapeMismatch, check_rank
from dlb_graph.layers.numbers import Array, np

__all__ = ["MOST_AXES", "Concat", "Flatten", "Pad", "Reshape", "Transpose"]

#: Axes of a sample at most.
MOST_AXES = 5


class Concat(Layer, tag="concat", kw_only=True, frozen=True):
    """Inputs joined along ``axis``, ONNX Concat; all other axes must agree."""

    axis: int = 1

    joins = True
    operator = "Concat"
    operator_fields = ("axis",)
    keeps_means = True
    rearranges = True
    mistakes = "the order of the inputs, or the axis"

    def output_shape(self, inputs: list[Shape]) -> Shape:
        axis = self.axis - 1
        if len(inputs) < 2 or len({len(shape) for shape in inputs}) > 1:
            raise ShapeMismatch("it needs two inputs or more, with the same number of axes")
        if not 0 <= axis < len(inputs[0]):
            raise ShapeMismatch(
                f"axis = {self.axis} must be from 1 (the batch is 0) to {len(inputs[0])}"
            )
        if len({shape[:axis] + shape[axis + 1 :] for shape in inputs}) > 1:
            raise ShapeMismatch(f"all axes except {self.axis} must agree")
        return inputs[0][:axis] + (sum(shape[axis] for shape in inputs),) + inputs[0][axis + 1 :]

    def gradients(self, read: Pass, cotangent: Array) -> Gradients:
        ends = np.cumsum([part.shape[self.axis] for part in read.inputs])[:-1]
        return tuple(np.split(cotangent, ends, axis=self.axis)), {}


class Flatten(Layer, tag="flatten", frozen=True):
    """[N, C, H, W] to [N, C * H * W] in that (row-major) order, ONNX Flatten with axis 1."""

    operator = "Flatten"
    operator_attributes = {"axis": 1}
    homogeneous = True
    keeps_means = True
    rearranges = True
    mistakes = "channels last where channels first is meant"

    def output_shape(self, inputs: list[Shape]) -> Shape:
        return (math.prod(inputs[0]),)

    def gradients(self, read: Pass, cotangent: Array) -> Gradients:
        return (cotangent.reshape(read.input.shape),), {}


class Reshape(Layer, tag="reshape", kw_only=True, frozen=True):
    """[N, ...] to [N, *shape] in row-major order, ONNX Reshape."""

    shape: tuple[int, ...]

    homogeneous = True
    keeps_means = True
    rearranges = True
    mistakes = "row-major order, or a transpose that is left out before it"

    def output_shape(self, inputs: list[Shape]) -> Shape:
        if len(self.shape) > MOST_AXES:
            raise ShapeMismatch(f"it can make at most {MOST_AXES} axes besides the batch")
        if math.prod(self.shape) != math.prod(inputs[0]):
            raise ShapeMismatch(
                f"shape = {self.shape} holds {math.prod(self.shape)} numbers, not {math.prod(inputs[0])}"
            )
        return self.shape

    def nodes(self, graph: Graph, name: str, inputs: list[str], shapes: list[Shape]) -> None:
        """A 0 in the shape keeps the batch."""
        shape = graph.initializer(f"{name}/shape", [0, *self.shape])
        graph.node("Reshape", [*inputs, shape], name)

    def gradients(self, read: Pass, cotangent: Array) -> Gradients:
        return (cotangent.reshape(read.input.shape),), {}


class Transpose(Layer, tag="transpose", kw_only=True, frozen=True):
    """Axes in another order, ONNX Transpose with perm [0, *axes].

    ``axes`` lists, for each axis of the output except the batch (axis 0), the axis of the input.
    """

    axes: tuple[int, ...]

    homogeneous = True
    keeps_means = True
    rearranges = True
    mistakes = "the order of the axes, or a reshape in its place"

    def output_shape(self, inputs: list[Shape]) -> Shape:
        rank = len(inputs[0])
        if sorted(self.axes) != list(range(1, rank + 1)):
            raise ShapeMismatch(
                f"axes = {self.axes} must be 1 (the batch is 0) to {rank}, each once"
            )
        return tuple(inputs[0][axis - 1] for axis in self.axes)

    def nodes(self, graph: Graph, name: str, inputs: list[str], shapes: list[Shape]) -> None:
        graph.node("Transpose", inputs, name, perm=[0, *self.axes])

    def gradients(self, read: Pass, cotangent: Array) -> Gradients:
        return (cotangent.transpose(np.argsort((0, *self.axes))),), {}


class Pad(Layer, tag="pad", kw_only=True, frozen=True):
    """Padding of a sample with ``value``, ONNX Pad in constant mode.

    ``pads`` lists the padding before each axis except the batch, then the padding after each
    (ONNX order).
    """

    mistakes = "the side or the axis that is padded, how much, or the number it is padded with"

    pads: tuple[int, ...]
    value: float = 0.0

    rearranges = True

    def output_shape(self, inputs: list[Shape]) -> Shape:
        check_rank(inputs[0], 1, 2, 3)
        rank = len(inputs[0])
        if len(self.pads) != 2 * rank:
            raise ShapeMismatch(
                f"pads = {self.pads} needs {2 * rank} numbers: before each of {rank} axes, then after each"
            )
        return tuple(
            before + size + after
            for size, before, after in zip(inputs[0], self.pads[:rank], self.pads[rank:])
        )

    def nodes(self, graph: Graph, name: str, inputs: list[str], shapes: list[Shape]) -> None:
        rank = len(shapes[0])
        numbers = np.array([0, *self.pads[:rank], 0, *self.pads[rank:]])
        pads = graph.initializer(f"{name}/pads", numbers)
        value = graph.initializer(f"{name}/value", float(self.value))
        graph.node("Pad", [*inputs, pads, value], name, mode="constant")

    def gradients(self, read: Pass, cotangent: Array) -> Gradients:
        sizes = read.input.shape[1:]
        inner = (slice(before, before + size) for before, size in zip(self.pads, sizes))
        return (cotangent[(slice(None),) + tuple(inner)],), {}
