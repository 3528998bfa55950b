"""Activations: functions of each number by itself."""

from __future__ import annotations

import math
from typing import Any, Literal

from dlb_graph.layers.base import Gradients, Graph, Layer, Pass, Shape, ShapeMismatch
from dlb_graph.layers.initializers import Fill, Initializer
from dlb_graph.layers.numbers import Array, np
from dlb_graph.layers.special_functions import erf, sigmoid

__all__ = ["GELU", "Activation", "HardSigmoid", "PReLU", "ReLU", "ReLU6", "Sigmoid", "Tanh"]


class Activation(Layer, frozen=True):
    """Base class of functions of each number."""

    elementwise = True

    def slope(self, x: Array) -> Any:
        """The derivative at each number."""
        raise NotImplementedError

    def gradients(self, read: Pass, cotangent: Array) -> Gradients:
        return (cotangent * self.slope(read.input),), {}


class ReLU(Activation, tag="relu", frozen=True):
    """max(x, 0), ONNX Relu. The gradient at 0 is 0."""

    operator = "Relu"
    homogeneous = True
    keeps_means = True
    mistakes = "a slope below zero, or an upper bound"

    def slope(self, x: Array) -> Any:
        return x > 0


class ReLU6(Activation, tag="relu6", frozen=True):
    """min(max(x, 0), 6), ONNX Clip (Howard et al., arXiv:1704.04861). The gradient at 0 is 0."""

    bounded = True
    mistakes = "the upper bound left out, or applied before what it bounds"

    def nodes(self, graph: Graph, name: str, inputs: list[str], shapes: list[Shape]) -> None:
        within = graph.within(name)
        within.end("Clip", *inputs, within.held(0.0), within.held(6.0))

    def slope(self, x: Array) -> Any:
        return (x > 0) & (x < 6)


class Tanh(Activation, tag="tanh", frozen=True):
    """Hyperbolic tangent, ONNX Tanh."""

    mistakes = "another activation, or an approximation of it"
    operator = "Tanh"
    bounded = True

    def slope(self, x: Array) -> Any:
        return 1 - np.tanh(x) ** 2


class Sigmoid(Activation, tag="sigmoid", frozen=True):
    """1 / (1 + exp(-x)), ONNX Sigmoid."""

    mistakes = "a hard sigmoid in its place, or one that the loss applies again"
    operator = "Sigmoid"
    bounded = True

    def slope(self, x: Array) -> Any:
        """In float32 from its value alone, as frameworks do: what it lacks of 1 is rounded."""
        value = sigmoid(x)
        return value * (1 - value) if x.dtype == np.float32 else value * sigmoid(-x)


class HardSigmoid(Activation, tag="hard_sigmoid", frozen=True):
    """min(max(x + 3, 0), 6) / 6, ONNX HardSigmoid with alpha = 1/6 and beta = 0.5 (Howard et al.,
    arXiv:1905.02244, section 5.2). ``alpha`` is exactly 1/6, which float32 cannot represent."""

    operator = "HardSigmoid"
    operator_attributes = {"alpha": 1 / 6, "beta": 0.5}
    bounded = True
    mistakes = "another slope (1/5 for 1/6), or a bound that is left out"

    def slope(self, x: Array) -> Any:
        return ((x > -3) & (x < 3)) * x.dtype.type(1 / 6)


class GELU(Activation, tag="gelu", kw_only=True, frozen=True):
    """x times the normal distribution function of x (Hendrycks and Gimpel, arXiv:1606.08415).

    ``0.5 * x * (1 + erf(x / sqrt(2)))``, or with ``approximate = "tanh"``
    ``0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3)))``: ONNX Gelu, or
    Erf or Tanh in operator sets before 20.
    """

    approximate: Literal["none", "tanh"] = "none"

    reads_input_again = True
    keeps_input_apart = True
    mistakes = "the exact function for the approximation by tanh, or the other way"

    def nodes(self, graph: Graph, name: str, inputs: list[str], shapes: list[Shape]) -> None:
        """x / 2 times (1 + erf or tanh): opset 17 has no Gelu."""
        (x,), within = inputs, graph.within(name)
        add, held = within.add, within.held
        if self.approximate == "none":
            curve = add("Erf", add("Div", x, held(math.sqrt(2))))
        else:
            cube = add("Mul", add("Mul", x, x), x)
            inner = add("Add", x, add("Mul", cube, held(0.044715)))
            curve = add("Tanh", add("Mul", inner, held(math.sqrt(2 / math.pi))))
        raised = add("Add", curve, held(1.0))
        within.end("Mul", add("Mul", x, held(0.5)), raised)

    def slope(self, x: Array) -> Any:
        if self.approximate == "tanh":
            root = math.sqrt(2 / math.pi)
            curve = np.tanh(root * (x + 0.044715 * x * x * x))
            slope = 0.5 * (1 + curve)
            return slope + 0.5 * x * (1 - curve * curve) * root * (1 + 3 * 0.044715 * x * x)
        density = np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
        return (0.5 * (1 + erf(x / math.sqrt(2))) + x * density).astype(x.dtype, copy=False)


class PReLU(Layer, tag="prelu", kw_only=True, frozen=True):
    """x above 0, else slope * x, with trained slopes (He et al., arXiv:1502.01852), ONNX PRelu.

    The gradient at 0 is the slope.

    Parameters: ``slope`` [C] of a map [N, C, H, W] or [N, C, D, H, W], or of features [N, C]; with ``shared``
    [1], of any value.

    Attributes:
        shared: whether all channels have one slope.
        init: the slopes before training.
    """

    shared: bool = False
    init: float = 0.25

    of_channels = True
    constant_numbers = True
    elementwise = True
    reads_input_again = True
    mistakes = "one slope for all where each channel has its own, or slopes along another axis"

    def output_shape(self, inputs: list[Shape]) -> Shape:
        if not self.shared and len(inputs[0]) not in (1, 3, 4):
            raise ShapeMismatch(
                "a slope for each channel is of features or a map; any shape has shared = true"
            )
        return inputs[0]

    def parameters(self, shape: Shape) -> dict[str, Shape]:
        return {"slope": (1,) if self.shared else shape[:1]}

    def initializer(self, role: str) -> Initializer:
        return Fill(value=self.init)

    def nodes(self, graph: Graph, name: str, inputs: list[str], shapes: list[Shape]) -> None:
        """ONNX aligns slopes with the last axis."""
        slope, places = f"{name}.slope", len(shapes[0]) - 1
        if places and not self.shared:
            axes = graph.initializer(f"{name}/axes", np.arange(1, 1 + places))
            slope = graph.node("Unsqueeze", [slope, axes], f"{name}/slope")
        graph.node("PRelu", [*inputs, slope], name)

    def gradients(self, read: Pass, cotangent: Array) -> Gradients:
        x = read.input
        slope = read.parameters["slope"].reshape(-1, *(1,) * (x.ndim - 2))
        below = x <= 0
        of_slope = np.where(below, cotangent * x, x.dtype.type(0))
        others = tuple(axis for axis in range(x.ndim) if axis != 1 or self.shared)
        gradients = {"slope": of_slope.sum(axis=others).reshape(-1)}
        return (np.where(below, cotangent * slope, cotangent),), gradients
