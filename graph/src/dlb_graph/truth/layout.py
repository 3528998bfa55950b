"""Operators that only move numbers, and padding and slicing around them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx

from dlb_graph.layers import Resize
from dlb_graph.layers.numbers import Array
from dlb_graph.truth.resizing import interpolation_of, nearest_indices
from dlb_graph.truth.trace import Trace, attributes_of
from dlb_worker.onnx_file import LAYOUT

__all__ = [
    "LAYOUT",
    "REPEATING",
    "RESIZING",
    "SCATTERING",
    "SELECTING",
    "Padding",
    "before_expand",
    "before_layout",
    "gather_permutation",
    "interpolation",
    "padding_before",
    "padding_of",
    "pads_of",
    "previous_axes",
    "selected_indices",
]


#: Operators that repeat a value along axes.
REPEATING = ("Expand", "Tile")
#: Operators that put numbers of one value into another.
SCATTERING = ("ScatterElements", "ScatterND")
#: Operators that select numbers of a value, wherever they are.
SELECTING = ("Compress", "GatherElements", "GatherND", "ReverseSequence")
#: Operators that resize.
RESIZING = ("Resize", "Upsample")


def gather_permutation(trace: Trace, node: onnx.NodeProto) -> npt.NDArray[np.int64] | None:
    """The permutation of a Gather that takes each number of a one-axis value once, else None.

    Torch's exporter writes strides so.

    Returns:
        int64 in the output's shape: where each number lies in the value.
    """
    if node.op_type != "Gather" or node.input[0] not in trace.live or node.input[1] in trace.live:
        return None
    shape = trace.values[node.input[0]].shape
    indices = trace.values[node.input[1]]
    if len(shape) != 1 or indices.size != shape[0]:
        return None
    indices = indices % shape[0]
    return indices if np.array_equal(np.sort(indices, axis=None), np.arange(shape[0])) else None


def before_expand(trace: Trace, name: str) -> str:
    """The value before an Expand, or the value itself.

    A product broadcasts one number for each channel without an Expand.
    """
    node = trace.producers.get(name)
    return node.input[0] if node is not None and node.op_type == "Expand" else name


def before_layout(trace: Trace, name: str, scale: Array) -> tuple[str, Array]:
    """The value before a Transpose, or before a Reshape of a single channel, and its factor.

    Args:
        scale: the factor of the named value.

    Returns:
        the earlier value's name, and the factor with that value's axes.
    """
    node = trace.producers.get(name)
    if node is None or node.op_type not in ("Transpose", "Reshape"):
        return name, scale
    shape = trace.values[node.input[0]].shape
    if node.op_type == "Transpose":
        perm = attributes_of(node).get("perm", range(len(shape))[::-1])
        if scale.ndim > len(perm):
            return name, scale
        broadcast = scale.reshape((1,) * (len(perm) - scale.ndim) + scale.shape)
        return node.input[0], broadcast.transpose(np.argsort(perm))
    if shape[1:2] != (1,) or scale.size != math.prod(shape[2:]):
        return name, scale
    return node.input[0], scale.reshape(shape[1:])


@dataclass(frozen=True)
class Padding:
    """The padding that Pad operators add around a feature map [N, C, ...].

    Attributes:
        value: name of the padded value.
        before, after: numbers added on each axis but the first two; empty for no padding.
        number: the constant that was added.
    """

    value: str
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    number: float = 0.0


def padding_before(trace: Trace, name: str) -> Padding:
    """The padding of a value, also through layout operators.

    Pads of the batch or channel axis, pads in other modes and crops are ignored.
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
        previous = previous_axes(trace, value)
        if previous is None:
            return Padding(name)
        axes, value = [previous[axis] for axis in axes], first
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
    """The widths of a Pad before each axis and then after each axis, and its constant.

    None for other modes, for crops, and if the widths depend on the input.
    """
    attributes, constant = attributes_of(node), trace.constant(node, 2)
    pads = pads_of(trace, node)
    if pads is None or attributes.get("mode", "constant") != "constant":
        return None
    if pads.min() < 0 or (constant is not None and constant.size != 1):
        return None
    number = attributes.get("value", 0.0) if constant is None else constant.ravel()[0]
    return tuple(pads.ravel().tolist()), float(number)


