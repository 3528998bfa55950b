"""Operators that only arrange numbers, and padding seen through them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx

from dlb.graph.trace import Trace, attributes_of
from dlb_worker.onnx_file import LAYOUT

__all__ = [
    "LAYOUT",
    "Padding",
    "padding_before",
    "padding_of",
    "places_taken",
    "rearranged",
    "repeated",
]


def rearranged(trace: Trace, node: onnx.NodeProto) -> npt.NDArray[np.int64] | None:
    """Where each number of a Gather's output lies in a value of one axis, int64 in the output's shape,
    if it takes each once: as torch's exporter writes strides. None of any other node."""
    if node.op_type != "Gather" or node.input[0] not in trace.live or node.input[1] in trace.live:
        return None
    size = trace.values[node.input[0]].shape
    places = trace.values[node.input[1]]
    if len(size) != 1 or places.size != size[0]:
        return None
    places = places % size[0]
    return places if np.array_equal(np.sort(places, axis=None), np.arange(size[0])) else None


def repeated(trace: Trace, name: str) -> str:
    """The value that an Expand before a value only repeats, or the value itself: a product repeats
    a number for each channel by itself."""
    node = trace.producers.get(name)
    return node.input[0] if node is not None and node.op_type == "Expand" else name


@dataclass(frozen=True)
class Padding:
    """What Pad operators put around a feature map [N, C, ...].

    Attributes:
        value: name of what was padded.
        before, after: how many numbers on each axis beside the first two; empty for no padding.
        number: what was put there.
    """

    value: str
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    number: float = 0.0


def padding_before(trace: Trace, name: str) -> Padding:
    """The padding of a value, seen through the layout operators between.

    Pads of other axes, of other modes, and those that crop, are not seen.
    """
    value = name
    axes = list(range(trace.values[name].ndim))
    while True:
        node = trace.producers.get(value)
        if node is None or not node.input or node.input[0] not in trace.live:
            return Padding(name)
        first = node.input[0]
        if node.op_type == "Pad":
            break
        moved = _moved(trace, value)
        if moved is None:
            return Padding(name)
        axes, value = [moved[axis] for axis in axes], first
    numbers = padding_of(trace, node)
    if numbers is None or len(numbers[0]) != 2 * len(axes):
        return Padding(name)
    pads, number = numbers
    before = tuple(pads[axis] for axis in axes)
    after = tuple(pads[len(axes) + axis] for axis in axes)
    if any(before[:2] + after[:2]):
        return Padding(name)
    return Padding(first, before[2:], after[2:], number)


def padding_of(trace: Trace, node: onnx.NodeProto) -> tuple[tuple[int, ...], float] | None:
    """What a Pad puts before each axis of a value, and then after each, and with which number.

    None for pads of other modes, those that crop, and those that depend on the input.
    """
    given, rank = attributes_of(node), trace.values[node.input[0]].ndim
    told, constant = given.get("pads", trace.constant(node, 1)), trace.constant(node, 2)
    axes = trace.constant(node, 3)
    unknown = [name for name in node.input[1:] if name in trace.live]
    if told is None or unknown or given.get("mode", "constant") != "constant":
        return None
    pads = np.zeros((2, rank), int)
    named = range(rank) if axes is None else axes.ravel()
    pads[:, [int(axis) % rank for axis in named]] = np.reshape(told, (2, -1))
    if pads.min() < 0 or (constant is not None and constant.size != 1):
        return None
    number = given.get("value", 0.0) if constant is None else constant.ravel()[0]
    return tuple(pads.ravel().tolist()), float(number)


def places_taken(
    trace: Trace, node: onnx.NodeProto, output: int = 0
) -> dict[int, Sequence[int]] | None:
    """Which places a Slice or a Gather takes along the axes of a value, or a Split for one of its
    outputs: by axis, counted from 0.

    Axes that stay whole may be among them. None where it depends on the input.
    """
    given, shape = attributes_of(node), trace.values[node.input[0]].shape
    if any(name in trace.live for name in node.input[1:]):
        return None
    if node.op_type == "Gather":
        axis = given.get("axis", 0) % len(shape)
        indices = np.ravel(trace.values[node.input[1]])
        return {axis: [int(index) % shape[axis] for index in indices]}
    if node.op_type == "Split":
        axis = given.get("axis", 0) % len(shape)
        sizes = [trace.values[name].shape[axis] for name in node.output[: output + 1]]
        return {axis: range(sum(sizes[:-1]), sum(sizes))}
    told: dict[str, list[int]] = {}
    for place, name in enumerate(("starts", "ends", "axes", "steps"), start=1):
        numbers = given.get(name, trace.constant(node, place))
        if numbers is not None:
            told[name] = np.ravel(numbers).tolist()
    axes = told.get("axes", list(range(len(told["starts"]))))
    steps = told.get("steps", [1] * len(axes))
    return {
        axis % len(shape): range(*slice(start, end, step).indices(shape[axis]))
        for axis, start, end, step in zip(axes, told["starts"], told["ends"], steps)
    }


def _moved(trace: Trace, name: str) -> list[int] | None:
    """For each axis of a value, the axis it was before the layout operator that made it."""
    node = trace.producers[name]
    if node.op_type not in LAYOUT:
        return None
    after, before = trace.values[name].shape, trace.values[node.input[0]].shape
    if node.op_type == "Transpose":
        return list(attributes_of(node).get("perm", range(len(after))[::-1]))
    if len(after) != len(before) or [n for n in after if n > 1] != [n for n in before if n > 1]:
        return None
    # Only axes of size 1 have moved: the transpose of a map with one channel may be a reshape.
    large = [axis for axis, size in enumerate(before) if size > 1]
    ones = [axis for axis, size in enumerate(before) if size == 1]
    return [large.pop(0) if size > 1 else ones.pop(0) for size in after]
