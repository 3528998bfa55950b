"""Windows of poolings, in the terms that frameworks have for them. Shapes are [C, H, W]."""

from typing import Optional, Tuple

import numpy as np

from dlb_worker.model import Node

__all__ = ["average_factors", "even_pads", "reaching_pads", "rounds_up"]


def even_pads(node: Node) -> bool:
    """Whether a layer pads as much after each axis as before it."""
    return bool(node.pads[:2] == node.pads[2:])


def rounds_up(node: Node) -> Optional[bool]:
    """Whether output sizes are rounded up, for an operator that only rounds them.

    MXNet, Chainer, and ONNX's shape inference before operator set 22 keep a last window that starts
    past the end of the input when they round up. The layer leaves that window out, as PyTorch does.

    Returns:
        False where rounding down gives as many windows. True where rounding up does. None where
        neither does: then use :func:`reaching_pads` and round down.
    """
    if node.shape[1:] == _sizes(node, up=False):
        return False
    return True if node.shape[1:] == _sizes(node, up=True) else None


def reaching_pads(node: Node) -> Tuple[int, int, int, int]:
    """Pads (top, left, bottom, right) that reach as far as the last window does. With them,
    rounding down gives the output size."""
    top, left = node.pads[:2]
    bottom, right = (
        max(0, (count - 1) * stride + kernel - size - before)
        for count, stride, kernel, size, before in zip(
            node.shape[1:], node.stride, node.kernel, node.input_shape[1:], node.pads
        )
    )
    return top, left, bottom, right


def average_factors(node: Node) -> np.ndarray:
    """Factors [H', W'] for means over whole kernels, :func:`reaching_pads` counted.

    A factor is the kernel's elements over those that count: elements of the input, and with
    ``count_include_pad`` of the layer's own pads; never those that only rounding up reaches.
    """
    counts = []
    for axis, windows in enumerate(node.shape[1:]):
        before, size, after = node.pads[axis], node.input_shape[axis + 1], node.pads[axis + 2]
        first, last = before, before + size
        if node.count_include_pad:
            first, last = 0, last + after
        start = np.arange(windows) * node.stride[axis]
        stop = np.minimum(start + node.kernel[axis], last)
        counts.append(stop - np.maximum(start, first))
    factors: np.ndarray = node.kernel[0] * node.kernel[1] / np.outer(*counts)
    return factors


def _sizes(node: Node, up: bool) -> Tuple[int, ...]:
    """Output height and width of an operator that rounds them one way."""
    sizes = []
    for size, kernel, stride, before, after in zip(
        node.input_shape[1:], node.kernel, node.stride, node.pads[:2], node.pads[2:]
    ):
        span = size + before + after - kernel
        sizes.append((-(-span // stride) if up else span // stride) + 1)
    return tuple(sizes)
