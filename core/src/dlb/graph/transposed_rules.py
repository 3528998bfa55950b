"""Reads transposed convolutions, with what is padded before and cut off after them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import NodeProto

from dlb.graph.layout import padding_before, previous_axes, selected_indices
from dlb.graph.reader import Attributes, Operation, Reader, generic_operation
from dlb.graph.trace import Trace, attributes_of
from dlb.graph.transposed import Places, places_of
from dlb.graph.window_rules import without_axes

__all__ = ["conv_transpose", "cropped"]

Array = npt.NDArray[Any]
#: Operators that keep numbers in their row-major order.
_RESHAPES = ("Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze")


def conv_transpose(
    reader: Reader, node: NodeProto, raw: Attributes, output: str
) -> Operation | int:
    read = _read(reader, node, raw)
    if read is None:
        return generic_operation(reader, node, raw, output)
    operation, idle = read
    return replace(operation, attributes=without_axes(operation.attributes, idle))


def _read(reader: Reader, node: NodeProto, raw: Attributes) -> tuple[Operation, set[int]] | None:
    """The operation, and its axes of size 1 on which it does nothing; None if its weight is live."""
    weight, bias = reader.trace.constant(node, 1), reader.trace.constant(node, 2)
    if weight is None:
        return None
    size = reader.trace.values[node.input[0]].shape[2:]
    places = places_of(lambda name, default: raw.get(name, default), size, weight.shape[2:])
    weight, places = _without_gaps(weight, places)
    padding, name = padding_before(reader.trace, node.input[0]), node.input[0]
    if padding.before and padding.number == 0:
        # A padded zero covers more, and adds nothing.
        places, name = _without_padding(places, padding.before, padding.after), padding.value
    attributes = {
        # The channels of the output come first, as in a Conv.
        "weight": (weight.shape[1] * places.groups, weight.shape[0], *weight.shape[2:]),
        **_effective_attributes(places),
        "groups": places.groups,
        "bias": False,
    }
    idle = {
        axis
        for axis, size in enumerate(places.size)
        if size == places.kernel[axis] == 1 and places.before[axis] == places.after[axis] == 0
    }
    operation = reader.make(node, "ConvTranspose", attributes, [name], weight.size)
    return (operation if bias is None else reader.with_bias(operation, node.input[2])), idle


def _without_gaps(weight: Array, places: Places) -> tuple[Array, Places]:
    """A filter whose taps have zeros between them is a dilated one without these."""
    if set(places.dilation) != {1}:
        return weight, places
    dilation = [1] * len(places.kernel)
    for axis, size in enumerate(weight.shape[2:], start=2):
        for gap in range(size - 1, 1, -1):
            taps = (slice(None),) * axis + (slice(None, None, gap),)
            between = np.delete(weight, np.arange(0, size, gap), axis)
            if (size - 1) % gap == 0 and weight[taps].any() and not between.any():
                weight, dilation[axis - 2] = weight[taps], gap
                break
    return weight, replace(places, kernel=weight.shape[2:], dilation=tuple(dilation))


def _without_padding(places: Places, before: tuple[int, ...], after: tuple[int, ...]) -> Places:
    """The places of an input without its zeros around it."""
    return replace(
        places,
        size=tuple(int(n - b - a) for n, b, a in zip(places.size, before, after)),
        before=tuple(int(x - b * s) for x, b, s in zip(places.before, before, places.stride)),
        after=tuple(int(x - a * s) for x, a, s in zip(places.after, after, places.stride)),
    )


def _effective_attributes(places: Places) -> Attributes:
    """The attributes that affect the result; the stride of a single input has no effect."""
    return {
        "stride": tuple(1 if n == 1 else s for n, s in zip(places.size, places.stride)),
        "left out": (*places.before, *places.after),
        "dilation": tuple(1 if k == 1 else d for k, d in zip(places.kernel, places.dilation)),
    }


def cropped(reader: Reader, name: str) -> Operation | None:
    """The transposed convolution of which a value is a part: rows and columns in the middle.

    Whatever the order of the axes. A first Slice may cut rows, and a second columns.
    """
    trace, value = reader.trace, name
    rank = trace.values[name].ndim
    # For each axis of the value, that of the earlier one, and where the value begins in it.
    axes, starts = list(range(rank)), [0] * rank
    while True:
        value = _before_reshapes(trace, value)
        node = trace.producers.get(value)
        if node is None or node.op_type == "ConvTranspose":
            break
        if node.op_type == "Slice":
            cuts = selected_indices(trace, node)
            if cuts is None or any(
                not len(indices) or set(np.diff(indices)) - {1} for indices in cuts.values()
            ):
                return None
            for axis, indices in cuts.items():
                starts[axes.index(axis)] += indices[0]
        else:
            previous = previous_axes(trace, value)
            if previous is None:
                return None
            axes = [previous[axis] for axis in axes]
        value = node.input[0]
    if node is None:
        return None
    read = _read(reader, node, attributes_of(node))
    if read is None:
        return None
    operation, idle = read
    whole, left_out = trace.values[value].shape, operation.attributes["left out"]
    before, after = list(left_out[: rank - 2]), list(left_out[rank - 2 :])
    for size, start, axis in zip(trace.values[name].shape, starts, axes):
        end = whole[axis] - start - size
        if axis >= 2:
            before[axis - 2] += start
            after[axis - 2] += end
        elif start or end:
            return None
    attributes = {**operation.attributes, "left out": (*before, *after)}
    return replace(operation, attributes=without_axes(attributes, idle))


def _before_reshapes(trace: Trace, name: str) -> str:
    """The earliest value of the same shape, before operators that only reshape it."""
    value = name
    while name in trace.producers and trace.producers[name].op_type in _RESHAPES:
        name = trace.producers[name].input[0]
        if trace.values[name].shape == trace.values[value].shape:
            value = name
    return value
