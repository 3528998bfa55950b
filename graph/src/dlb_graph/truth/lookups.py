"""Numbers chosen by places that the graph computes: along an axis, the largest, or rows of a table of ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto

from dlb_graph.layers import TopK
from dlb_graph.layers.numbers import Array
from dlb_graph.truth.copies import moves_numbers
from dlb_graph.truth.layout import before_expand
from dlb_graph.truth.trace import Trace, attributes_of

__all__ = [
    "LOOKING_UP",
    "RANKING",
    "Lookup",
    "between_lookups",
    "lookup_of",
    "one_hot_table",
    "ranking_of",
]

Shape = tuple[int, ...]
#: Operators that may select numbers in places that the graph computes.
LOOKING_UP = ("Gather", "GatherElements", "GatherND")


@dataclass(frozen=True)
class Lookup:
    """What a node selects, as a GatherElements would.

    Attributes:
        data: the value that numbers are selected of.
        shape: of that value; a Gather may read it with its first axes as one.
        axis: along which.
        indices: the value that the places come from.
        given: the places themselves, as the node has them.
        sizes: of these, with as many axes as the data, 1 where one index is that of all numbers.
        between: nodes that bound, cast, repeat or arrange the indices, from the node back.
    """

    data: str
    shape: Shape
    axis: int
    indices: str
    given: str
    sizes: Shape
    between: tuple[NodeProto, ...]


def lookup_of(trace: Trace, node: NodeProto) -> Lookup | None:
    """What a node selects by indices that depend on the input; None for any other node."""
    if node.op_type not in LOOKING_UP or node.input[1] not in trace.live:
        return None
    data, indices = node.input
    raw, shape, sizes = attributes_of(node), trace.values[data].shape, trace.values[indices].shape
    if node.op_type == "GatherElements":
        axis = raw.get("axis", 0) % len(shape)
        before = before_expand(trace, indices)
        if _is_broadcast(trace.values[before].shape, shape, sizes, axis):
            indices, sizes = before, trace.values[before].shape
    elif node.op_type == "GatherND" and raw.get("batch_dims", 0):
        # The same index for all numbers behind those of the axes that both values share.
        axis = raw["batch_dims"]
        if sizes[-1] != 1 or len(sizes) != axis + 2:
            return None
        sizes = (*sizes[:-1], *(1,) * (len(shape) - axis - 1))
    else:
        return _of_own_sample(trace, node, raw)
    before = before_expand(trace, data)
    if _is_broadcast(trace.values[before].shape, sizes, shape, axis):
        data, shape = before, trace.values[before].shape
    name, between = _before_bounds(trace, indices, shape[axis])
    return Lookup(data, shape, axis, name, indices, sizes, between)


def _is_broadcast(shape: Shape, other: Shape, wanted: Shape, axis: int) -> bool:
    """Whether repeating axes of size 1, but not ``axis``, as often as another shape's gives the wanted one."""
    return len(shape) == len(wanted) and all(
        (size if place == axis else max(size, other[place])) == wanted[place]
        for place, size in enumerate(shape)
    )


def _of_own_sample(trace: Trace, node: NodeProto, raw: Mapping[str, Any]) -> Lookup | None:
    """An index for each sample: behind the number of the sample, or added to the places before the sample."""
    data, name = node.input
    shape, samples = trace.values[data].shape, trace.batch
    outer, between = _before_bounds(trace, name, 0)
    producer, whole = trace.producers.get(outer), trace.values[name].shape
    if producer is None or samples < 2 or len(producer.input) != 2:
        return None
    live = [each for each in producer.input if each in trace.live]
    held = [trace.values[each] for each in producer.input if each not in trace.live]
    if len(live) != 1 or len(held) != 1:
        return None
    own = np.arange(samples).reshape(-1, *(1,) * (len(whole) - 1))
    if node.op_type == "GatherND":
        order = producer.op_type == "Concat" and producer.input[1] == live[0]
        if not order or whole != (samples, 2) or shape[0] != samples or len(shape) < 2:
            return None
        count = 1
    else:
        along = shape[0] // samples if shape else 0
        if producer.op_type != "Add" or raw.get("axis", 0) or not along or shape[0] % samples:
            return None
        if not whole or whole[0] != samples:
            return None
        shape, own, count = (samples, along, *shape[1:]), own * along, int(np.prod(whole[1:]))
    if held[0].ndim > len(whole) or not (held[0] == own).all():
        return None
    indices, more = _before_bounds(trace, live[0], shape[1])
    sizes = (samples, count, *(1,) * (len(shape) - 2))
    return Lookup(data, shape, 1, indices, live[0], sizes, (*between, producer, *more))


