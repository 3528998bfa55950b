"""Nodes that repeat a value, whatever its numbers are.

That a node repeated its input on one run is not enough. A rare index may be replaced by another, and an
end may move with the input. So only what holds for all numbers counts.
"""

from __future__ import annotations

import numpy as np
import onnx

from dlb_graph.truth.block_search import run_nodes
from dlb_graph.truth.layout import LAYOUT, gather_permutation, padding_of, selected_indices
from dlb_graph.truth.trace import Trace, attributes_of

__all__ = ["COPY_OPERATORS", "copied_value", "moves_numbers", "repeated_value"]

#: Operators on indices whose result at a position depends on that position alone.
# fmt: off
_ELEMENTWISE = {
    "Abs", "Add", "And", "Cast", "CastLike", "Clip", "Div", "Equal", "Floor", "Greater",
    "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Max", "Min", "Mod", "Mul", "Neg", "Not",
    "Or", "Sub", "Where", "Xor",
}
# fmt: on
#: Operators that select or arrange indices, and change none.
_SELECTS = LAYOUT | {"Concat", "Expand", "Gather", "Pad", "Slice", "Split", "Tile"}
#: Every operator that may repeat a value.
COPY_OPERATORS = _ELEMENTWISE | _SELECTS | {"Dropout"}
#: Most entries of a table for which every index is tried.
_MOST_ENTRIES = 1 << 24


def moves_numbers(trace: Trace, node: onnx.NodeProto) -> bool:
    """Whether a node is a layout operator that arranges every input's numbers in one way."""
    return (
        node.op_type in LAYOUT
        and node.input[0] in trace.live
        and trace.live.isdisjoint(node.input[1:])
    )


def repeated_value(trace: Trace, node: onnx.NodeProto, output: str) -> str | None:
    """The value whose numbers a node's output has, perhaps in another order; None if it computes another."""
    if moves_numbers(trace, node) or gather_permutation(trace, node) is not None:
        return str(node.input[0])
    return copied_value(trace, node, output)


def copied_value(trace: Trace, node: onnx.NodeProto, output: str) -> str | None:
    """The value that a node repeats, with its shape; None if it computes another.

    Args:
        output: the output of the node that is asked for.
    """
    first = node.input[0] if node.input else ""
    value = trace.values[output]
    if first in trace.live and _is_copy(trace, node, output):
        return first
    if value.dtype.kind in "iu" or node.op_type in ("Cast", "CastLike"):
        return _unchanged_index(trace, output)
    return None


def _is_copy(trace: Trace, node: onnx.NodeProto, output: str) -> bool:
    """Whether a node without arithmetic repeats its first input."""
    value, source = trace.values[output], trace.values[node.input[0]]
    if value.shape != source.shape:
        return False
    if node.op_type in ("Cast", "CastLike"):
        # Indices are below 2^31. Casts between real types only round.
        widens = value.dtype.kind == source.dtype.kind == "b" or value.dtype.kind == "f"
        integers = value.dtype.kind in "iu" and source.dtype.kind in "iub"
        return (widens or (integers and value.dtype.itemsize >= 4)) and np.array_equal(
            value, source
        )
    if not trace.live.isdisjoint(node.input[1:]):
        return False
    if node.op_type in ("Expand", "Tile"):
        return True
    if node.op_type == "Dropout":
        return np.array_equal(value, source)
    if node.op_type == "Pad":
        widths = attributes_of(node).get("pads", trace.constant(node, 1))
        return padding_of(trace, node) is not None or not np.any(widths)
    if node.op_type == "Slice":
        selected = selected_indices(trace, node)
        return selected is not None and all(
            list(indices) == list(range(value.shape[axis])) for axis, indices in selected.items()
        )
    return False


def _unchanged_index(trace: Trace, output: str) -> str | None:
    """The value of indices that arithmetic leaves as they are, for every index; None if there is none.

    The indices are those of the table that they look up, from 0 on.
    """
    nodes, leaf = _arithmetic_before(trace, output)
    if leaf is None or not nodes or trace.values[leaf].shape != trace.values[output].shape:
        return None
    entries = _entries(trace, _root(trace, leaf))
    if entries is None or entries > _MOST_ENTRIES:
        return None
    inner_names = {name for node in nodes for name in node.output} | {leaf, ""}
    constants = {name for node in nodes for name in node.input} - inner_names
    indices = np.arange(entries).astype(trace.values[leaf].dtype)
    inputs = {leaf: indices}
    for name in constants:
        numbers = trace.values[name].ravel()
        if not numbers.size or (numbers != numbers[0]).any():
            return None
        inputs[name] = numbers[0]
    result = run_nodes(trace, nodes, inputs, output)
    return leaf if np.array_equal(result, indices) else None


def _arithmetic_before(trace: Trace, output: str) -> tuple[list[onnx.NodeProto], str | None]:
    """The elementwise nodes that compute a value of indices, and the one value that they read."""
    names, leaves, waiting = set[str](), set[str](), [output]
    while waiting:
        name = waiting.pop()
        node = trace.producers.get(name)
        if node is None or node.op_type not in _ELEMENTWISE:
            leaves.add(name)
            continue
        new_names = {read for read in node.input if read in trace.live} - names
        names.update(node.output)
        waiting += new_names
    nodes = [node for node in trace.nodes if not names.isdisjoint(node.output)]
    return nodes, leaves.pop() if len(leaves) == 1 else None


def _root(trace: Trace, name: str) -> str | None:
    """The graph's input that a value of indices was selected from; None if there is none."""
    while name not in trace.inputs:
        node = trace.producers[name]
        live = {read for read in node.input if read in trace.live}
        if node.op_type not in _SELECTS | _ELEMENTWISE or len(live) != 1:
            return None
        (name,) = live
    return name


def _entries(trace: Trace, root: str | None) -> int | None:
    """The number of entries of the smallest table that an input's indices look up."""
    sizes = []
    for node in trace.nodes:
        table = _table(trace, node)
        if table is None:
            continue
        indices, entries = table
        found, waiting = set[str](), [indices]
        while waiting:
            name = waiting.pop()
            if name in found or name not in trace.live:
                continue
            found.add(name)
            producer = trace.producers.get(name)
            if producer is not None and producer.op_type in _SELECTS | _ELEMENTWISE:
                waiting += producer.input
        if root in found:
            sizes.append(entries)
    return min(sizes, default=None)


def _table(trace: Trace, node: onnx.NodeProto) -> tuple[str, int] | None:
    """The indices that look up a table, and the number of its entries; None if nothing is looked up."""
    if node.op_type == "Gather" and node.input[0] not in trace.live:
        axis = attributes_of(node).get("axis", 0)
        return node.input[1], trace.values.shape(node.input[0])[axis]
    depth = trace.constant(node, 1) if node.op_type == "OneHot" else None
    return None if depth is None else (node.input[0], int(depth.item()))
