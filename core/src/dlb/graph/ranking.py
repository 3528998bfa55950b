"""Which numbers are the largest, and numbers in places that the graph computes."""

from __future__ import annotations

from dataclasses import dataclass

from onnx import NodeProto

from dlb.graph.copies import moves_numbers
from dlb.graph.layout import before_expand
from dlb.graph.reader import Attributes, Operation, Reader, generic_operation
from dlb.graph.trace import Trace, attributes_of

__all__ = [
    "LOOKING_UP",
    "RANKING",
    "Ranking",
    "elements",
    "gathered_axis",
    "ranked",
    "ranking_of",
    "real_indices",
]

#: Operators that output where the largest or smallest numbers are; a TopK does as its second output.
RANKING = ("ArgMax", "ArgMin", "TopK")
#: Operators that may select numbers in places that the graph computes.
LOOKING_UP = ("GatherElements", "GatherND")


@dataclass(frozen=True)
class Ranking:
    """What an operator of :data:`RANKING` looks for.

    Attributes:
        axis: of its input, from 0.
        k: how many numbers.
        largest: or the smallest.
    """

    axis: int
    k: int
    largest: bool


def ranking_of(trace: Trace, node: NodeProto) -> Ranking | None:
    """What an operator looks for; None if how many depends on the input, or the last of equals counts."""
    raw, shape = attributes_of(node), trace.values[node.input[0]].shape
    if node.op_type != "TopK":
        if raw.get("select_last_index", 0):
            return None
        return Ranking(raw.get("axis", 0) % len(shape), 1, node.op_type == "ArgMax")
    axis = raw.get("axis", -1) % len(shape)
    if not trace.live.isdisjoint(node.input[1:]):
        return None
    return Ranking(axis, trace.values[node.output[0]].shape[axis], bool(raw.get("largest", 1)))


def ranked(reader: Reader, node: NodeProto, raw: Attributes, output: str) -> Operation | int:
    """The indices, by how many of how many numbers; the numbers themselves are gathered by these."""
    found = ranking_of(reader.trace, node)
    if found is None:
        return generic_operation(reader, node, raw, output)
    of_numbers = node.op_type == "TopK" and output == node.output[0]
    indices = node.output[-1] if len(node.output) > 1 else output
    if indices in reader.source and not of_numbers:
        return reader.source[indices]
    name, largest = node.input[0], found.largest
    producer = reader.trace.producers.get(name)
    while producer is not None and moves_numbers(reader.trace, producer):
        producer = reader.trace.producers.get(producer.input[0])
    if producer is not None and producer.op_type == "Neg" and node.op_type == "TopK":
        name, largest = producer.input[0], not largest
    size = reader.trace.values[node.input[0]].shape[found.axis]
    attributes = {"k": found.k, "largest": largest, "of": size}
    operation = reader.make(node, "TopK", attributes, [name])
    if not of_numbers:
        return operation
    operation.attributes["elements"] = reader.trace.elements(indices)
    reader.operations.append(operation)
    reader.source[indices] = len(reader.operations) - 1
    return reader.make(node, "GatherElements", {"of": size}, [node.input[0], indices])


def elements(reader: Reader, node: NodeProto, raw: Attributes, output: str) -> Operation | int:
    """Numbers by indices that depend on the input; bounds of theirs, and repetitions count for nothing."""
    trace, (data, indices) = reader.trace, node.input
    axis = gathered_axis(trace, node)
    if not {data, indices} <= trace.live or axis is None:
        return generic_operation(reader, node, raw, output)
    size = trace.values[data].shape[axis]
    indices, _ = real_indices(trace, node)
    return reader.make(node, "GatherElements", {"of": size}, [before_expand(trace, data), indices])


def gathered_axis(trace: Trace, node: NodeProto) -> int | None:
    """The axis along which a GatherElements, or a GatherND that is one, selects numbers; None for any other.

    A GatherND is one if each of its indices is that of one axis, behind those that both values share.
    """
    if node.op_type not in LOOKING_UP:
        return None
    raw, shape = attributes_of(node), trace.values[node.input[0]].shape
    if node.op_type == "GatherElements":
        axis: int = raw.get("axis", 0) % len(shape)
        return axis
    axis, indices = raw.get("batch_dims", 0), trace.values[node.input[1]].shape
    alone = indices[-1] == 1 and len(indices) == axis + 2
    return axis if axis and alone else None


def real_indices(trace: Trace, node: NodeProto) -> tuple[str, list[NodeProto]]:
    """The value that a GatherElements has its indices from, and nodes between that bound, cast or repeat it."""
    name, between = node.input[1], list[NodeProto]()
    size = trace.values[node.input[0]].shape[gathered_axis(trace, node) or 0]
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
    return name, between


def _is_bound(trace: Trace, node: NodeProto, size: int) -> bool:
    """Whether a node limits indices to those of an axis of a size."""
    if node.op_type not in ("Clip", "Max", "Min"):
        return False
    constants = [trace.values[name] for name in node.input if name and name not in trace.live]
    return len(constants) == len(node.input) - 1 and all(
        number.size == 1 and number.item() in (0, size - 1) for number in constants
    )
