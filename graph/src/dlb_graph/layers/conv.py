"""Convolutions."""

from __future__ import annotations

import math
from typing import Any

from dlb_graph.layers.base import Gradients, Pass, Shape, ShapeMismatch, check_rank
from dlb_graph.layers.initializers import Initializer
from dlb_graph.layers.numbers import Array, np
from dlb_graph.layers.transposed import places_of, spread_gradients
from dlb_graph.layers.windowed import EACH, Pads, Sizes, Windowed, scatter
from dlb_graph.layers.windows import column_parts, window_sizes

__all__ = ["Conv", "ConvTranspose"]


class _Filters(Windowed, kw_only=True, frozen=True):
    """What a convolution and a transposed one have in common."""

    out_channels: int
    kernel: Sizes
    stride: Sizes = ()
    pads: Pads = ()
    dilation: Sizes = ()
    groups: int = 1
    bias: bool = True
    init: Initializer = "glorot_uniform"
    bias_init: Initializer = "zeros"

    linear_roles = ("weight", "bias")
    input_roles = ("weight",)
    growing_roles = ("weight",)
    reads_input_again = True

    def output_shape(self, inputs: list[Shape]) -> Shape:
        check_rank(inputs[0], 1 + len(self.kernel))
        channels, *size = inputs[0]
        if channels % self.groups or self.out_channels % self.groups:
            raise ShapeMismatch(
                f"groups = {self.groups} must divide {channels} input and {self.out_channels} output channels"
            )
        return (self.out_channels, *self.output_size(tuple(size)))

    def output_size(self, size: Shape) -> Shape:
        """The size of the output along each axis of the windows."""
        raise NotImplementedError


class Conv(_Filters, tag="conv", kw_only=True, frozen=True):
    """Convolution over two or three axes, ONNX Conv.

    [N, C, H, W] to [N, out_channels, H', W'] with
    H' = floor((H + top + bottom - dilation * (kernel - 1) - 1) / stride) + 1. With three numbers in ``kernel``
    [N, C, D, H, W] to [N, out_channels, D', H', W'].

    Parameters: ``weight`` [out_channels, C / groups, kH, kW] or [out_channels, C / groups, kD, kH, kW],
    ``bias`` [out_channels].

    Attributes:
        out_channels: number of filters.
        kernel: height and width of a filter, or depth, height and width.
        stride: step along each axis; 1 if left out.
        pads: zeros added before each axis, then after each (ONNX order): top, left, bottom, right; none if
            left out.
        dilation: spacing of the filter's taps along each axis; 1 if left out.
        groups: number of groups that channels are divided into.
        bias: whether a bias is added.
        init, bias_init: how ``weight`` and ``bias`` are initialised.
    """

    operator = "Conv"
    keeps_means = True
    rows_of_channels = True
    mistakes = (
        "pads (or their side), stride, dilation, groups, the weight's layout, or a missing bias"
    )

    def output_size(self, size: Shape) -> Shape:
        return window_sizes(size, self.kernel, self.stride, self.pads, self.dilation)

    def parameters(self, shape: Shape) -> dict[str, Shape]:
        weight = (self.out_channels, shape[0] // self.groups, *self.kernel)
        return {"weight": weight} | ({"bias": weight[:1]} if self.bias else {})

    def multiply_adds(self, inputs: list[Shape], output: Shape) -> int:
        """A weight counts once for each place of the output."""
        return math.prod(output[1:]) * math.prod(self.parameters(inputs[0])["weight"])

    def gradients(self, read: Pass, cotangent: Array) -> Gradients:
        x, weight = read.input, read.parameters["weight"]
        window = self.window(x)
        groups, filters, depth = self.groups, len(weight) // self.groups, weight.shape[1]
        matrix = weight.reshape(groups, filters, -1)
        of_matrix, of_x = np.zeros_like(matrix), np.empty_like(x)
        for part, columns in column_parts(x, window, groups):
            rows = cotangent[part].swapaxes(0, 1).reshape(groups, filters, -1)
            of_matrix += rows @ columns.swapaxes(1, 2)
            of_columns = (matrix.swapaxes(1, 2) @ rows).reshape(
                groups * depth, *window.kernel, len(x[part]), *window.output
            )

            def at(offset: tuple[int, ...], of_columns: Array = of_columns) -> Array:
                part: Array = of_columns[EACH[:1] + offset].swapaxes(0, 1)
                return part

            of_x[part] = scatter(x[part], window, at)
        bias = {"bias": cotangent.sum(axis=(0, *range(2, x.ndim)))} if self.bias else {}
        return (of_x,), {"weight": of_matrix.reshape(weight.shape), **bias}


class ConvTranspose(_Filters, tag="conv_transpose", kw_only=True, frozen=True):
    """Transposed convolution over two or three axes, ONNX ConvTranspose.

    [N, C, H, W] to [N, out_channels, H', W'] with
    H' = (H - 1) * stride + dilation * (kernel - 1) + 1 + output_padding - top - bottom. With three numbers in
    ``kernel`` [N, C, D, H, W] to [N, out_channels, D', H', W'].
    It is the gradient of a convolution by its input: each element is added, times the filter, to the
    places that the filter covers (Dumoulin and Visin, arXiv:1603.07285, section 4).

    Parameters: ``weight`` [C, out_channels / groups, kH, kW] or [C, out_channels / groups, kD, kH, kW],
    ``bias`` [out_channels].

    Attributes:
        out_channels: channels of the output.
        kernel: height and width of a filter, or depth, height and width.
        stride: distance of the places of neighbouring elements along each axis; 1 if left out.
        pads: rows and columns left out before each axis, then after each (ONNX order): top, left, bottom,
            right; none if left out.
        output_padding: what is added at the end of each axis: rows at the bottom and columns at the right;
            below the stride.
        dilation: spacing of the filter's taps along each axis; 1 if left out.
        groups: number of groups that channels are divided into.
        bias: whether a bias is added.
        init, bias_init: how ``weight`` and ``bias`` are initialised.
    """

    output_padding: Sizes = ()

    operator = "ConvTranspose"
    mistakes = (
        "pads (or their side), output padding, stride, groups, the weight's layout "
        "(a convolution's turned), or a missing bias"
    )
    empty_reason = "the pads leave out all that there is"

    def field_fault(self, name: str, value: Any) -> str:
        if name != "output_padding":
            return super().field_fault(name, value)
        if any(not 0 <= more < step for more, step in zip(value, self.stride)):
            return f"output_padding = {value} must be at least 0 and below stride = {self.stride}"
        return ""

    def output_size(self, size: Shape) -> Shape:
        return places_of(self.onnx_attributes().get, size, self.kernel).output

    def parameters(self, shape: Shape) -> dict[str, Shape]:
        weight = (shape[0], self.out_channels // self.groups, *self.kernel)
        return {"weight": weight} | ({"bias": (self.out_channels,)} if self.bias else {})

    def multiply_adds(self, inputs: list[Shape], output: Shape) -> int:
        """A weight counts once for each place of the input."""
        return math.prod(inputs[0][1:]) * math.prod(self.parameters(inputs[0])["weight"])

    def gradients(self, read: Pass, cotangent: Array) -> Gradients:
        x, weight = read.input, read.parameters["weight"]
        places = places_of(self.onnx_attributes().get, x.shape[2:], self.kernel)
        of_x, of_weight = spread_gradients(x, weight, places, cotangent)
        axes = (0, *range(2, cotangent.ndim))
        bias = {"bias": cotangent.sum(axis=axes)} if self.bias else {}
        return (of_x,), {"weight": of_weight, **bias}
