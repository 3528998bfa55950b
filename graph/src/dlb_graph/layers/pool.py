"""Poolings."""

from __future__ import annotations

import math
from typing import Any

from dlb_graph.layers.base import Gradients, Graph, Layer, Pass, Shape, ShapeMismatch, check_rank
from dlb_graph.layers.numbers import Array, np
from dlb_graph.layers.windowed import EACH, Pads, Sizes, Windowed, scatter
from dlb_graph.layers.windows import padded, reduced, window_sizes, windows

__all__ = ["AveragePool", "GlobalAveragePool", "MaxPool"]


class _Pool(Windowed, kw_only=True, frozen=True):
    """A pooling of windows."""

    kernel: Sizes
    stride: Sizes
    pads: Pads = ()
    ceil_mode: bool = False

    homogeneous = True
    keeps_means = True

    def fault(self) -> str:
        if any(pad >= self.kernel[axis % len(self.kernel)] for axis, pad in enumerate(self.pads)):
            return f"pads = {self.pads} must be smaller than kernel = {self.kernel}"
        return ""

    def output_shape(self, inputs: list[Shape]) -> Shape:
        check_rank(inputs[0], 1 + len(self.kernel))
        sizes = window_sizes(
            inputs[0][1:],
            self.kernel,
            self.stride,
            self.pads,
            getattr(self, "dilation", ()),
            ceil=self.ceil_mode,
        )
        return (inputs[0][0], *sizes)

    def nodes(self, graph: Graph, name: str, inputs: list[str], shapes: list[Shape]) -> None:
        """The operator, which rounds sizes up only where all versions of it do so alike."""
        from dlb_worker.poolings import reaching_pads, rounds_up

        attributes, resolved = self.onnx_attributes(), self.resolved(shapes[0])
        ceil_mode, pads = rounds_up(resolved), self.pads
        if ceil_mode is None:
            extended_pads = reaching_pads(resolved)
            # Padding that only rounding up reaches is never counted.
            ceil_mode = attributes.get("count_include_pad", False) and any(
                map(int.__gt__, extended_pads, pads)
            )
            pads = pads if ceil_mode else extended_pads
        graph.node(
            self.operator, inputs, name, **attributes | {"pads": pads, "ceil_mode": ceil_mode}
        )


class MaxPool(_Pool, tag="max_pool", kw_only=True, frozen=True):
    """Max pooling over two or three axes, ONNX MaxPool; padding is never the maximum.

    ``ceil_mode`` rounds the size up. ``dilation`` is the spacing of a window's elements, 1 if left out.
    """

    dilation: Sizes = ()

    operator = "MaxPool"
    reads_output_again = True
    mistakes = "ceil mode, pads (or zeros in their place), or stride"

    def output_shape(self, inputs: list[Shape]) -> Shape:
        shape = super().output_shape(inputs)
        for axis, (size, count) in enumerate(zip(inputs[0][1:], shape[1:])):
            if self.dilation[axis] > 1:
                self._check_gaps(axis, size, count)
        return shape

    def _check_gaps(self, axis: int, size: int, count: int) -> None:
        """Check that windows with gaps read some of the input, and reach no further than ONNX Runtime's may."""
        starts = [number * self.stride[axis] - self.pads[axis] for number in range(count)]
        taps = range(0, self.dilation[axis] * self.kernel[axis], self.dilation[axis])
        if not all(any(0 <= start + tap < size for tap in taps) for start in starts):
            raise ShapeMismatch("a window would read nothing but padding")
        if starts and starts[-1] + taps[-1] - size + 1 >= self.kernel[axis]:
            raise ShapeMismatch(
                f"its last window would reach {starts[-1] + taps[-1] - size + 1} places past the end, "
                f"which must be fewer than the kernel's {self.kernel[axis]}"
            )

    def onnx_attributes(self) -> dict[str, Any]:
        attributes = super().onnx_attributes()
        if max(self.dilation) == 1:
            del attributes["dilations"]
        return attributes

    def gradients(self, read: Pass, cotangent: Array) -> Gradients:
        x, window = read.input, self.window(read.input)
        within = padded(x, window, -np.inf)
        taps, largest = windows(within, window), reduced(np.maximum, within, window)
        free = np.ones(largest.shape, bool)

        def first(offset: tuple[int, ...]) -> Array:
            wins = free & (taps[(Ellipsis,) + offset] == largest)
            np.logical_and(free, ~wins, out=free)
            return np.where(wins, cotangent, cotangent.dtype.type(0))

        return (scatter(x, window, first),), {}


class AveragePool(_Pool, tag="average_pool", kw_only=True, frozen=True):
    """Average pooling over two or three axes, ONNX AveragePool; ``count_include_pad`` divides by the whole
    kernel."""

    count_include_pad: bool = False

    operator = "AveragePool"
    mistakes = "whether padding is counted, ceil mode, pads, or stride"

    def gradients(self, read: Pass, cotangent: Array) -> Gradients:
        x, window = read.input, self.window(read.input)
        counted = padded(np.ones((1, 1, *x.shape[2:]), x.dtype), window, 0.0)
        if self.count_include_pad:
            counted[EACH + window.declared] = 1.0
        share = cotangent / reduced(np.add, counted, window)
        return (scatter(x, window, lambda offset: share),), {}


class GlobalAveragePool(Layer, tag="global_average_pool", frozen=True):
    """Mean over every axis after the channels, ONNX GlobalAveragePool.

    [N, C, H, W] to [N, C, 1, 1], and [N, C, D, H, W] to [N, C, 1, 1, 1].
    """

    mistakes = "the axes, or a pooling of another size"
    of_channels = True
    operator = "GlobalAveragePool"
    homogeneous = True
    keeps_means = True

    def output_shape(self, inputs: list[Shape]) -> Shape:
        check_rank(inputs[0], 3, 4)
        return (inputs[0][0], *(1 for _ in inputs[0][1:]))

    def gradients(self, read: Pass, cotangent: Array) -> Gradients:
        count = cotangent.dtype.type(math.prod(read.input.shape[2:]))
        return (np.broadcast_to(cotangent / count, read.input.shape),), {}
