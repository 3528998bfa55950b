"""Reads every node of a graph as layers, to compare it: what no rule reads is an opaque layer."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnx

from dlb_graph.errors import DlbError, UnsupportedError
from dlb_graph.layers.decimals import six_digits
from dlb_graph.layers.numbers import Array
from dlb_graph.reading.einsum import with_matrix_products
from dlb_graph.reading.importer import Importer
from dlb_graph.reading.layers import BlockMisread, InputMisread, PendingAttention, UnsupportedNode
from dlb_graph.reading.rules import RULES
from dlb_graph.reading.slices import split_into_slices
from dlb_graph.reading.views import ValueView
from dlb_graph.rewriting.node_writer import OWN
from dlb_graph.truth.recognised import Recognised
from dlb_graph.truth.recognition import recognise
from dlb_graph.truth.trace import Trace, attributes_of

__all__ = ["GraphReader", "Opaque", "read_graph"]

#: How often a graph is read whose input or blocks are misread.
_MISREAD = 100
#: What a rule raises about a node that is used as it does not know. A stranger's graph may use it in any way.
_UNREAD = (
    UnsupportedNode, DlbError, ArithmeticError, AssertionError, AttributeError, LookupError, TypeError,
    ValueError,
)  # fmt: skip
#: Constants of at most so many numbers are compared number by number.
_LISTED = 16


@dataclass(frozen=True)
class Opaque:
    """An operator that no rule reads, by its attributes and constants.

    Attributes:
        operator: its name.
        attributes: as written; constants by the place of the input.
    """

    operator: str
    attributes: dict[str, Any]


class GraphReader(Importer):
    """Reads every node of a graph."""

    refusals = _UNREAD

    def __init__(
        self,
        recognised: Recognised,
        opset: int,
        axes: tuple[int, ...],
        kind: Literal["real", "index"],
        unread: frozenset[str],
    ) -> None:
        super().__init__(recognised, RULES, opset, axes, kind, unread)
        for name in self.trace.inputs[1:]:
            layer = self.add_named(name, None, (), {}, self.trace.values[name].shape)
            self._views[name] = ValueView(layer)

    def _refuse(self, node: onnx.NodeProto, outputs: Sequence[str], reason: Exception) -> None:
        for name in outputs:
            self._add_opaque(node, name)

    def _add_opaque(self, node: onnx.NodeProto, output: str) -> None:
        attributes: dict[str, Any] = {
            name: six_digits(value) if isinstance(value, float) else value
            for name, value in attributes_of(node).items()
            if isinstance(value, (int, float, str, list))
        }
        for place in range(len(node.input)):
            constant = self.trace.constant(node, place)
            if constant is not None:
                attributes[f"input {place}"] = _summary(constant)
        number = list(node.output).index(output)
        if number:
            attributes["output"] = number
        inputs = [self.view(name).layer for name in self.trace.live_inputs(node)]
        shape = self.trace.values[output].shape
        # An operator that a rule reads, but not as it is used here, is of a kind of its own.
        as_written = " as written" if node.op_type in RULES.keys() - {"Cast"} else ""
        layer = Opaque(f"{node.op_type}{as_written}", attributes)
        name = self.add_named(node.name or output, layer, tuple(inputs), {}, shape)  # type: ignore[arg-type]
        self.also(output, ValueView(name))


def _summary(constant: Array) -> list[Any]:
    """Weights are compared elsewhere; indices and masks nowhere else."""
    if constant.size <= _LISTED:
        return [six_digits(x) if isinstance(x, float) else x for x in constant.ravel().tolist()]
    summary: list[Any] = list(constant.shape)
    if constant.dtype.kind in "biu":
        summary.append(hashlib.sha256(constant.astype(np.int64).tobytes()).hexdigest())
    return summary


def read_graph(traced: Trace) -> tuple[GraphReader, list[str]]:
    """Read a graph.

    Returns:
        the layers, and which of them the outputs are.

    Raises:
        UnsupportedError: the input is read with several orders of its axes.
    """
    traced = with_matrix_products(split_into_slices(traced))
    opset = max((each.version for each in traced.opsets if each.domain in OWN), default=0)
    value = traced.values[traced.inputs[0]]
    axes, index = tuple(range(value.ndim)), value.dtype.kind in "iu"
    known, unread = recognise(traced), set[str]()
    for _ in range(_MISREAD):
        kind: Literal["real", "index"] = "index" if index else "real"
        reader = GraphReader(known, opset, axes, kind, frozenset(unread))
        try:
            reader.read_nodes()
            live = (name for name in traced.outputs if name in traced.live)
            outputs = [reader.view(name).layer for name in live]
            waiting, needed = list(outputs), set[str]()
            while waiting:
                name = waiting.pop()
                if name not in needed:
                    needed.add(name)
                    layer = reader.layers[name].layer
                    if isinstance(layer, PendingAttention):
                        raise BlockMisread(layer.output)
                    waiting += reader.layers[name].inputs
            reader.layers = {name: x for name, x in reader.layers.items() if name in needed}
            return reader, outputs
        except InputMisread as misread:
            axes, index = misread.axes or axes, index or misread.index
        except BlockMisread as misread:
            unread.add(misread.output)
    raise UnsupportedError("its input is read with several orders of its axes")
