"""Reading what an ONNX graph computes, less how it is laid out, from a trace of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import onnx

from dlb.graph.decimals import six_digits
from dlb.graph.layout import LAYOUT, gather_permutation
from dlb.graph.trace import Trace, attributes_of

if TYPE_CHECKING:
    from dlb.graph.blocks import Block

__all__ = ["Attributes", "Operation", "Reader", "Rule", "generic_operation"]

Attributes = dict[str, Any]
Array = npt.NDArray[Any]

#: Operators that may leave their first input as it was.
_MAY_COPY = {"Cast", "CastLike", "Dropout", "Expand", "Pad", "Slice", "Tile"}


@dataclass(frozen=True)
class Operation:
    """One thing that is computed.

    Attributes:
        name: of the node it was read from: a layer's in a canonical graph.
        kind: the ONNX operator, or ``Linear`` for Gemm and MatMul and ``Embedding`` for Gather.
        attributes: what it means, defaults and paddings written out, shapes in one layout.
        inputs: positions of what it reads in the list of operations; -1, -2, ... are the graph's
            inputs.
        parameters: how many real numbers of the model it holds.
        matrix: what a Linear multiplies by, [out, in], or an Embedding looks up in; None of a graph
            without an Embedding.
        matrix_name: of the initialiser that the matrix is.
        bias_name: of the initialiser that the bias of a Conv or Linear is.
        moves: whether that bias is anything but zeros, which exporters leave out.
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


class Reader:
    """Turns the nodes of a trace into operations by a rule for each operator."""

    def __init__(self, traced: Trace, rules: Mapping[str, Rule]) -> None:
        self.trace = traced
        self.rules = rules
        self.operations: list[Operation] = []
        #: Layers that may be written out as several operators, by the name of their last value.
        self.blocks: dict[str, Block] = {}
        #: Constants that are read as attributes, by name, as they are meant: a file keeps them rounded.
        self.nominal_values: dict[str, float | Array] = {}
        #: Where each live value comes from, by its name, as in Operation.inputs.
        self.source = {name: -1 - place for place, name in enumerate(traced.inputs)}

    def read(self) -> list[Operation]:
        for node in self.trace.nodes:
            for place, output in enumerate(node.output):
                if output in self.trace.live:
                    self.source[output] = self._read(node, place, output)
        kept: set[int] = set()
        waiting = [self.source[name] for name in self.trace.outputs if name in self.source]
        while waiting:
            place = waiting.pop()
            if place >= 0 and place not in kept:
                kept.add(place)
                waiting += self.operations[place].inputs
        order = {old: new for new, old in enumerate(sorted(kept))}
        return [
            replace(
                self.operations[old],
                inputs=tuple(order.get(place, place) for place in self.operations[old].inputs),
            )
            for old in sorted(kept)
        ]

    def _read(self, node: onnx.NodeProto, place: int, output: str) -> int:
        copied = self._passed_through(node, output)
        if copied is not None:
            return copied
        rule = self.rules.get(node.op_type, generic_operation)
        found = rule(self, node, attributes_of(node), place, output)
        if isinstance(found, int):
            return found
        found.attributes["elements"] = self.trace.elements(output)
        self.operations.append(found)
        return len(self.operations) - 1

    def _passed_through(self, node: onnx.NodeProto, output: str) -> int | None:
        """The source of a value that only repeats another."""
        value, first = self.trace.values[output], self.trace.values.get(node.input[0])
        laid = node.op_type in LAYOUT or gather_permutation(self.trace, node) is not None
        if laid and node.input[0] in self.trace.live:
            return self.source[node.input[0]]
        if node.op_type in _MAY_COPY and first is not None:
            return self.source.get(node.input[0]) if np.array_equal(value, first) else None
        if value.dtype.kind in "iu":
            # Arithmetic on indices that leaves every index as it was.
            for name in self.trace.inputs:
                if np.array_equal(value.ravel(), self.trace.values[name].ravel()):
                    return self.source[name]
        return None

    def live_inputs(self, node: onnx.NodeProto) -> list[str]:
        return [name for name in node.input if name in self.trace.live]

    def initializer_name(self, name: str) -> str:
        """The initialiser that a constant is, seen through layout operators."""
        while name in self.trace.producers and self.trace.producers[name].op_type in LAYOUT:
            name = self.trace.producers[name].input[0]
        return name

    def with_bias(self, operation: Operation, name: str) -> Operation:
        """A Conv or Linear with the constant of that name as its bias."""
        return replace(
            operation,
            attributes={**operation.attributes, "bias": True},
            parameters=operation.parameters + self.trace.values[name].size,
            bias_name=self.initializer_name(name),
            nonzero_bias=bool(self.trace.values[name].any()),
        )

    def make(
        self,
        node: onnx.NodeProto,
        kind: str,
        attributes: Attributes,
        values: list[str] | None = None,
        parameters: int = 0,
    ) -> Operation:
        values = self.live_inputs(node) if values is None else values
        places = tuple(self.source[name] for name in values)
        return Operation(node.name or node.output[0], kind, attributes, places, parameters)


Rule = Callable[[Reader, onnx.NodeProto, Attributes, int, str], "Operation | int"]


def generic_operation(
    reader: Reader, node: onnx.NodeProto, given: Attributes, place: int, output: str
) -> Operation | int:
    """Any operator without a rule: its attributes as written, and what constants it reads."""
    known: Attributes = {
        name: six_digits(value) if isinstance(value, float) else value
        for name, value in given.items()
        if isinstance(value, (int, float, str, list))
    }
    for index, name in enumerate(node.input):
        constant = reader.trace.constant(node, index)
        if name and constant is not None:
            few = constant.ravel().tolist() if constant.size <= 16 else list(constant.shape)
            known[f"input {index}"] = [six_digits(x) if isinstance(x, float) else x for x in few]
    return reader.make(node, node.op_type, {**known, **({"output": place} if place else {})})
