"""Windows of poolings, in the terms that frameworks have for them.

Shapes are of one sample, (C, H, W).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dlb.workload import layers as L
from dlb.workload.shapes import Shape, window_sizes

__all__ = ["average_factors", "pool_sizes", "reaching_pads", "rounds_up"]

Pooling = L.MaxPool | L.AveragePool


def pool_sizes(layer: Pooling, given: Shape) -> Shape:
    """Output height and width."""
    return window_sizes(given[1:], layer.kernel, layer.stride, layer.pads, ceil=layer.ceil_mode)


def rounds_up(layer: Pooling, given: Shape) -> bool | None:
    """Whether output sizes are rounded up, for an operator that does no more than to round them.

    Rounding up, MXNet and Chainer keep a last window that starts past the end of the input, and so
    does ONNX's shape inference before operator set 22; the layer leaves it out, as PyTorch does.

    Returns:
        False where rounding down gives as many windows; True where rounding up does; None where
        neither does: there the operator takes :func:`reaching_pads`, and rounds down.
    """
    sizes = pool_sizes(layer, given)
    if sizes == window_sizes(given[1:], layer.kernel, layer.stride, layer.pads):
        return False
    up = tuple(
        -(-(size + before + after - kernel) // stride) + 1
        for size, kernel, stride, before, after in zip(
            given[1:], layer.kernel, layer.stride, layer.pads[:2], layer.pads[2:]
        )
    )
    return True if sizes == up else None


def reaching_pads(layer: Pooling, given: Shape) -> L.Pads:
    """Pads (top, left, bottom, right) that reach as far as the last window does, with which rounding
    down gives the output size."""
    top, left, *_ = layer.pads
    bottom, right = (
        max(0, (count - 1) * stride + kernel - size - before)
        for count, stride, kernel, size, before in zip(
            pool_sizes(layer, given), layer.stride, layer.kernel, given[1:], layer.pads
        )
    )
    return top, left, bottom, right


def average_factors(layer: L.AveragePool, given: Shape) -> npt.NDArray[np.float64]:
    """What means over whole kernels, :func:`reaching_pads` counted, are multiplied by, [H', W'].

    The kernel's elements over those that count: of the input, or with ``count_include_pad`` of it and
    the layer's own pads; never those that only rounding up reaches.
    """
    counts = []
    for axis, windows in enumerate(pool_sizes(layer, given)):
        before, size, after = layer.pads[axis], given[axis + 1], layer.pads[axis + 2]
        first, last = before, before + size
        if layer.count_include_pad:
            first, last = 0, last + after
        start = np.arange(windows) * layer.stride[axis]
        stop = np.minimum(start + layer.kernel[axis], last)
        counts.append(stop - np.maximum(start, first))
    return math.prod(layer.kernel) / np.outer(*counts)
