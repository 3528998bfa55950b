"""The fully connected layer, and the gradients of a linear map."""

from __future__ import annotations

import math

from dlb_graph.layers.base import Gradients, Graph, Layer, Pass, Shape, ShapeMismatch
from dlb_graph.layers.initializers import Initializer
from dlb_graph.layers.numbers import Array

__all__ = ["Linear"]


class Linear(Layer, tag="linear", kw_only=True, frozen=True):
    """Fully connected layer over the last axis, ONNX Gemm (rank 2) or MatMul and Add (rank 3).

    [..., features] to [..., out_features].

    Parameters: ``weight`` [out_features, features], ``bias`` [out_features].

    Attributes:
        tied_to: an earlier embedding [out_features, features] whose ``weight`` this layer shares
            (Press and Wolf, arXiv:1608.05859). The gradient of that weight is the sum of both
            layers' gradients. Empty for a weight of its own.
    """

    out_features: int
    bias: bool = True
    init: Initializer = "glorot_uniform"
    bias_init: Initializer = "zeros"
    tied_to: str = ""

    linear_roles = ("weight", "bias")
    input_roles = ("weight",)
    growing_roles = ("weight",)
    keeps_means = True
    rows_of_channels = True
    reads_input_again = True
    mistakes = "a transposed weight, another order of the flattened inputs, or a missing bias"

    def output_shape(self, inputs: list[Shape]) -> Shape:
        if len(inputs[0]) not in (1, 2):
            raise ShapeMismatch(
                "it needs features last and at most a time axis before them; put a flatten before it"
            )
        return (*inputs[0][:-1], self.out_features)

    def parameters(self, shape: Shape) -> dict[str, Shape]:
        weight = (self.out_features, shape[-1])
        return {"weight": weight} | ({"bias": weight[:1]} if self.bias else {})

    def multiply_adds(self, inputs: list[Shape], output: Shape) -> int:
        """A weight counts once for each step."""
        return math.prod(output[:-1]) * self.out_features * inputs[0][-1]

    def nodes(self, graph: Graph, name: str, inputs: list[str], shapes: list[Shape]) -> None:
        weight, bias = f"{self.tied_to or name}.weight", f"{name}.bias"
        if len(shapes[0]) == 1:
            graph.node("Gemm", [*inputs, weight] + ([bias] if self.bias else []), name, transB=1)
            return
        transposed = graph.node("Transpose", [weight], f"{name}/weight", perm=[1, 0])
        product = f"{name}/product" if self.bias else name
        graph.node("MatMul", [*inputs, transposed], product, name=name)
        if self.bias:
            graph.node("Add", [product, bias], name, name=f"{name}/add")

    def gradients(self, read: Pass, cotangent: Array) -> Gradients:
        of_input, gradients = linear_gradients(read.input, read.parameters["weight"], cotangent)
        if not self.bias:
            del gradients["bias"]
        return (of_input,), gradients


def linear_gradients(x: Array, weight: Array, cotangent: Array) -> tuple[Array, dict[str, Array]]:
    """The gradients of x, and of ``weight`` and ``bias``, in x @ weight.T + bias.

    Args:
        x: [..., features].
        weight: [rows, features].
        cotangent: [..., rows].
    """
    rows = cotangent.reshape(-1, cotangent.shape[-1])
    of_weight = rows.T @ x.reshape(-1, x.shape[-1])
    return (rows @ weight).reshape(x.shape), {"weight": of_weight, "bias": rows.sum(axis=0)}
