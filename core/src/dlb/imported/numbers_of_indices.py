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

from dlb.graph.copies import moves_numbers
from dlb.graph.trace import Trace, attributes_of

__all__ = ["NumbersOfIndices", "with_numbers_of_indices"]

#: The first operator set in which Squeeze reads its axes.
_AXES_ARE_INPUTS = 13
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
        None if the input looks up no row of a table, or if nothing else reads its integers.
    """
    indices = _indices(traced)
    lookups = [node for node in traced.nodes if _looks_up(traced, node, indices)]
    found = {node.output[0] for node in lookups}
    reading = {
        node.output[0]
        for node in traced.nodes
        if not indices.isdisjoint(node.input) and not traced.live.isdisjoint(node.output)
    }
    reading -= indices | found
    if not lookups or not reading:
        return None
    entries = min(len(traced.values[node.input[0]]) for node in lookups)
    numbers = np.arange(entries, dtype=np.float64).reshape(-1, 1)
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    del changed.graph.node[:]
    changed.graph.initializer.append(numpy_helper.from_array(numbers, _TABLE))
    changed.graph.initializer.append(numpy_helper.from_array(np.array([-1]), _LAST))
    known = set[str]()
    for node in traced.nodes:
        if node.output[0] in reading:
            new = onnx.NodeProto()
            new.CopyFrom(node)
            for place, name in enumerate(node.input):
                if name in indices:
                    new.input[place] = f"{name}/number"
                    if name not in known:
                        changed.graph.node.extend(_numbers(traced, name, opset))
                    known.add(name)
            node = new
        changed.graph.node.append(node)
    rows = (f"{name}/row" for name in known)
    numbers_of = frozenset(f"{name}/number" for name in known)
    return NumbersOfIndices(changed, indices, frozenset((*found, *rows)), numbers_of)


def _indices(traced: Trace) -> frozenset[str]:
    """The input's integers, and values that hold them in another order or type of integers."""
    found = {name for name in traced.inputs if traced.values[name].dtype.kind in "iu"}
    for node in traced.nodes:
        same = moves_numbers(traced, node) or node.op_type in ("Cast", "Identity")
        whole = all(traced.values[name].dtype.kind in "iu" for name in node.output if name)
        if same and whole and node.input[0] in found:
            found.update(node.output)
    return frozenset(found)


def _looks_up(traced: Trace, node: onnx.NodeProto, indices: Collection[str]) -> bool:
    """Whether a node selects rows of a constant table by the input's integers."""
    if node.op_type != "Gather" or node.input[1] not in indices or node.input[0] in traced.live:
        return False
    return traced.values[node.input[0]].ndim == 2 and not attributes_of(node).get("axis", 0)


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
