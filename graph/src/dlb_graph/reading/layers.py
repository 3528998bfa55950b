"""Layers as they are imported, and the reasons why a graph cannot be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx

from dlb_graph.layers import Layer
from dlb_graph.layers.numbers import Array
from dlb_graph.reading.views import Shape

__all__ = [
    "BlockMisread",
    "ImportedLayer",
    "InputMisread",
    "PendingAttention",
    "PendingConcat",
    "UnsupportedNode",
    "unsupported",
]


class UnsupportedNode(Exception):
    """The reason why dlb cannot read a node. The text begins with the node."""


def unsupported(node: onnx.NodeProto, reason: str) -> UnsupportedNode:
    """The exception whose text names the node, then the reason."""
    return UnsupportedNode(f"node '{node.name or node.output[0]}' ({node.op_type}): {reason}")


class InputMisread(Exception):
    """The graph's input must be read in another way.

    Attributes:
        axes: of the file's input, in the order in which a layer reads them; None to keep the order.
        index: whether an embedding looks up the input as integers.
    """

    def __init__(self, axes: tuple[int, ...] | None = None, index: bool = False) -> None:
        super().__init__()
        self.axes = axes
        self.index = index


class BlockMisread(Exception):
    """Operators that look like a layer are none, since what must follow them does not.

    Attributes:
        output: of the last of them.
    """

    def __init__(self, output: str) -> None:
        super().__init__()
        self.output = output


@dataclass(frozen=True)
class PendingAttention:
    """An attention whose output map has not been read yet.

    Attributes:
        output: of its last operator.
    """

    heads: int
    causal: bool
    output: str


@dataclass(frozen=True)
class PendingConcat:
    """A sequence between constant steps, whose position table has not been read yet."""


@dataclass(frozen=True)
class ImportedLayer:
    """A layer that was read.

    Attributes:
        layer: the layer; None for the input.
        inputs: names of the layers that it reads, or of the input.
        weights: its parameters and states by name, float64, in canonical layout.
        shape: of its value, [N, ...].
        source: what the file calls it.
        node: that a rule read it from; None if it comes from several, or from none.
    """

    layer: Layer | PendingAttention | PendingConcat | None
    inputs: tuple[str, ...]
    weights: Mapping[str, Array]
    shape: Shape
    source: str = ""
    node: onnx.NodeProto | None = None
