"""A graph of ONNX nodes under construction, and the nodes of a layer in it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from dlb_graph.errors import WorkloadError
from dlb_graph.layers import Shape
from dlb_graph.layers.decimals import decimal
from dlb_graph.layers.numbers import Array
from dlb_graph.workload.model import Node

__all__ = ["Graph", "add_layer"]


class Graph:
    """Nodes and initialisers of a graph under construction.

    Attributes:
        dtype: of every real number in it.
        training: whether batch normalisation uses the batch's statistics.
        masks: what dropout multiplies by in training, by layer name.
        offsets: what straight-through roundings add instead of rounding, by layer name.
        nodes: in order.
        initializers: by name.
        running: shapes of the running statistics that training outputs, by name.
    """

    def __init__(
        self,
        dtype: np.dtype[Any],
        training: bool,
        masks: Mapping[str, Array],
        offsets: Mapping[str, Array] | None = None,
    ) -> None:
        self.dtype = dtype
        self.training = training
        self.masks = masks
        self.offsets = offsets or {}
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, Array] = {}
        self.running: dict[str, Shape] = {}

    def node(
        self,
        operator: str,
        inputs: Sequence[str],
        output: str | Sequence[str],
        *,
        name: str = "",
        **attributes: Any,
    ) -> str:
        """Add a node, named like its first output unless ``name`` is set; returns that output."""
        outputs = [output] if isinstance(output, str) else list(output)
        self.nodes.append(
            helper.make_node(operator, inputs, outputs, name=name or outputs[0], **attributes)
        )
        return outputs[0]

    def cast(self, value: str, output: str, dtype: npt.DTypeLike) -> str:
        """Add a Cast to another type; returns ``output``."""
        element_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self.node("Cast", [value], output, to=element_type)

    def initializer(self, name: str, values: Any) -> str:
        """Add an initialiser. Real numbers get the graph's dtype; integers stay int64, and truths bool."""
        kinds = {"i": np.int64, "u": np.int64, "b": np.bool_}
        kind = kinds.get(np.asarray(values).dtype.kind, self.dtype)
        self.initializers[name] = np.asarray(values, kind, order="C")
        return name

    def within(self, name: str) -> Within:
        """What adds the nodes between the inputs of a layer, or of the loss, and the value of that name."""
        return Within(self, name)


class Within:
    """Adds nodes whose values have no meaning of their own: each is numbered, after the layer's name."""

    def __init__(self, graph: Graph, name: str) -> None:
        self._graph, self._name = graph, name
        self._numbers = itertools.count(1)

    def _next(self) -> str:
        return f"{self._name}/{next(self._numbers)}"

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node; returns its output."""
        return self._graph.node(operator, inputs, self._next(), **attributes)

    def held(self, values: Any) -> str:
        """Add an initialiser; returns its name."""
        return self._graph.initializer(self._next(), values)

    def cast(self, value: str, dtype: npt.DTypeLike) -> str:
        """Add a Cast to another type; returns its output."""
        return self._graph.cast(value, self._next(), dtype)

    def end(self, operator: str, *inputs: str, **attributes: Any) -> None:
        """Add the node that computes the value of that name."""
        self._graph.node(operator, inputs, self._name, **attributes)


def add_layer(graph: Graph, node: Node, shapes: list[Shape]) -> None:
    """Add the nodes of one layer.

    Args:
        shapes: of the layer's inputs, for one sample.

    Raises:
        WorkloadError: a real attribute has more digits than ONNX's float32 attributes keep.
    """
    fields = () if node.layer.constant_numbers else node.layer.__struct_fields__
    for name in fields:
        value = getattr(node.layer, name)
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, float) and decimal(number) != number:
                raise WorkloadError(
                    f"layer '{node.name}': {name} = {number!r} has more digits than an ONNX attribute "
                    f"(float32) keeps; write {decimal(number)!r}"
                )
    first = len(graph.nodes)
    node.layer.nodes(graph, node.name, list(node.inputs), shapes)
    own = f"{node.name}."
    for added in graph.nodes[first:] if node.weights_of else ():
        added.input[:] = [
            f"{node.weights_of}.{name[len(own) :]}" if name.startswith(own) else name
            for name in added.input
        ]
