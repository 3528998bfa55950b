"""Functions of two values: sums, products, choices."""

from __future__ import annotations

import math
from typing import Literal

from dlb_graph.layers.base import Gradients, Graph, Layer, Pass, Shape, ShapeMismatch
from dlb_graph.layers.numbers import Array, np

__all__ = ["Add", "Binary", "MatMul", "Mul", "Where"]

#: The largest finite number of float32.
LARGEST_FLOAT32 = 3.4028234663852886e38


class Add(Layer, tag="add", frozen=True):
    """Elementwise sum of two inputs of one shape, ONNX Add (no broadcasting)."""

    mistakes = (
        "an input that is left out or comes twice, or one that is taken before its activation"
    )
    joins = True
    operator = "Add"
    keeps_means = True
    elementwise = True

    def output_shape(self, inputs: list[Shape]) -> Shape:
        if len(inputs) != 2 or inputs[0] != inputs[1]:
            raise ShapeMismatch("it needs two inputs of one shape")
        return inputs[0]

    def gradients(self, read: Pass, cotangent: Array) -> Gradients:
        return (cotangent, cotangent), {}


class Mul(Layer, tag="mul", frozen=True):
    """Elementwise product of two inputs, ONNX Mul.

    The inputs have one shape, or are a map [N, C, H, W] and a number for each channel,
    [N, C, 1, 1], as in squeeze-and-excitation (Hu et al., arXiv:1709.01507). So may [N, C, D, H, W] and
    [N, C, 1, 1, 1] be.
    """

    joins = True
    operator = "Mul"
    elementwise = True
    reads_input_again = True
    keeps_input_apart = True
    mistakes = "a sum in its place, or a number for each channel along another axis"

    def output_shape(self, inputs: list[Shape]) -> Shape:
        gate = (
            len(inputs) == 2
            and len(inputs[0]) in (3, 4)
            and inputs[1] == (inputs[0][0], *(1 for _ in inputs[0][1:]))
        )
        if not gate and (len(inputs) != 2 or inputs[0] != inputs[1]):
            raise ShapeMismatch(
                "it needs two inputs of one shape, or a map [C, H, W] or [C, D, H, W] and after it a number "
                "for each of its channels, [C, 1, 1] or [C, 1, 1, 1]"
            )
        return inputs[0]

    def gradients(self, read: Pass, cotangent: Array) -> Gradients:
        first, second = read.inputs
        of_second = cotangent * first
        if second.shape != first.shape:
            of_second = of_second.sum(axis=tuple(range(2, first.ndim)), keepdims=True)
        return (cotangent * second, of_second), {}


class Binary(Layer, tag="binary", kw_only=True, frozen=True):
    """A function of two values, ONNX Add, Sub, Mul, Div, Max or Min.

    The values have equally many axes. An axis of size 1 is repeated as often as the other value's. Of two
    equal numbers, max and min give each half of the gradient.
    """

    mistakes = "the order of the inputs, or axes that are aligned from the other side"

    function: Literal["add", "sub", "mul", "div", "max", "min"]

    joins = True
    elementwise = True
    reads_input_again = True

    def output_shape(self, inputs: list[Shape]) -> Shape:
        return _repeated_shape(inputs, 2)

    def nodes(self, graph: Graph, name: str, inputs: list[str], shapes: list[Shape]) -> None:
        graph.node(self.function.title(), inputs, name)

    def gradients(self, read: Pass, cotangent: Array) -> Gradients:
        first, second = read.inputs
        if self.function in ("add", "sub"):
            slopes = cotangent, cotangent if self.function == "add" else -cotangent
        elif self.function == "mul":
            slopes = cotangent * second, cotangent * first
        elif self.function in ("max", "min"):
            order = np.sign(first - second) * (1 if self.function == "max" else -1)
            slopes = cotangent * (0.5 + 0.5 * order), cotangent * (0.5 - 0.5 * order)
        else:
            with np.errstate(all="ignore"):
                quotient = cotangent / second
                slopes = quotient, -quotient * (first / second)
        return tuple(map(summed, slopes, (first.shape, second.shape))), {}

    def has_limited_domain(self) -> bool:
        return self.function == "div"


