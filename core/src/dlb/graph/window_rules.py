"""Reads convolutions and poolings: what their windows compute, however they are written."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product

import numpy as np
import numpy.typing as npt
from onnx import NodeProto

from dlb.graph.layout import Padding, padding_before, selected_indices
from dlb.graph.reader import Attributes, Operation, Reader, generic_operation
from dlb.graph.trace import Trace, attributes_of
from dlb.graph.windows import Window, window_of

__all__ = ["RescaledPool", "conv", "first_windows", "pool", "rescaled_pool", "without_axes"]

Sizes = tuple[int, ...]
#: The pooling kind of operators that pool a whole map.
_POOLING_KINDS = {
    "GlobalAveragePool": "AveragePool",
    "ReduceMean": "AveragePool",
    "GlobalMaxPool": "MaxPool",
    "ReduceMax": "MaxPool",
}


def _effective_attributes(window: Window) -> Attributes:
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


def _idle_axes(window: Window) -> set[int]:
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


def _merged_window(
    reader: Reader, node: NodeProto, raw: Attributes, sizes: Sizes | None
) -> tuple[Window, Padding]:
    """The windows of a node, with all padding before it merged."""
    return _merge_paddings(reader, node, raw, sizes)[-1]


def _merge_paddings(
    reader: Reader, node: NodeProto, raw: Attributes, sizes: Sizes | None
) -> list[tuple[Window, Padding]]:
    """The windows of a node as written, and then with each padding before it merged, one more each.

    Args:
        sizes: how many of the windows count on each axis; all if None.
    """
    weight = reader.trace.constant(node, 1) if node.op_type == "Conv" else None
    kernel = tuple(raw["kernel_shape"]) if weight is None else weight.shape[2:]
    size = reader.trace.values[node.input[0]].shape[2:]
    window = window_of(lambda name, default: raw.get(name, default), size, kernel)
    window = replace(window, output=sizes or window.output)
    has_own_padding = any(window.before) or any(window.after)
    merged = [(window, Padding(node.input[0]))]
    while True:
        padding = padding_before(reader.trace, merged[-1][1].value)
        zero_is_least = _zero_is_least(reader, padding.value)
        mergeable = {
            "Conv": padding.number == 0,
            "AveragePool": padding.number == 0
            and (raw.get("count_include_pad", 0) or not has_own_padding),
            "MaxPool": padding.number < -3e38 or (padding.number == 0 and zero_is_least),
        }
        if not padding.before or not mergeable[_POOLING_KINDS.get(node.op_type, node.op_type)]:
            return merged
        window = merged[-1][0]
        inner_size = tuple(n - b - a for n, b, a in zip(window.size, padding.before, padding.after))
        merged_window = replace(
            window,
            size=inner_size,
            before=tuple(x + y for x, y in zip(window.before, padding.before)),
            after=tuple(x + y for x, y in zip(window.after, padding.after)),
        )
        merged.append((merged_window, padding))


def _zero_is_least(reader: Reader, name: str) -> bool:
    """Whether no number of a value can be negative."""
    operation = reader.operation_of(name)
    return (
        operation.kind in ("Relu", "Sigmoid", "HardSigmoid")
        or operation.attributes.get("low") == 0.0
    )


def conv(
    reader: Reader,
    node: NodeProto,
    raw: Attributes,
    output: str,
    sizes: Sizes | None = None,
) -> Operation | int:
    weight, bias = reader.trace.constant(node, 1), reader.trace.constant(node, 2)
    if weight is None:
        return generic_operation(reader, node, raw, output)
    window, padding = _merged_window(reader, node, raw, sizes)
    attributes = {
        "weight": weight.shape,
        **_effective_attributes(window),
        "groups": raw.get("group", 1),
        "bias": False,
    }
    attributes = without_axes(attributes, _idle_axes(window))
    operation = reader.make(node, "Conv", attributes, [padding.value], weight.size)
    return operation if bias is None else reader.with_bias(operation, node.input[2])


def pool(
    reader: Reader,
    node: NodeProto,
    raw: Attributes,
    output: str,
    sizes: Sizes | None = None,
) -> Operation:
    kind = _POOLING_KINDS.get(node.op_type, node.op_type)
    window, padding = _merged_window(reader, node, raw, sizes)
    attributes = _effective_attributes(window)
    if kind == "AveragePool":
        if not any(attributes["pads"]) and window.kernel == window.size:
            return reader.make(node, "GlobalAveragePool", {}, [padding.value])
        attributes |= _padding_attributes(window, *_counted_padding(window, padding, raw))
    attributes = without_axes(attributes, _idle_axes(window))
    return reader.make(node, kind, attributes, [padding.value])


@dataclass(frozen=True)
class RescaledPool:
    """An average pooling whose output is multiplied by a constant.

    Attributes:
        attributes: of the pooling that both are together.
        value: name of the value that the windows read.
        scale: the exact factor of each window, [*output]; a file keeps it rounded.
        channels: the remaining factor of each channel, [C]; None if there is none.
        idle: axes of size 1 on which the windows do nothing.
    """

    attributes: Attributes
    value: str
    scale: npt.NDArray[np.floating]
    channels: npt.NDArray[np.floating] | None
    idle: frozenset[int] = frozenset()


def rescaled_pool(
    reader: Reader,
    node: NodeProto,
    scale: npt.NDArray[np.floating],
    sizes: Sizes | None = None,
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
    channels = reader.trace.values[node.output[0]].shape[1]
    for window, padding in reversed(_merge_paddings(reader, node, raw, sizes)):
        own_divisors = _divisors(window, *_counted_padding(window, padding, raw))
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
            attributes = _effective_attributes(window) | _padding_attributes(
                window, counted, uncounted
            )
            idle = frozenset(_idle_axes(window))
            exact = own_divisors / divisors
            return RescaledPool(attributes, padding.value, exact, channel_factors, idle)
    return None


def _padding_counts(window: Window) -> Iterator[tuple[bool, tuple[int, ...]]]:
    """Which padding may count in a mean: none, or all but some elements at the end."""
    yield False, (0,) * len(window.kernel)
    for uncounted in product(*(range(reach + 1) for reach in window.reach)):
        yield True, uncounted


def _constant_rows(rows: npt.NDArray[np.floating]) -> bool:
    """Whether each row is constant."""
    return np.allclose(rows, rows[:, :1], rtol=1e-5)


def _counted_padding(
    window: Window, padding: Padding, raw: Attributes
) -> tuple[bool, tuple[int, ...]]:
    """Whether padding counts in an average, and how much of it at the end never does.

    What rounding up adds past the declared padding is never counted.
    """
    counted = bool(raw.get("count_include_pad", 0)) or bool(padding.before)
    return counted, tuple(max(0, r - a) for r, a in zip(window.reach, window.after))


def _padding_attributes(window: Window, counted: bool, uncounted: tuple[int, ...]) -> Attributes:
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
