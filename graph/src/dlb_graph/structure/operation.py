"""One computation of a graph, in the form in which graphs are compared."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dlb_graph.layers.numbers import Array

__all__ = ["WEIGHTED", "Attributes", "Operation"]

Attributes = dict[str, Any]
#: Kinds with a weight, whose channels of output come first in ``weight``, and with a bias or none.
WEIGHTED = ("Conv", "ConvTranspose", "Linear")


@dataclass(frozen=True)
class Operation:
    """One computation of a graph.

    Attributes:
        name: of the node that it was read from; in a canonical graph, the layer's name.
        kind: the ONNX operator, or ``Linear`` for Gemm and MatMul and ``Embedding`` for Gather.
        attributes: with defaults and paddings resolved, and shapes in one layout.
        inputs: indices of its inputs in the list of operations; -1, -2, ... are the graph's inputs.
        parameters: the number of the model's real numbers that it holds.
        matrix: the weight of a Linear [out, in], or the table of an Embedding.
        matrix_name: of the layer that holds the matrix; an Embedding's for a Linear that shares its table.
        bias_name: of the initialiser that holds the bias of a Conv or Linear in a canonical graph.
        nonzero_bias: whether that bias has a nonzero number. Exporters leave out a bias of zeros.
    """

    name: str
    kind: str
    attributes: Attributes
    inputs: tuple[int, ...]
    parameters: int = 0
    matrix: Array | None = field(default=None, compare=False, repr=False)
    matrix_name: str = field(default="", compare=False)
    bias_name: str = field(default="", compare=False)
    nonzero_bias: bool = field(default=True, compare=False)