def pads_of(trace: Trace, node: onnx.NodeProto) -> npt.NDArray[np.int64] | None:
    """The widths of a Pad, int64 [2, axes]: before and after each axis; None if they depend on the input."""
    attributes, rank = attributes_of(node), trace.values[node.input[0]].ndim
    widths, axes = attributes.get("pads", trace.constant(node, 1)), trace.constant(node, 3)
    if widths is None or not trace.live.isdisjoint(node.input[1:]):
        return None
    pads = np.zeros((2, rank), np.int64)
    axis_numbers = range(rank) if axes is None else axes.ravel()
    pads[:, [int(axis) % rank for axis in axis_numbers]] = np.reshape(widths, (2, -1))
    return pads


#: Modes in which a Pad repeats numbers of the value, called as in NumPy.
_REPEATING = ("reflect", "edge", "wrap")


def selected_indices(
    trace: Trace, node: onnx.NodeProto, output: int = 0
) -> Mapping[int, Sequence[int]] | None:
    """The indices that a Slice, Gather, Resize, Pad, Expand, Tile or one output of a Split selects along axes.

    Args:
        output: which output of a Split.

    Returns:
        indices by axis, both counted from 0; whole axes may be among them. None if they depend on
        the input, if a Resize computes with several elements, or a Pad adds other numbers.
    """
    attributes, shape = attributes_of(node), trace.values[node.input[0]].shape
    if any(name in trace.live for name in node.input[1:]):
        return None
    if node.op_type in RESIZING:
        return nearest_indices(node, _opset(trace), shape, _other_inputs(trace, node))
    if node.op_type == "Pad":
        pads, mode = pads_of(trace, node), attributes.get("mode", "constant")
        if pads is None or pads.min() < 0 or mode not in _REPEATING:
            return None
        return {
            axis: np.pad(np.arange(size), pads[:, axis], mode=mode).tolist()
            for axis, size in enumerate(shape)
            if pads[:, axis].any()
        }
    if node.op_type in REPEATING:
        after = trace.values[node.output[0]].shape
        if len(after) != len(shape):
            return None
        return {
            axis: [place % size for place in range(larger)]
            for axis, (size, larger) in enumerate(zip(shape, after))
            if size != larger
        }
    if node.op_type == "Gather":
        axis = attributes.get("axis", 0) % len(shape)
        indices = np.ravel(trace.values[node.input[1]])
        return {axis: [int(index) % shape[axis] for index in indices]}
    if node.op_type == "Split":
        axis = attributes.get("axis", 0) % len(shape)
        sizes = [trace.values[name].shape[axis] for name in node.output[: output + 1]]
        return {axis: range(sum(sizes[:-1]), sum(sizes))}
    options: dict[str, list[int]] = {}
    for index, name in enumerate(("starts", "ends", "axes", "steps"), start=1):
        numbers = attributes.get(name, trace.constant(node, index))
        if numbers is not None:
            options[name] = np.ravel(numbers).tolist()
    axes = options.get("axes", list(range(len(options["starts"]))))
    steps = options.get("steps", [1] * len(axes))
    return {
        axis % len(shape): range(*slice(start, end, step).indices(shape[axis]))
        for axis, start, end, step in zip(axes, options["starts"], options["ends"], steps)
    }


def interpolation(trace: Trace, node: onnx.NodeProto) -> Resize | None:
    """The resize of all axes of a value that a Resize or Upsample is.

    None for nodes that :func:`~dlb_graph.truth.resizing.interpolation_of` leaves out, and if sizes
    depend on the input.
    """
    if node.op_type not in RESIZING or not trace.live.isdisjoint(node.input[1:]):
        return None
    shape = trace.values[node.input[0]].shape
    return interpolation_of(node, _opset(trace), shape, _other_inputs(trace, node))


def _opset(trace: Trace) -> int:
    return next((o.version for o in trace.opsets if o.domain in ("", "ai.onnx")), 0)


def _other_inputs(trace: Trace, node: onnx.NodeProto) -> list[Array | None]:
    return [trace.constant(node, number) for number in range(1, len(node.input))]


def previous_axes(trace: Trace, name: str) -> list[int] | None:
    """For each axis of a layout operator's output, the axis of its input; None if unclear."""
    node = trace.producers[name]
    if node.op_type not in LAYOUT:
        return None
    after, before = trace.values[name].shape, trace.values[node.input[0]].shape
    if node.op_type == "Transpose":
        return list(attributes_of(node).get("perm", range(len(after))[::-1]))
    if len(after) != len(before) or [n for n in after if n > 1] != [n for n in before if n > 1]:
        return None
    # Only axes of size 1 moved: a map with one channel may be transposed by a reshape.
    large = [axis for axis, size in enumerate(before) if size > 1]
    ones = [axis for axis, size in enumerate(before) if size == 1]
    return [large.pop(0) if size > 1 else ones.pop(0) for size in after]