def _before_bounds(trace: Trace, name: str, size: int) -> tuple[str, tuple[NodeProto, ...]]:
    """The value before nodes that bound indices to those of a size, cast, repeat or arrange them."""
    between = list[NodeProto]()
    while (producer := trace.producers.get(name)) is not None:
        before = before_expand(trace, name)
        if before == name and moves_numbers(trace, producer):
            before = producer.input[0]
        if before == name and (producer.op_type == "Cast" or _is_bound(trace, producer, size)):
            before = next(each for each in producer.input if each in trace.live)
        if before == name:
            break
        between.append(producer)
        name = before
    return name, tuple(between)


def _is_bound(trace: Trace, node: NodeProto, size: int) -> bool:
    """Whether a node limits indices to those of an axis of a size."""
    if node.op_type not in ("Clip", "Max", "Min"):
        return False
    constants = [trace.values[name] for name in node.input if name and name not in trace.live]
    return len(constants) == len(node.input) - 1 and all(
        number.size == 1 and number.item() in (0, size - 1) for number in constants
    )


def between_lookups(trace: Trace) -> frozenset[str]:
    """Values of indices that nodes between them and a lookup compute."""
    found = (lookup_of(trace, node) for node in trace.nodes)
    return frozenset(
        name for each in found if each for node in each.between for name in node.output
    )


#: Operators that output where the largest or smallest numbers are; a TopK does as its second output.
RANKING = ("ArgMax", "ArgMin", "TopK")


def ranking_of(trace: Trace, node: NodeProto) -> TopK | None:
    """What an operator of :data:`RANKING` looks for, along an axis of its input, from 0.

    None if how many depends on the input, or the last of equals counts.
    """
    raw, shape = attributes_of(node), trace.values[node.input[0]].shape
    if node.op_type != "TopK":
        if raw.get("select_last_index", 0):
            return None
        largest = node.op_type == "ArgMax"
        return TopK(axis=raw.get("axis", 0) % len(shape), largest=largest)
    axis = raw.get("axis", -1) % len(shape)
    if not trace.live.isdisjoint(node.input[1:]):
        return None
    count = trace.values[node.output[0]].shape[axis]
    return TopK(axis=axis, k=count, largest=bool(raw.get("largest", 1)))


def one_hot_table(trace: Trace, node: onnx.NodeProto) -> tuple[str, Array] | None:
    """The value whose classes a node compares with every number, and the table float64 [classes, classes].

    None if the numbers are no constants, or not along the last axis of the output.
    """
    size = trace.values[node.output[0]].shape[-1:]
    if node.op_type == "OneHot":
        depth, values = trace.constant(node, 1), trace.constant(node, 2)
        axis = attributes_of(node).get("axis", -1)
        if (
            depth is None
            or values is None
            or axis not in (-1, len(trace.values[node.output[0]].shape) - 1)
        ):
            return None
        off, on = values.ravel().astype(np.float64)
        return node.input[0], off + (on - off) * np.eye(int(depth.item()))
    live = [name for name in node.input if name in trace.live]
    constants = [trace.values[name] for name in node.input if name not in trace.live]
    if len(live) != 1 or len(constants) != 1 or constants[0].shape[-1:] != size:
        return None
    numbers = constants[0].ravel()
    if trace.values[live[0]].dtype.kind not in "iu" or not np.array_equal(
        numbers, np.arange(*size)
    ):
        return None
    return live[0], np.eye(len(numbers))
