"""Runs an exported graph once to learn the value of everything in it.

Exporters compute shapes, permutations, initial states and even weights by chains of operators,
which differ between their versions. dlb need not recognise these. A value that does not depend on
the inputs' numbers is a constant, and the run shows its value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from onnx import helper

from dlb_graph.errors import UnsupportedError
from dlb_graph.layers.numbers import Array
from dlb_graph.truth.evaluate import Evaluator
from dlb_graph.truth.held import Values
from dlb_graph.truth.liveness import live_names
from dlb_graph.truth.precision import inlined

__all__ = ["Trace", "attributes_of", "default_inputs", "node_name", "trace"]


#: Batch sizes where the graph leaves it open: the first that is no other size of its inputs. Not 1, which
#: many other sizes are.
_BATCHES = (2, 3, 5, 7, 11)


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
    values: Values
    live: frozenset[str]
    producers: dict[str, onnx.NodeProto]
    batch: int
    opsets: tuple[onnx.OperatorSetIdProto, ...] = ()

    @cached_property
    def places(self) -> dict[str, int]:
        """The place, in ``nodes``, of the node that computes a value, by the value's name."""
        return {name: at for at, node in enumerate(self.nodes) for name in node.output if name}

    def constant(self, node: onnx.NodeProto, index: int) -> Array | None:
        """A node's input, if it is present and a constant, else None."""
        name = node.input[index] if index < len(node.input) else ""
        return self.values[name] if name and name not in self.live else None

    def live_inputs(self, node: onnx.NodeProto) -> list[str]:
        """Inputs of a node that depend on the graph's inputs."""
        return [name for name in node.input if name in self.live]

    def batch_axis(self, shape: tuple[int, ...]) -> int:
        """The batch axis of a shape: the steps of a sequence may come before it."""
        return shape.index(self.batch) if self.batch in shape else 0

    def elements(self, name: str) -> int:
        """How many numbers of a value belong to one sample."""
        return math.prod(self.values.shape(name)) // self.batch


def trace(model: onnx.ModelProto, inputs: Mapping[str, Array] | None = None) -> Trace:
    """Run a model once and keep all values. :func:`dlb_graph.rewriting.control_flow.traced` runs a foreign one.

    Args:
        inputs: every input by name; small integers if left out.

    Raises:
        UnsupportedError: the model cannot be run, or a size other than the batch is open.
        RequestError: an input is missing, unknown or of the wrong shape.
    """
    model = inlined(model)
    feed, batch = default_inputs(model) if inputs is None else (dict(inputs), _batch_of(inputs))
    return Trace(
        nodes=tuple(model.graph.node),
        inputs=tuple(feed),
        outputs=tuple(value.name for value in model.graph.output),
        values=Evaluator(model).values(feed),
        live=frozenset(live_names(model.graph.node, feed)),
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


def node_name(node: onnx.NodeProto) -> str:
    """A node's name; that of its first output if it has none."""
    return node.name or next(name for name in node.output if name)


def default_inputs(model: onnx.ModelProto) -> tuple[dict[str, Array], int]:
    """Zeros and ones for every input, which are valid as real numbers and as indices."""
    initializers = {tensor.name for tensor in model.graph.initializer}
    graph_inputs = [value for value in model.graph.input if value.name not in initializers]
    other_sizes = {
        dim.dim_value for value in graph_inputs for dim in value.type.tensor_type.shape.dim[1:]
    }
    open_batch = next((size for size in _BATCHES if size not in other_sizes), _BATCHES[0])
    feed, batch = {}, open_batch
    for value in graph_inputs:
        tensor_type = value.type.tensor_type
        sizes = [dim.dim_value for dim in tensor_type.shape.dim]
        if not sizes or 0 in sizes[1:]:
            raise UnsupportedError(
                f"input '{value.name}' has shape {sizes}, where 0 is an open size; export the "
                "model with every size fixed but the batch"
            )
        batch = sizes[0] or open_batch
        shape = (batch, *sizes[1:])
        numbers = np.arange(math.prod(shape)) % 2
        feed[value.name] = numbers.reshape(shape).astype(
            helper.tensor_dtype_to_np_dtype(tensor_type.elem_type)
        )
    return feed, batch


def _batch_of(inputs: Mapping[str, Array]) -> int:
    return next((len(array) for array in inputs.values() if array.ndim), 1)
