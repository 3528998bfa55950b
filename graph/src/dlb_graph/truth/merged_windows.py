"""What the windows of convolutions and poolings compute, with the padding before them."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import NodeProto

from dlb_graph.layers.windows import Window, window_of
from dlb_graph.truth.layout import Padding, padding_before, selected_indices
from dlb_graph.truth.trace import Trace, attributes_of

__all__ = [
    "RescaledPool",
    "counted_padding",
    "effective_attributes",
    "first_windows",
    "idle_axes",
    "padding_attributes",
    "rescaled_pool",
    "without_axes",
]

Attributes = dict[str, Any]
Sizes = tuple[int, ...]


def effective_attributes(window: Window) -> Attributes:
    """The attributes of windows that affect the result.

    Padding past the last element that is read has no effect, whether it was declared or came from
    rounding the output size up. The stride of a single window has none either.
    """
    return {
        "kernel": window.kernel,
        "stride": tuple(1 if n == 1 else s for n, s in zip(window.output, window.stride)),
        "pads": (*window.before, *window.reach),
        "dilation": tuple(1 if k == 1 else d for k, d in zip(window.kernel, window.dilation)),
    }


def idle_axes(window: Window) -> set[int]:
    """Axes of size 1 on which windows do nothing, such as those that a map of one axis got."""
    return {
        axis
        for axis, size in enumerate(window.size)
        if size == window.kernel[axis] == window.output[axis] == 1
        and window.before[axis] == window.after[axis] == 0
    }


def without_axes(attributes: Attributes, idle: Set[int]) -> Attributes:
    """The attributes of windows without some axes."""

    def kept(name: str, numbers: Sizes) -> Sizes:
        first = 2 if name == "weight" else 0
        sided = name in ("pads", "left out")
        count = len(numbers) // 2 if sided else len(numbers) - first
        return tuple(
            number
            for place, number in enumerate(numbers)
            if place < first or (place - first) % count not in idle
        )

    return {
        name: kept(name, value) if isinstance(value, tuple) else value
        for name, value in attributes.items()
    }


def first_windows(trace: Trace, name: str) -> tuple[NodeProto, Sizes] | None:
    """The convolution or pooling behind a value, and the number of its windows in it on each axis.

    The value has all windows, or the first ones if a Slice cuts off the rest. None for other
    values.
    """
    node = trace.producers.get(name)
    while node is not None and node.op_type == "Slice":
        indices_by_axis, shape = selected_indices(trace, node), trace.values[node.input[0]].shape
        if indices_by_axis is None or any(
            list(indices) != list(range(len(indices) if axis > 1 else shape[axis]))
            for axis, indices in indices_by_axis.items()
        ):
            return None
        node = trace.producers.get(node.input[0])
    if node is None or node.op_type not in ("Conv", "MaxPool", "AveragePool"):
        return None
    return node, trace.values[name].shape[2:]


def _merge_paddings(
    trace: Trace, node: NodeProto, raw: Attributes, sizes: Sizes | None
) -> list[tuple[Window, Padding]]:
    """The windows of an AveragePool as written, and then with each padding before it merged, one more each.

    Args:
        sizes: how many of the windows count on each axis; all if None.
    """
    size = trace.values[node.input[0]].shape[2:]
    window = window_of(
        lambda name, default: raw.get(name, default), size, tuple(raw["kernel_shape"])
    )
    window = replace(window, output=sizes or window.output)
    has_own_padding = any(window.before) or any(window.after)
    merged = [(window, Padding(node.input[0]))]
    while True:
        padding = padding_before(trace, merged[-1][1].value)
        counts = raw.get("count_include_pad", 0) or not has_own_padding
        if not padding.before or padding.number != 0 or not counts:
            return merged
        window = merged[-1][0]
        merged.append((window.with_padding(padding.before, padding.after), padding))


@dataclass(frozen=True)
class RescaledPool:
    """An average pooling whose output is multiplied by a constant.

    Attributes:
        attributes: of the pooling that both are together.
        scale: the exact factor of each window, [*output]; a file keeps it rounded.
        channels: the remaining factor of each channel, [C]; None if there is none.
    """

    attributes: Attributes
    scale: npt.NDArray[np.floating]
    channels: npt.NDArray[np.floating] | None


def rescaled_pool(
    trace: Trace, node: NodeProto, scale: npt.NDArray[np.floating], sizes: Sizes | None = None
) -> RescaledPool | None:
    """What an AveragePool computes whose output is multiplied by ``scale``, or None.

    Some frameworks cannot exclude one-sided padding, or what rounding up adds, from a mean. They
    divide by the whole kernel, and scale each window by the share of it that counts. Exporters
    merge the scale of a batch normalisation after the pooling into that.

    Args:
        node: the AveragePool.
        scale: the constant.
        sizes: how many of the windows count on each axis; all if None.
    """
    raw = attributes_of(node)
    channels = trace.values[node.output[0]].shape[1]
    for window, padding in reversed(_merge_paddings(trace, node, raw, sizes)):
        own_divisors = _divisors(window, *counted_padding(window, padding, raw))
        if scale.shape[-own_divisors.ndim :] != own_divisors.shape or set(window.dilation) != {1}:
            continue
        rows = scale.reshape(-1, own_divisors.size)
        if len(rows) not in (1, channels):
            continue
        for counted, uncounted in _padding_counts(window):
            divisors = _divisors(window, counted, uncounted)
            ratios = rows * (divisors / own_divisors).ravel()
            if np.allclose(ratios, 1, rtol=1e-5):
                channel_factors = None
            elif len(rows) == channels and _constant_rows(ratios) and not _constant_rows(rows):
                channel_factors = ratios[:, 0]
            else:
                continue
            attributes = effective_attributes(window) | padding_attributes(
                window, counted, uncounted
            )
            exact = own_divisors / divisors
            return RescaledPool(attributes, exact, channel_factors)
    return None


def _padding_counts(window: Window) -> Iterator[tuple[bool, tuple[int, ...]]]:
    """Which padding may count in a mean: none, or all but some elements at the end."""
    yield False, (0,) * len(window.kernel)
    for uncounted in product(*(range(reach + 1) for reach in window.reach)):
        yield True, uncounted


def _constant_rows(rows: npt.NDArray[np.floating]) -> bool:
    """Whether each row is constant."""
    return np.allclose(rows, rows[:, :1], rtol=1e-5)


def counted_padding(
    window: Window, padding: Padding, raw: Attributes
) -> tuple[bool, tuple[int, ...]]:
    """Whether padding counts in an average, and how much of it at the end never does.

    What rounding up adds past the declared padding is never counted.
    """
    counted = bool(raw.get("count_include_pad", 0)) or bool(padding.before)
    return counted, tuple(max(0, r - a) for r, a in zip(window.reach, window.after))


def padding_attributes(window: Window, counted: bool, uncounted: tuple[int, ...]) -> Attributes:
    """The attributes of an average pooling that say which padding counts."""
    counted = counted and (any(window.before) or window.reach != uncounted)
    not_counted = {"not counted": uncounted} if counted and any(uncounted) else {}
    return {"count_include_pad": counted, **not_counted}


def _divisors(window: Window, counted: bool, uncounted: tuple[int, ...]) -> npt.NDArray[np.integer]:
    """How many elements the sum of each window is divided by, in the shape of the output."""
    counts = []
    for axis, outputs in enumerate(window.output):
        start = np.arange(outputs) * window.stride[axis]
        first, last = window.before[axis], window.before[axis] + window.size[axis]
        if counted:
            first, last = 0, last + window.reach[axis] - uncounted[axis]
        stop = np.minimum(start + window.kernel[axis], last)
        counts.append(stop - np.maximum(start, first))
    return reduce(np.multiply.outer, counts)
