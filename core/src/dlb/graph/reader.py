"""Reads what an ONNX graph computes from its trace, independent of layout."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from onnx import NodeProto

from dlb.graph.copies import copied_value, moves_numbers
from dlb.graph.decimals import six_digits
from dlb.graph.layout import LAYOUT, gather_permutation
from dlb.graph.trace import Trace, attributes_of

if TYPE_CHECKING:
    from dlb.graph.blocks import Block

__all__ = ["WEIGHTED", "Attributes", "Operation", "Reader", "Rule", "generic_operation"]

Attributes = dict[str, Any]
Array = npt.NDArray[Any]
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
        matrix: the weight of a Linear [out, in], or the table of an Embedding; None if no table has its
            shape.
        matrix_name: of the initialiser that holds the matrix.
        bias_name: of the initialiser that holds the bias of a Conv or Linear.
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


#: Stands for an input of the graph.
_INPUT = Operation("input", "Input", {}, ())


class Reader:
    """Turns the nodes of a trace into operations, by a rule for each operator."""

    def __init__(self, traced: Trace, rules: Mapping[str, Rule]) -> None:
        self.trace = traced
        self.rules = rules
        self.operations: list[Operation] = []
        #: Decomposed layers, by the name of their output.
        self.blocks: dict[str, Block] = {}
        #: Nominal values, by name, of constants that the file keeps rounded.
        self.nominal_values: dict[str, float | Array] = {}
        #: The source of each live value by name, as in Operation.inputs.
        self.source = {name: -1 - place for place, name in enumerate(traced.inputs)}

    def read(self) -> list[Operation]:
        """Read all nodes. Returns the operations that the outputs depend on, in order."""
        for node in self.trace.nodes:
            for output in node.output:
                if output in self.trace.live:
                    self.source[output] = self._read(node, output)
        needed: set[int] = set()
        waiting = [self.source[name] for name in self.trace.outputs if name in self.source]
        while waiting:
            index = waiting.pop()
            if index >= 0 and index not in needed:
                needed.add(index)
                waiting += self.operations[index].inputs
        order = {old: new for new, old in enumerate(sorted(needed))}
        return [
            replace(
                self.operations[old],
                inputs=tuple(order.get(index, index) for index in self.operations[old].inputs),
            )
            for old in sorted(needed)
        ]

    def _read(self, node: NodeProto, output: str) -> int:
        source = self._passed_through(node, output)
        if source is not None:
            return source
        rule = self.rules.get(node.op_type, generic_operation)
        operation = rule(self, node, attributes_of(node), output)
        if isinstance(operation, int):
            return operation
        operation.attributes["elements"] = self.trace.elements(output)
        self.operations.append(operation)
        return len(self.operations) - 1

    def _passed_through(self, node: NodeProto, output: str) -> int | None:
        """The source of a value that only repeats another, else None."""
        if moves_numbers(self.trace, node) or gather_permutation(self.trace, node) is not None:
            return self.source[node.input[0]]
        copied = copied_value(self.trace, node, output)
        return None if copied is None else self.source[copied]

    def live_inputs(self, node: NodeProto) -> list[str]:
        """Inputs of a node that depend on the graph's inputs."""
        return [name for name in node.input if name in self.trace.live]

    def batch_axis(self, shape: tuple[int, ...]) -> int:
        """The batch axis of a shape: the steps of a sequence may come before it."""
        return shape.index(self.trace.batch) if self.trace.batch in shape else 0

    def operation_of(self, name: str) -> Operation:
        """The operation that computes a value; a placeholder for an input of the graph."""
        source = self.source[name]
        return self.operations[source] if source >= 0 else _INPUT

    def output_attribute(self, node: NodeProto, output: str) -> Attributes:
        """The attribute of an operation that is not its node's first output."""
        index = list(node.output).index(output)
        return {"output": index} if index else {}

    def initializer_name(self, name: str) -> str:
        """The initialiser that a constant comes from, through layout operators."""
        while name in self.trace.producers and self.trace.producers[name].op_type in LAYOUT:
            name = self.trace.producers[name].input[0]
        return name

    def with_matrix(self, operation: Operation, matrix: Array, name: str) -> Operation:
        """A Linear with its matrix, which is kept if a table of the graph may be the same.

        The matrices of a large network are gigabytes.
        """
        kept = matrix if self._one_hot or matrix.shape in self._table_shapes else None
        return replace(operation, matrix=kept, matrix_name=self.initializer_name(name))

    @cached_property
    def _one_hot(self) -> bool:
        """Whether a table may be looked up by comparing."""
        return any(node.op_type in ("Equal", "OneHot") for node in self.trace.nodes)

    @cached_property
    def _table_shapes(self) -> set[tuple[int, ...]]:
        return {
            self.trace.values.shape(node.input[0])
            for node in self.trace.nodes
            if node.op_type == "Gather" and node.input[0] not in self.trace.live
        }

    def with_bias(self, operation: Operation, name: str) -> Operation:
        """A Conv or Linear with the named constant as its bias; zeros that nobody holds are none."""
        if self._made_up(name) and not self.trace.values[name].any():
            return operation
        return replace(
            operation,
            attributes={**operation.attributes, "bias": True},
            parameters=operation.parameters + self.trace.values[name].size,
            bias_name=self.initializer_name(name),
            nonzero_bias=bool(self.trace.values[name].any()),
        )

    def _made_up(self, name: str) -> bool:
        """Whether a constant is one number written out, which no training can change.

        Not by ConstantOfShape: files without their weights have such ones in their place.
        """
        producer = self.trace.producers.get(name)
        if producer is None or producer.op_type != "Expand":
            return False
        number = self.trace.producers.get(producer.input[0])
        while number is not None and number.op_type in ("Cast", "CastLike"):
            number = self.trace.producers.get(number.input[0])
        return number is not None and number.op_type == "Constant"

    def make(
        self,
        node: NodeProto,
        kind: str,
        attributes: Attributes,
        values: list[str] | None = None,
        parameters: int = 0,
    ) -> Operation:
        """An operation for a node, which reads its live inputs unless ``values`` names others."""
        values = self.live_inputs(node) if values is None else values
        sources = tuple(self.source[name] for name in values)
        return Operation(node.name or node.output[0], kind, attributes, sources, parameters)


Rule = Callable[[Reader, NodeProto, Attributes, str], "Operation | int"]


def generic_operation(
    reader: Reader, node: NodeProto, raw: Attributes, output: str
) -> Operation | int:
    """An operation for an operator without a rule: its raw attributes and constants.

    An operator that has a rule, and is used as the rule does not know, is of a kind of its own.
    """
    attributes: Attributes = {
        name: six_digits(value) if isinstance(value, float) else value
        for name, value in raw.items()
        if isinstance(value, (int, float, str, list))
    }
    for input_index, name in enumerate(node.input):
        constant = reader.trace.constant(node, input_index)
        if name and constant is not None:
            summary = constant.ravel().tolist() if constant.size <= 16 else list(constant.shape)
            if constant.size > 16 and constant.dtype.kind in "biu":
                # Weights are compared elsewhere; indices and masks nowhere else.
                summary.append(hashlib.sha256(constant.astype(np.int64).tobytes()).hexdigest())
            attributes[f"input {input_index}"] = [
                six_digits(x) if isinstance(x, float) else x for x in summary
            ]
    kind = f"{node.op_type} as written" if node.op_type in reader.rules else node.op_type
    return reader.make(node, kind, {**attributes, **reader.output_attribute(node, output)})
