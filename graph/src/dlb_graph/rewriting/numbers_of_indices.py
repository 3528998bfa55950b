"""Integers of an input that look up rows of a table and are computed with as well.

Layers read such an input by a table alone, so that what computes with it reads the numbers of a table of
themselves: 0 in its first row, 1 in its second.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from dlb_graph.rewriting.node_writer import with_nodes
from dlb_graph.truth.block_search import run_nodes
from dlb_graph.truth.copies import moves_numbers
from dlb_graph.truth.trace import Trace, attributes_of

__all__ = ["NumbersOfIndices", "with_numbers_of_indices"]

#: The first operator set in which Squeeze reads its axes.
_AXES_ARE_INPUTS = 13
#: How many integers are tried, where what is computed of them looks up rows.
_MOST_NUMBERS = 100
_TABLE, _LAST = "dlb/indices/numbers", "dlb/indices/last"


@dataclass(frozen=True)
class NumbersOfIndices:
    """A model whose input looks up rows, and nothing else.

    Attributes:
        indices: values that hold the input's integers.
        lookups: the outputs of nodes that look up rows of a table by them.
        numbers: of indices, looked up as real numbers and cast to integers.
    """

    model: onnx.ModelProto
    indices: frozenset[str]
    lookups: frozenset[str]
    numbers: frozenset[str]


def with_numbers_of_indices(
    model: onnx.ModelProto, traced: Trace, opset: int
) -> NumbersOfIndices | None:
    """The model in which what computes with integers of the input reads real numbers of a table.

    Returns:
        None if the input looks up no row of a table, as it is or computed with, or if nothing else reads its
        integers.
    """
    indices = _indices(traced)
    lookups = [node for node in traced.nodes if _looks_up(traced, node, indices)]
    rows_of = {node.output[0] for node in lookups}
    reading = {
        node.output[0]
        for node in traced.nodes
        if not indices.isdisjoint(node.input) and not traced.live.isdisjoint(node.output)
    }
    reading -= indices | rows_of
    sizes = [len(traced.values[node.input[0]]) for node in lookups]
    entries = min(sizes) if sizes else _valid_numbers(traced, indices)
    if not entries or not reading:
        return None
    numbers = np.arange(entries, dtype=np.float64).reshape(-1, 1)
    constants = {_TABLE: numbers, _LAST: np.array([-1])}
    known, nodes = set[str](), list[onnx.NodeProto]()
    for node in traced.nodes:
        if node.output[0] in reading:
            new = onnx.NodeProto()
            new.CopyFrom(node)
            for place, name in enumerate(node.input):
                if name in indices:
                    new.input[place] = f"{name}/number"
                    if name not in known:
                        nodes.extend(_numbers(traced, name, opset))
                    known.add(name)
            node = new
        nodes.append(node)
    tensors = (numpy_helper.from_array(array, name) for name, array in constants.items())
    changed = with_nodes(model, nodes, tensors)
    rows = (f"{name}/row" for name in known)
    numbers_of = frozenset(f"{name}/number" for name in known)
    return NumbersOfIndices(changed, indices, frozenset((*rows_of, *rows)), numbers_of)


def _indices(traced: Trace) -> frozenset[str]:
    """The input's integers, and values that hold them in another order or type of integers."""
    names = {name for name in traced.inputs if traced.values[name].dtype.kind in "iu"}
    for node in traced.nodes:
        same = moves_numbers(traced, node) or node.op_type in ("Cast", "Identity")
        integers = all(traced.values[name].dtype.kind in "iu" for name in node.output if name)
        if same and integers and node.input[0] in names:
            names.update(node.output)
    return frozenset(names)


def _looks_up(traced: Trace, node: onnx.NodeProto, indices: Collection[str]) -> bool:
    """Whether a node selects rows of a constant table by the input's integers."""
    if node.op_type != "Gather" or node.input[1] not in indices or node.input[0] in traced.live:
        return False
    return traced.values[node.input[0]].ndim == 2 and not attributes_of(node).get("axis", 0)


def _valid_numbers(traced: Trace, indices: Collection[str]) -> int:
    """How many integers of the input, from 0, look up rows that are there, computed with; 0 without a table."""
    nodes, computed, tables = list[onnx.NodeProto](), {*indices}, dict[str, int]()
    for node in traced.nodes:
        if _looks_up(traced, node, computed):
            rows = len(traced.values[node.input[0]])
            tables[node.input[1]] = min(rows, tables.get(node.input[1], rows))
        elif (
            not computed.isdisjoint(node.input)
            and traced.values[node.output[0]].dtype.kind in "biu"
        ):
            nodes.append(node)
            computed.update(node.output)
    for number in range(_MOST_NUMBERS if tables else 0):
        feed = {name: np.full_like(traced.values[name], number) for name in traced.inputs}
        for name, rows in tables.items():
            places = run_nodes(traced, nodes, feed, name)
            if places.min() < -rows or places.max() >= rows:
                return number
    return _MOST_NUMBERS if tables else 0


def _numbers(traced: Trace, name: str, opset: int) -> Iterator[onnx.NodeProto]:
    """Nodes for integers, of the real numbers of the table."""
    row, real = f"{name}/row", f"{name}/real"
    yield helper.make_node("Gather", [_TABLE, name], [row], f"{name}/number")
    if opset < _AXES_ARE_INPUTS:
        yield helper.make_node("Squeeze", [row], [real], axes=[-1])
    else:
        yield helper.make_node("Squeeze", [row, _LAST], [real])
    kind = helper.np_dtype_to_tensor_dtype(traced.values[name].dtype)
    yield helper.make_node("Cast", [real], [f"{name}/number"], to=kind)