class Where(Layer, tag="where", kw_only=True, frozen=True):
    """Of two values the first where a condition is not 0, else the second, ONNX Where.

    The condition is the first input. The inputs have equally many axes. An axis of size 1 is repeated as
    often as the others'. The condition gets no gradient.

    Attributes:
        first, second: a number instead of that value, which is then no input; one of them at most.
    """

    mistakes = "the condition turned round, or another number for what is hidden"

    first: float | None = None
    second: float | None = None

    joins = True
    constant_numbers = True
    elementwise = True
    reads_input_again = True

    def fault(self) -> str:
        numbers = [number for number in (self.first, self.second) if number is not None]
        if len(numbers) == 2:
            return "first and second are both numbers; leave one out"
        if not all(abs(number) <= LARGEST_FLOAT32 for number in numbers):
            limits = f"from {-LARGEST_FLOAT32} to {LARGEST_FLOAT32}"
            return f"its number must be finite in float32, {limits}"
        return ""

    def output_shape(self, inputs: list[Shape]) -> Shape:
        return _repeated_shape(inputs, 3 if (self.first, self.second) == (None, None) else 2)

    def nodes(self, graph: Graph, name: str, inputs: list[str], shapes: list[Shape]) -> None:
        truth = graph.cast(inputs[0], f"{name}/truth", np.bool_)
        values = inputs[1:]
        for place, number in enumerate((self.first, self.second)):
            if number is not None:
                values.insert(place, graph.initializer(f"{name}/number", number))
        graph.node("Where", [truth, *values], name)

    def gradients(self, read: Pass, cotangent: Array) -> Gradients:
        """The gradients of the inputs; that of the condition is 0."""
        condition, *values = read.inputs
        zero = cotangent.dtype.type(0)
        slopes = []
        if self.first is None:
            slopes.append(np.where(condition, cotangent, zero))
        if self.second is None:
            slopes.append(np.where(condition, zero, cotangent))
        both = (summed(slope, value.shape) for slope, value in zip(slopes, values))
        return (np.zeros_like(condition), *both), {}


class MatMul(Layer, tag="matmul", kw_only=True, frozen=True):
    """The matrix product of two values [N, ..., rows, k] and [N, ..., k, columns], ONNX MatMul."""

    mistakes = "a transpose that is left out, or a scale"
    joins = True
    operator = "MatMul"
    reads_input_again = True

    def output_shape(self, inputs: list[Shape]) -> Shape:
        if len(inputs) != 2 or len(inputs[0]) != len(inputs[1]) or len(inputs[0]) < 2:
            raise ShapeMismatch(
                "it needs two inputs [rows, k] and [k, columns], or with the same axes before both"
            )
        first, second = inputs
        if first[:-2] != second[:-2] or first[-1] != second[-2]:
            raise ShapeMismatch(
                "the last axis of the first must be as long as the one before the last of the second"
            )
        return (*first[:-1], second[-1])

    def multiply_adds(self, inputs: list[Shape], output: Shape) -> int:
        return math.prod(output) * inputs[0][-1]

    def gradients(self, read: Pass, cotangent: Array) -> Gradients:
        first, second = read.inputs
        return (cotangent @ second.swapaxes(-1, -2), first.swapaxes(-1, -2) @ cotangent), {}


def _repeated_shape(inputs: list[Shape], count: int) -> Shape:
    """The shape of values that are repeated along axes of size 1."""
    if len(inputs) != count or len(set(map(len, inputs))) > 1:
        shown = "two" if count == 2 else "three"
        raise ShapeMismatch(
            f"it needs {shown} inputs with equally many axes; put a reshape before one"
        )
    if any(len({*sizes} - {1}) > 1 for sizes in zip(*inputs)):
        raise ShapeMismatch("each axis must have one size, or size 1")
    return tuple(map(max, *inputs))


def summed(gradient: Array, shape: tuple[int, ...]) -> Array:
    """The gradient of a value that was repeated along axes."""
    axes = tuple(k for k, n in enumerate(shape) if n == 1 and gradient.shape[k] != 1)
    return gradient.sum(axis=axes, keepdims=True) if axes else gradient
