"""Graphs in which everything that no input decides is one constant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper

from dlb_graph.layers.numbers import Array
from dlb_graph.truth.evaluate import Evaluator, names_read

__all__ = ["FoldedGraph", "fold_constants"]

#: Operators that leave the numbers of a constant in their order.
_SAME_NUMBERS = {"Cast", "Flatten", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}


@dataclass(frozen=True)
class FoldedGraph:
    """A graph without the nodes that compute constants.

    Attributes:
        model: the graph; its initialisers are the constants that its nodes read.
        constants: these initialisers by name.
        sources: for each constant, the name of the one initialiser of the original graph that it is, in some
            layout; the constant's own name if it was computed.
    """

    model: onnx.ModelProto
    constants: Mapping[str, Array]
    sources: Mapping[str, str]


def fold_constants(model: onnx.ModelProto) -> FoldedGraph:
    """Compute all values that depend neither on inputs nor on their shapes.

    Exporters compute weights by chains of operators, such as the transposed matrix of a product.

    Raises:
        UnsupportedError: a constant cannot be computed.
    """
    graph = model.graph
    initialisers = {tensor.name for tensor in graph.initializer}
    known = {"", *initialisers, *(tensor.values.name for tensor in graph.sparse_initializer)}
    folded: list[onnx.NodeProto] = []
    left: list[onnx.NodeProto] = []
    for node in graph.node:
        (folded if names_read(node) <= known else left).append(node)
        if folded and folded[-1] is node:
            known.update(node.output)
    producers = {name: node for node in folded for name in node.output if name}
    read = {value.name for value in graph.output}.union(*map(names_read, left)) & known - {""}
    names = sorted(read)
    static = onnx.ModelProto()
    static.CopyFrom(model)
    for field in (static.graph.node, static.graph.input, static.graph.output):
        del field[:]
    static.graph.node.extend(folded)
    constants = Evaluator(static).run({}, names)
    result = onnx.ModelProto()
    result.CopyFrom(model)
    for field in (
        result.graph.node,
        result.graph.input,
        result.graph.initializer,
        result.graph.sparse_initializer,
    ):
        del field[:]
    result.graph.node.extend(left)
    result.graph.input.extend(value for value in graph.input if value.name not in initialisers)
    result.graph.initializer.extend(
        numpy_helper.from_array(
            np.ascontiguousarray(constants[name]).reshape(constants[name].shape), name
        )
        for name in names
    )
    sources = {name: _source(name, producers, initialisers) for name in names}
    return FoldedGraph(result, constants, sources)


def _source(name: str, producers: Mapping[str, onnx.NodeProto], initialisers: set[str]) -> str:
    """The initialiser that a constant is in some layout, or the copy of one; else its own name.

    Exporters keep equal numbers once, and copy them with Identity for each parameter that has them.
    """
    inner = name
    while inner in producers and producers[inner].op_type in _SAME_NUMBERS:
        inner = producers[inner].input[0]
    copied = inner in producers and producers[inner].op_type == "Identity"
    return inner if inner in initialisers or copied else name
