"""Which numbers along an axis are the largest."""

from __future__ import annotations

from dataclasses import dataclass

from onnx import NodeProto

from dlb.graph.copies import moves_numbers
from dlb.graph.reader import Attributes, Operation, Reader, generic_operation
from dlb.graph.trace import Trace, attributes_of

__all__ = ["RANKING", "Ranking", "ranked", "ranking_of"]

#: Operators that output where the largest or smallest numbers are; a TopK does as its second output.
RANKING = ("ArgMax", "ArgMin", "TopK")


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
