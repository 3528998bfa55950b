"""What every value of an exported graph is, found by running it once.

Exporters compute shapes, permutations, initial states and even weights by chains of operators that
differ with their version. None of that needs to be recognised: what does not depend on the
numbers that go in is a constant, whatever made it, and running the graph tells its value.
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

#: Batch of a run where the graph leaves it open: not 1, which is the size of much else.
_BATCH = 2
#: Their result is known once shapes are, so it does not depend on the numbers that go in.
_OF_SHAPE = {"Shape", "Size"}


@dataclass(frozen=True)
class Trace:
    """A graph that was run once.

    Attributes:
        nodes: in an order in which each follows its inputs.
        inputs, outputs: names, initialisers that are also listed as inputs left out.
        values: every value in the graph by name, initialisers included.
        live: names of the values that depend on the numbers that went in.
        producers: the node that makes a value, by its name.
        batch: how many samples went in.
        opsets: the operator sets that the nodes are of.
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
        """The value of a node's input, if it is there and a constant."""
        name = node.input[index] if index < len(node.input) else ""
        return self.values[name] if name and name not in self.live else None

    def elements(self, name: str) -> int:
        """How many numbers of a value belong to one sample."""
        return self.values[name].size // self.batch


def trace(model: onnx.ModelProto, given: Mapping[str, Array] | None = None) -> Trace:
    """Run a model once and keep everything.

    Args:
        given: every input by name; small integers when left out.

    Raises:
        UnsupportedError: it cannot be run, or the size of a sample is left open.
        RequestError: an input is missing, unknown or of the wrong shape.
    """
    if model.functions:
        from onnx import inliner

        model = inliner.inline_local_functions(model)
    fed, batch = _inputs(model) if given is None else (dict(given), _batch_of(given))
    model = _branches_taken(model, fed)
    # Initialisers as the evaluator has them: weights of a large network are gigabytes.
    names = [tensor.name for tensor in model.graph.initializer]
    names += [name for node in model.graph.node for name in node.output if name]
    values = {**Evaluator(model).run(fed, names), **fed}
    live = set(fed)
    for node in model.graph.node:
        if node.op_type not in _OF_SHAPE and live & names_read(node):
            live.update(name for name in node.output if name)
    return Trace(
        nodes=tuple(model.graph.node),
        inputs=tuple(fed),
        outputs=tuple(value.name for value in model.graph.output),
        values=values,
        live=frozenset(live),
        producers={name: node for node in model.graph.node for name in node.output if name},
        batch=batch,
        opsets=tuple(model.opset_import),
    )


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    """A node's attributes as they are written, text decoded."""
    found = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    return {
        name: value.decode() if isinstance(value, bytes) else value for name, value in found.items()
    }


def _inputs(model: onnx.ModelProto) -> tuple[dict[str, Array], int]:
    """Zeros and ones for every input: valid as real numbers and as indices alike."""
    held = {tensor.name for tensor in model.graph.initializer}
    given = [value for value in model.graph.input if value.name not in held]
    fed, batch = {}, _BATCH
    for value in given:
        kind = value.type.tensor_type
        sizes = [dim.dim_value for dim in kind.shape.dim]
        if not sizes or 0 in sizes[1:]:
            raise UnsupportedError(
                f"input '{value.name}' has shape {sizes}, where 0 is a size left open; export the "
                "model with every size fixed but the batch"
            )
        batch = sizes[0] or _BATCH
        shape = (batch, *sizes[1:])
        numbers = np.arange(math.prod(shape)) % 2
        fed[value.name] = numbers.reshape(shape).astype(
            helper.tensor_dtype_to_np_dtype(kind.elem_type)
        )
    return fed, batch


def _batch_of(given: Mapping[str, Array]) -> int:
    return next((len(array) for array in given.values() if array.ndim), 1)


def _branches_taken(model: onnx.ModelProto, fed: Mapping[str, Array]) -> onnx.ModelProto:
    """The model with each If of a known condition replaced by the branch that it takes."""
    if all(node.op_type != "If" for node in model.graph.node):
        return model
    conditions = [node.input[0] for node in model.graph.node if node.op_type == "If"]
    found = Evaluator(model).run(fed, conditions)
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        if node.op_type != "If":
            nodes.append(node)
            continue
        branches = attributes_of(node)
        branch = branches["then_branch" if bool(found[node.input[0]]) else "else_branch"]
        nodes += branch.node
        nodes += [
            helper.make_node("Identity", [inner.name], [outer])
            for inner, outer in zip(branch.output, node.output)
        ]
    taken = onnx.ModelProto()
    taken.CopyFrom(model)
    del taken.graph.node[:]
    taken.graph.node.extend(nodes)
    return _branches_taken(taken, fed)
