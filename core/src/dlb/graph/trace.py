"""Runs an exported graph once to learn the value of everything in it.

Exporters compute shapes, permutations, initial states and even weights by chains of operators,
which differ between their versions. dlb need not recognise these. A value that does not depend on
the inputs' numbers is a constant, and the run shows its value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from dlb.errors import UnsupportedError
from dlb.graph.evaluate import Evaluator, names_read

__all__ = ["Trace", "attributes_of", "trace"]

Array = npt.NDArray[Any]

#: Batch size where the graph leaves it open: not 1, which many other sizes are.
_BATCH = 2
#: Operators whose result depends on shapes only, not on the inputs' numbers.
_SHAPE_OPERATORS = {"Shape", "Size"}


@dataclass(frozen=True)
class Trace:
    """A graph that was run once.

    Attributes:
        nodes: in an order in which each node follows its inputs.
        inputs, outputs: names, without initialisers that are also listed as inputs.
        values: every value of the graph by name, initialisers included.
        live: names of the values that depend on the inputs' numbers.
        producers: the node that computes a value, by the value's name.
        batch: the number of samples of the run.
        opsets: the operator sets of the nodes.
    """

    nodes: tuple[onnx.NodeProto, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    values: dict[str, Array]
    live: frozenset[str]
    producers: dict[str, onnx.NodeProto]
    batch: int
    opsets: tuple[onnx.OperatorSetIdProto, ...] = ()

    def constant(self, node: onnx.NodeProto, index: int) -> Array | None:
        """A node's input, if it is present and a constant, else None."""
        name = node.input[index] if index < len(node.input) else ""
        return self.values[name] if name and name not in self.live else None

    def elements(self, name: str) -> int:
        """How many numbers of a value belong to one sample."""
        return self.values[name].size // self.batch


def trace(model: onnx.ModelProto, inputs: Mapping[str, Array] | None = None) -> Trace:
    """Run a model once and keep all values.

    Args:
        inputs: every input by name; small integers if left out.

    Raises:
        UnsupportedError: the model cannot be run, or a size other than the batch is open.
        RequestError: an input is missing, unknown or of the wrong shape.
    """
    if model.functions:
        from onnx import inliner

        model = inliner.inline_local_functions(model)
    feed, batch = _default_inputs(model) if inputs is None else (dict(inputs), _batch_of(inputs))
    model = _branches_taken(model, feed)
    # Share the evaluator's initialisers: weights of a large network are gigabytes.
    names = [tensor.name for tensor in model.graph.initializer]
    names += [name for node in model.graph.node for name in node.output if name]
    values = {**Evaluator(model).run(feed, names), **feed}
    live = set(feed)
    for node in model.graph.node:
        if node.op_type not in _SHAPE_OPERATORS and live & names_read(node):
            live.update(name for name in node.output if name)
    return Trace(
        nodes=tuple(model.graph.node),
        inputs=tuple(feed),
        outputs=tuple(value.name for value in model.graph.output),
        values=values,
        live=frozenset(live),
        producers={name: node for node in model.graph.node for name in node.output if name},
        batch=batch,
        opsets=tuple(model.opset_import),
    )


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    """A node's attributes as written, with text decoded."""
    attributes = {
        attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute
    }
    return {
        name: value.decode() if isinstance(value, bytes) else value
        for name, value in attributes.items()
    }


def _default_inputs(model: onnx.ModelProto) -> tuple[dict[str, Array], int]:
    """Zeros and ones for every input, which are valid as real numbers and as indices."""
    initializers = {tensor.name for tensor in model.graph.initializer}
    graph_inputs = [value for value in model.graph.input if value.name not in initializers]
    feed, batch = {}, _BATCH
    for value in graph_inputs:
        tensor_type = value.type.tensor_type
        sizes = [dim.dim_value for dim in tensor_type.shape.dim]
        if not sizes or 0 in sizes[1:]:
            raise UnsupportedError(
                f"input '{value.name}' has shape {sizes}, where 0 is an open size; export the "
                "model with every size fixed but the batch"
            )
        batch = sizes[0] or _BATCH
        shape = (batch, *sizes[1:])
        numbers = np.arange(math.prod(shape)) % 2
        feed[value.name] = numbers.reshape(shape).astype(
            helper.tensor_dtype_to_np_dtype(tensor_type.elem_type)
        )
    return feed, batch


def _batch_of(inputs: Mapping[str, Array]) -> int:
    return next((len(array) for array in inputs.values() if array.ndim), 1)


def _branches_taken(model: onnx.ModelProto, feed: Mapping[str, Array]) -> onnx.ModelProto:
    """The model with each If of a constant condition replaced by the branch that it takes."""
    if all(node.op_type != "If" for node in model.graph.node):
        return model
    conditions = [node.input[0] for node in model.graph.node if node.op_type == "If"]
    condition_values = Evaluator(model).run(feed, conditions)
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        if node.op_type != "If":
            nodes.append(node)
            continue
        branches = attributes_of(node)
        branch = branches["then_branch" if bool(condition_values[node.input[0]]) else "else_branch"]
        nodes += branch.node
        nodes += [
            helper.make_node("Identity", [inner.name], [outer])
            for inner, outer in zip(branch.output, node.output)
        ]
    result = onnx.ModelProto()
    result.CopyFrom(model)
    del result.graph.node[:]
    result.graph.node.extend(nodes)
    return _branches_taken(result, feed)
