"""Einsum as a matrix product between rearrangements of its values (ONNX Einsum)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import helper

from dlb_graph.layers.numbers import Array
from dlb_graph.truth.held import Values
from dlb_graph.truth.trace import Trace, attributes_of

__all__ = ["with_matrix_products"]


def with_matrix_products(traced: Trace) -> Trace:
    """The graph with each Einsum that multiplies two values replaced by Transpose, Reshape and MatMul.

    An Einsum of one value, of more than two, or that adds up an axis of one alone, stays.
    """
    if not any(node.op_type == "Einsum" for node in traced.nodes):
        return traced
    values, live = traced.values.copy(), set(traced.live)
    nodes: list[onnx.NodeProto] = []
    for node in traced.nodes:
        product = None
        if node.op_type == "Einsum" and len(node.input) == 2 and node.output[0] in live:
            product = _product(node, values, live)
        nodes += [node] if product is None else product
    return replace(
        traced,
        nodes=tuple(nodes),
        values=values,
        live=frozenset(live),
        producers={name: node for node in nodes for name in node.output if name},
    )


def _product(node: onnx.NodeProto, values: Values, live: set[str]) -> list[onnx.NodeProto] | None:
    """The nodes of one product, whose values are added; None if it is none."""
    equation = attributes_of(node)["equation"].replace(" ", "")
    if "." in equation:
        return None
    read, _, result = equation.partition("->")
    first, second = read.split(",")
    if "->" not in equation:
        result = "".join(sorted(x for x in set(first + second) if (first + second).count(x) == 1))
    letters = [set(first), set(second), set(result)]
    if [len(found) for found in letters] != [len(first), len(second), len(result)]:
        return None  # the diagonal of a value
    if letters[0] ^ letters[1] != letters[2] - (letters[0] & letters[1]):
        return None  # one value alone is added up
    shared = [x for x in result if x in letters[0] & letters[1]]
    added = [x for x in first if x in letters[1] and x not in letters[2]]
    left, right = ([x for x in result if x in letters[k] and x not in shared] for k in (0, 1))
    sizes = dict(zip(first + second, (*values[node.input[0]].shape, *values[node.input[1]].shape)))

    parts = _Parts(node, values, live)

    def shape(*groups: Sequence[str]) -> list[int]:
        return [int(np.prod([sizes[x] for x in group], dtype=np.int64)) for group in groups]

    outer = [sizes[x] for x in shared]
    constants = [name not in live for name in node.input]
    if any(constants) and not shared:
        # A constant matrix multiplies the last axis of the other value, whose axes stay apart.
        value, matrix = (1, 0) if constants[0] else (0, 1)
        kept, columns = (right, left) if constants[0] else (left, right)
        source = parts.arranged(
            node.input[value],
            (first, second)[value],
            [*kept, *added],
            [*(sizes[x] for x in kept), *shape(added)],
        )
        weight = parts.arranged(
            node.input[matrix], (first, second)[matrix], [*added, *columns], shape(added, columns)
        )
        product = parts.add("MatMul", [source, weight], np.matmul(values[source], values[weight]))
        order = [*kept, *columns]
    else:
        source = parts.arranged(
            node.input[0], first, [*shared, *left, *added], [*outer, *shape(left, added)]
        )
        weight = parts.arranged(
            node.input[1], second, [*shared, *added, *right], [*outer, *shape(added, right)]
        )
        product = parts.add("MatMul", [source, weight], np.matmul(values[source], values[weight]))
        order = [*shared, *left, *right]
    parts.finish(product, order, result, [sizes[x] for x in order])
    return parts.nodes


class _Parts:
    """The nodes that replace one node."""

    def __init__(self, node: onnx.NodeProto, values: Values, live: set[str]) -> None:
        self.node = node
        self.values = values
        self.live = live
        self.nodes: list[onnx.NodeProto] = []

    def add(self, operator: str, names: Sequence[str], value: Array, **attributes: Any) -> str:
        """Add a node, or a constant if it reads constants alone; returns the name of its output."""
        name = f"{self.node.output[0]}/{len(self.nodes)}"
        while name in self.values:
            name += "_"
        self.values[name] = value
        if not self.live.isdisjoint(names):
            self.live.add(name)
        label = self.node.name or self.node.output[0]
        self.nodes.append(helper.make_node(operator, names, [name], label, **attributes))
        return name

    def arranged(self, name: str, letters: str, order: Sequence[str], shape: Sequence[int]) -> str:
        """A value with its axes in an order, and then in a shape."""
        perm = [letters.index(x) for x in order]
        if perm != sorted(perm):
            name = self.add("Transpose", [name], self.values[name].transpose(perm), perm=perm)
        if self.values[name].shape != tuple(shape):
            name = self._reshaped(name, shape)
        return name

    def _reshaped(self, name: str, shape: Sequence[int]) -> str:
        sizes = self.add("Constant", [], np.array(shape, np.int64))
        del self.nodes[-1]  # its value is enough
        return self.add("Reshape", [name, sizes], self.values[name].reshape(shape))

    def finish(self, name: str, order: Sequence[str], result: str, shape: Sequence[int]) -> None:
        """Bring the product into the shape and order of the replaced node, whose output it is."""
        if self.values[name].shape != tuple(shape):
            name = self._reshaped(name, shape)
        perm = [order.index(x) for x in result]
        if perm != sorted(perm):
            self.add("Transpose", [name], self.values[name].transpose(perm), perm=perm)
        self.nodes[-1].output[0] = self.node.output[0]
