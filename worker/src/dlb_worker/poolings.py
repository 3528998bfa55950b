"""Windows of poolings, in the terms that frameworks have for them. Shapes are [C, H, W] or [C, D, H, W]."""

from functools import reduce
from typing import Optional, Tuple

import numpy as np

from dlb_worker.model import Node

__all__ = ["average_factors", "covered", "even_pads", "reaching_pads", "rounds_up"]


def even_pads(node: Node) -> bool:
    """Whether a layer pads as much after each axis as before it."""
    axes = len(node.kernel)
    return bool(node.pads[:axes] == node.pads[axes:])


def covered(node: Node) -> Tuple[int, ...]:
    """What a window covers along each axis, gaps between its taps included."""
    dilation = node.attributes.get("dilation", (1,) * len(node.kernel))
    return tuple(step * (size - 1) + 1 for step, size in zip(dilation, node.kernel))


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


def reaching_pads(node: Node) -> Tuple[int, ...]:
    """Pads, in the layer's order, that reach as far as the last window does. With them, rounding down
    gives the output size."""
    after = tuple(
        max(0, (count - 1) * stride + span - size - before)
        for count, stride, span, size, before in zip(
            node.shape[1:], node.stride, covered(node), node.input_shape[1:], node.pads
        )
    )
    return tuple(node.pads[: len(after)]) + after


def average_factors(node: Node) -> np.ndarray:
    """Factors [H', W'] or [D', H', W'] for means over whole kernels, :func:`reaching_pads` counted.

    A factor is the kernel's elements over those that count: elements of the input, and with
    ``count_include_pad`` of the layer's own pads; never those that only rounding up reaches.
    """
    counts, axes = [], len(node.kernel)
    for axis, windows in enumerate(node.shape[1:]):
        before, size, after = node.pads[axis], node.input_shape[axis + 1], node.pads[axis + axes]
        first, last = before, before + size
        if node.count_include_pad:
            first, last = 0, last + after
        start = np.arange(windows) * node.stride[axis]
        stop = np.minimum(start + node.kernel[axis], last)
        counts.append(stop - np.maximum(start, first))
    factors: np.ndarray = np.prod(node.kernel) / reduce(np.multiply.outer, counts)
    return factors


def _sizes(node: Node, up: bool) -> Tuple[int, ...]:
    """Output sizes of an operator that rounds them one way."""
    sizes, axes = [], len(node.kernel)
    for size, window, stride, before, after in zip(
        node.input_shape[1:], covered(node), node.stride, node.pads[:axes], node.pads[axes:]
    ):
        span = size + before + after - window
        sizes.append((-(-span // stride) if up else span // stride) + 1)
    return tuple(sizes)
