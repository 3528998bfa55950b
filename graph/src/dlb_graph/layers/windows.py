"""Sliding windows of ONNX Conv and pooling: their positions, and views of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dlb_graph.layers.numbers import Array, np

__all__ = ["Window", "column_parts", "padded", "reduced", "window_of", "window_sizes", "windows"]

#: Elements of the columns of a convolution that are made at once. The C library keeps blocks below 32 MiB, and
#: takes larger ones page by page from the system each time, which costs as much as filling them.
_COLUMN_ELEMENTS = 1 << 21


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

    def with_padding(self, before: Sequence[int], after: Sequence[int]) -> Window:
        """The same windows over what is inside a padding, which they then have as their own."""
        return replace(
            self,
            size=tuple(n - b - a for n, b, a in zip(self.size, before, after)),
            before=tuple(map(sum, zip(self.before, before))),
            after=tuple(map(sum, zip(self.after, after))),
        )

    @property
    def declared(self) -> tuple[slice, ...]:
        """The input and the declared padding, as slices of :func:`padded`."""
        return tuple(
            slice(0, before + size + after)
            for before, size, after in zip(self.before, self.size, self.after)
        )


def window_sizes(
    size: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    pads: tuple[int, ...],
    dilation: tuple[int, ...] = (),
    ceil: bool = False,
) -> tuple[int, ...]:
    """Output sizes of a sliding window along its axes, as ONNX Conv and MaxPool define them.

    With ``ceil``, a last window that would start in the padding after the end is dropped.
    """
    sizes, axes = [], len(kernel)
    dilation = dilation or (1,) * axes
    for axis in range(axes):
        before, after = pads[axis], pads[axis + axes]
        span = size[axis] + before + after - dilation[axis] * (kernel[axis] - 1) - 1
        if span < 0:
            sizes.append(0)
            continue
        steps = -(-span // stride[axis]) if ceil else span // stride[axis]
        if ceil and steps * stride[axis] >= size[axis] + before:
            steps -= 1
        sizes.append(steps + 1)
    return tuple(sizes)


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
        kernel = tuple(map(min, kernel, whole))
    ceil = bool(attribute("ceil_mode", 0))
    output = window_sizes(size, kernel, stride, (*before, *after), dilation, ceil)
    return Window(kernel, stride, dilation, size, before, after, output)


def padded(x: Array, window: Window, value: float) -> Array:
    """x [N, C, ...] padded as far as the windows read, and at least the declared padding; x itself if none."""
    after = (max(declared, reach) for declared, reach in zip(window.after, window.reach))
    widths = [(0, 0), (0, 0), *zip(window.before, after)]
    if not any(map(any, widths)):
        return x
    return np.pad(x, widths, constant_values=value)


def windows(x: Array, window: Window) -> Array:
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


def column_parts(x: Array, window: Window, groups: int) -> Iterator[tuple[slice, Array]]:
    """Slices of the samples of x [N, C, ...], and what the windows over them read, a column each.

    That is [groups, C / groups * kernel, n * output], so that one matrix product has all n samples.
    """
    axes = len(window.kernel)
    rows, size = x.shape[1] * math.prod(window.kernel), math.prod(window.output)
    step = max(1, _COLUMN_ELEMENTS // max(1, rows * size))
    for start in range(0, len(x), step):
        part = slice(start, start + step)
        taps = windows(padded(x[part], window, 0.0), window)
        # From [n, C, *output, *kernel].
        order = (1, *range(2 + axes, 2 + 2 * axes), 0, *range(2, 2 + axes))
        yield part, taps.transpose(order).reshape(groups, rows // groups, len(taps) * size)


def reduced(combine: np.ufunc, x: Array, window: Window) -> Array:
    """Every window of padded x reduced to one number [N, C, *output], one kernel offset after the other.

    A reduction over the view of all windows takes several times longer.
    """
    taps = windows(x, window)
    first, *other_offsets = ((Ellipsis, *offset) for offset in np.ndindex(*window.kernel))
    y: Array = taps[first].copy()
    for offset in other_offsets:
        combine(y, taps[offset], out=y)
    return y
