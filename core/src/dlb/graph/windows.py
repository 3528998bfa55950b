"""Sliding windows of ONNX Conv and pooling: their positions, and views of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Window", "padded", "reduced", "window_of", "windows"]


@dataclass(frozen=True)
class Window:
    """The windows of one operator: a number for each axis except batch and channel.

    Attributes:
        kernel, stride, dilation: as the operator's attributes.
        size: of the input.
        before, after: the padding, with ``auto_pad`` resolved.
        output: the number of windows.
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    size: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    output: tuple[int, ...]

    @property
    def extent(self) -> tuple[int, ...]:
        """The distance from the first padded element to the last that a window reads."""
        return tuple(
            (count - 1) * stride + dilation * (kernel - 1) + 1
            for count, stride, dilation, kernel in zip(
                self.output, self.stride, self.dilation, self.kernel
            )
        )

    @property
    def reach(self) -> tuple[int, ...]:
        """How many elements past the end of the input the windows read, on each axis."""
        return tuple(
            max(0, extent - size - before)
            for extent, size, before in zip(self.extent, self.size, self.before)
        )

    @property
    def declared(self) -> tuple[slice, ...]:
        """The input and the declared padding, as slices of :func:`padded`."""
        return tuple(
            slice(0, before + size + after)
            for before, size, after in zip(self.before, self.size, self.after)
        )


def window_of(
    attribute: Callable[[str, Any], Any], size: tuple[int, ...], kernel: tuple[int, ...]
) -> Window:
    """The windows of a Conv, MaxPool or AveragePool node.

    Args:
        attribute: returns an attribute of the node by name, or the default.
        size: of the input, without batch and channel.
        kernel: of the filter or the pooling.
    """
    axes = len(kernel)
    stride = tuple(attribute("strides", None) or (1,) * axes)
    dilation = tuple(attribute("dilations", None) or (1,) * axes)
    pads = tuple(attribute("pads", None) or (0,) * (2 * axes))
    covered = tuple(d * (k - 1) + 1 for d, k in zip(dilation, kernel))
    mode = attribute("auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        missing = [max(0, (-(-n // s) - 1) * s + c - n) for n, s, c in zip(size, stride, covered)]
        less, more = tuple(m // 2 for m in missing), tuple(m - m // 2 for m in missing)
        pads = less + more if mode == "SAME_UPPER" else more + less
    elif mode == "VALID":
        pads = (0,) * (2 * axes)
    before, after = pads[:axes], pads[axes:]
    if attribute("ceil_mode", 0) and set(dilation) == {1}:
        # One window that is larger than all there is has all there is: what is beyond does not count.
        whole = (n + low + high for n, low, high in zip(size, before, after))
        kernel = covered = tuple(map(min, kernel, whole))
    output = []
    for axis in range(axes):
        span = size[axis] + before[axis] + after[axis] - covered[axis]
        steps = span // stride[axis]
        if attribute("ceil_mode", 0):
            steps = -(-span // stride[axis])
            if steps * stride[axis] >= size[axis] + before[axis]:
                steps -= 1
        output.append(steps + 1)
    return Window(kernel, stride, dilation, size, before, after, tuple(output))


def padded(x: npt.NDArray[Any], window: Window, value: float) -> npt.NDArray[Any]:
    """x [N, C, ...] with as much padding as the windows read, and at least the declared padding."""
    after = (max(declared, reach) for declared, reach in zip(window.after, window.reach))
    widths = [(0, 0), (0, 0), *zip(window.before, after)]
    return np.pad(x, widths, constant_values=value)


def windows(x: npt.NDArray[Any], window: Window) -> npt.NDArray[Any]:
    """A view [N, C, *output, *kernel] of the windows over padded x."""
    axes = tuple(range(2, 2 + len(window.kernel)))
    covered = tuple(d * (k - 1) + 1 for d, k in zip(window.dilation, window.kernel))
    view = np.lib.stride_tricks.sliding_window_view(x, covered, axis=axes)
    steps = tuple(
        slice(0, (count - 1) * stride + 1, stride)
        for count, stride in zip(window.output, window.stride)
    )
    taps = tuple(slice(None, None, dilation) for dilation in window.dilation)
    index = (slice(None), slice(None), *steps, *taps)
    return view[index]


def reduced(combine: np.ufunc, x: npt.NDArray[Any], window: Window) -> npt.NDArray[Any]:
    """Every window of padded x reduced to one number [N, C, *output], one kernel offset after the other.

    A reduction over the view of all windows takes several times longer.
    """
    taps = windows(x, window)
    first, *other_offsets = ((Ellipsis, *offset) for offset in np.ndindex(*window.kernel))
    y: npt.NDArray[Any] = taps[first].copy()
    for offset in other_offsets:
        combine(y, taps[offset], out=y)
    return y
