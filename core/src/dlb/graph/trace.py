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
from dlb.graph.control_flow import without_control_flow
from dlb.graph.evaluate import Evaluator
from dlb.graph.held import Values
from dlb.graph.liveness import live_names

__all__ = ["Trace", "attributes_of", "default_inputs", "trace"]

Array = npt.NDArray[Any]

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

    def constant(self, node: onnx.NodeProto, index: int) -> Array | None:
        """A node's input, if it is present and a constant, else None."""
        name = node.input[index] if index < len(node.input) else ""
        return self.values[name] if name and name not in self.live else None

    def elements(self, name: str) -> int:
        """How many numbers of a value belong to one sample."""
        return math.prod(self.values.shape(name)) // self.batch


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
    feed, batch = default_inputs(model) if inputs is None else (dict(inputs), _batch_of(inputs))
    model = without_control_flow(model, feed)
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
