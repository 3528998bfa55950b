"""Functions along axes: reductions and softmax."""

from __future__ import annotations

from typing import Literal

from dlb_graph.layers.base import Gradients, Graph, Layer, Pass, Shape, ShapeMismatch, check_rank
from dlb_graph.layers.numbers import Array, np

__all__ = ["Reduce", "ReduceMean", "Softmax"]


class Softmax(Layer, tag="softmax", kw_only=True, frozen=True):
    """exp(x) over the sum of exp(x) along an axis, ONNX Softmax; with ``log`` its logarithm, LogSoftmax.

    Attributes:
        axis: 1 or more; the batch is 0.
    """

    axis: int
    log: bool = False

    mistakes = "the axis"

    def output_shape(self, inputs: list[Shape]) -> Shape:
        check_axes("axis", self.axis, (self.axis,), inputs[0])
        return inputs[0]

    def nodes(self, graph: Graph, name: str, inputs: list[str], shapes: list[Shape]) -> None:
        graph.node("LogSoftmax" if self.log else "Softmax", inputs, name, axis=self.axis)

    def gradients(self, read: Pass, cotangent: Array) -> Gradients:
        x = read.input
        shares = np.exp(x - x.max(axis=self.axis, keepdims=True))
        shares = shares / shares.sum(axis=self.axis, keepdims=True)
        if self.log:
            total = cotangent.sum(axis=self.axis, keepdims=True)
            return (cotangent - shares * total,), {}
        mean = (cotangent * shares).sum(axis=self.axis, keepdims=True)
        return (shares * (cotangent - mean),), {}


class Reduce(Layer, tag="reduce", kw_only=True, frozen=True):
    """One number of all along some axes, ONNX ReduceMean, ReduceSum, ReduceMax or ReduceMin.

    Of several largest or smallest numbers, each gets an equal share of the gradient.

    Attributes:
        axes: 1 or more; the batch is 0.
        keepdims: whether they stay, with size 1.
    """

    mistakes = "another reduction, or the axis"

    function: Literal["mean", "sum", "max", "min"]
    axes: tuple[int, ...]
    keepdims: bool = False

    def output_shape(self, inputs: list[Shape]) -> Shape:
        check_axes("axes", self.axes, self.axes, inputs[0])
        if len(self.axes) == len(inputs[0]) and not self.keepdims:
            raise ShapeMismatch("no axis would be left; set keepdims")
        places = ((n, axis in self.axes) for axis, n in enumerate(inputs[0], 1))
        return tuple(1 if gone else n for n, gone in places if self.keepdims or not gone)

    def nodes(self, graph: Graph, name: str, inputs: list[str], shapes: list[Shape]) -> None:
        """Opset 17 has the axes of a sum as an input, and of the others as an attribute."""
        operator, keepdims = f"Reduce{self.function.title()}", int(self.keepdims)
        if self.function == "sum":
            axes = graph.initializer(f"{name}/axes", self.axes)
            graph.node(operator, [*inputs, axes], name, keepdims=keepdims)
        else:
            graph.node(operator, inputs, name, axes=list(self.axes), keepdims=keepdims)

    def gradients(self, read: Pass, cotangent: Array) -> Gradients:
        """Equal shares for all of the largest or smallest numbers."""
        x = read.input
        if not self.keepdims:
            cotangent = np.expand_dims(cotangent, self.axes)
        if self.function in ("max", "min"):
            reached = getattr(x, self.function)(axis=self.axes, keepdims=True)
            chosen = (x == reached).astype(x.dtype)
            counts = chosen.sum(axis=self.axes, keepdims=True)
            return (cotangent * chosen / counts,), {}
        count = np.prod([x.shape[axis] for axis in self.axes]) if self.function == "mean" else 1
        return (np.broadcast_to(cotangent / x.dtype.type(count), x.shape),), {}


class ReduceMean(Layer, tag="reduce_mean", kw_only=True, frozen=True):
    """Mean of a sequence [N, T, features] over ``axis``, which is removed; ONNX ReduceMean.

    Axis 1 is time, axis 2 features.
    """

    axis: int = 1

    homogeneous = True
    keeps_means = True
    mistakes = "a sum for the mean, or the axis"

    def output_shape(self, inputs: list[Shape]) -> Shape:
        return (inputs[0][2 - axis_of_sequence(self.axis, inputs[0])],)

    def nodes(self, graph: Graph, name: str, inputs: list[str], shapes: list[Shape]) -> None:
        graph.node("ReduceMean", inputs, name, axes=[self.axis], keepdims=0)

    def gradients(self, read: Pass, cotangent: Array) -> Gradients:
        spread = np.expand_dims(
            cotangent / cotangent.dtype.type(read.input.shape[self.axis]), self.axis
        )
        return (np.broadcast_to(spread, read.input.shape),), {}


def check_axes(name: str, value: object, axes: tuple[int, ...], shape: Shape) -> None:
    """Check that axes are axes of a sample, each once.

    Args:
        name, value: of the attribute, for the message.

    Raises:
        ShapeMismatch: they are not.
    """
    if len(set(axes)) != len(axes) or not all(1 <= axis <= len(shape) for axis in axes):
        raise ShapeMismatch(f"{name} = {value} must be from 1 (the batch is 0) to {len(shape)}")


def axis_of_sequence(axis: int, shape: Shape) -> int:
    """The axis of a sequence [T, features], counted with the batch.

    Raises:
        ShapeMismatch: it is no sequence, or has no such axis.
    """
    check_rank(shape, 2)
    if axis not in (1, 2):
        raise ShapeMismatch(f"axis = {axis} must be 1 (the batch is 0) or 2")
    return axis
