"""Finds candidates for decomposed layers in a trace, and runs them on their own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from dlb_graph.layers.decimals import ROUNDING
from dlb_graph.layers.numbers import Array
from dlb_graph.truth.evaluate import Evaluator
from dlb_graph.truth.precision import REAL_TYPES, in_precision
from dlb_graph.truth.trace import Trace

__all__ = [
    "LONGEST",
    "NEAR",
    "candidates",
    "is_near",
    "nominal_constants",
    "real_constants",
    "run_nodes",
]


#: The largest number of operators in a block.
LONGEST = 30
#: Largest relative L2 distance between a block's output and a formula's. Constants may be float32.
#: The two kinds of GELU are 1e-4 apart.
NEAR = 1e-6
#: How many numbers of a value are compared first.
_COMPARED_FIRST = 64


def is_near(output: Array, expected: Array) -> bool:
    """Whether arrays of one shape are nearly equal. Comparing a few numbers first saves time."""
    largest = NEAR * float(np.abs(expected).max()) * math.sqrt(expected.size)
    if np.abs(output[:_COMPARED_FIRST] - expected[:_COMPARED_FIRST]).max() > largest:
        return False
    return bool(np.linalg.norm(output - expected) <= NEAR * np.linalg.norm(expected))


def candidates(
    trace: Trace, end: onnx.NodeProto, operators: set[str], needed: tuple[str, ...]
) -> Iterator[tuple[str, list[onnx.NodeProto]]]:
    """Yield values from which alone some operators compute a node's output, and those nodes.

    Args:
        operators: the allowed operators.
        needed: operators of which at least one must be among them.
    """
    seen: set[str] = set()
    waiting = [end.output[0]]
    while waiting and len(seen) <= LONGEST:
        node = trace.producers.get(waiting.pop(0))
        if node is None or node.op_type not in operators:
            continue
        new_names = [name for name in node.input if name in trace.live and name not in seen]
        seen.update(new_names)
        waiting += new_names
    producers = [trace.producers[name] for name in seen if name in trace.producers]
    if not any(node.op_type in needed for node in (end, *producers)):
        return
    size = trace.values[end.output[0]].size
    starts = sorted(name for name in seen if trace.values[name].size == size)
    blocks = [(start, _nodes_between(trace, start, end, operators)) for start in starts]
    # Shortest first: a value that is normalised twice is also normalised once.
    for start, nodes in sorted(blocks, key=lambda block: len(block[1])):
        if any(node.op_type in needed for node in nodes):
            yield start, nodes


def _nodes_between(
    trace: Trace, start: str, end: onnx.NodeProto, operators: set[str]
) -> list[onnx.NodeProto]:
    """The nodes that compute a node's output from one value; none if they read another."""
    names, waiting = set(end.output), [end]
    while waiting:
        node = waiting.pop()
        if node.op_type not in operators or len(names) > LONGEST:
            return []
        for name in node.input:
            if name in trace.live and name != start and name not in names:
                if name not in trace.producers:
                    return []
                names.add(name)
                waiting.append(trace.producers[name])
    places = {trace.places[name] for name in names if name}
    return [trace.nodes[place] for place in sorted(places)]


def real_constants(trace: Trace, nodes: Sequence[onnx.NodeProto]) -> dict[str, Array]:
    """Real constants that nodes read, by name, in the order of use."""
    names = dict.fromkeys(
        name for x in nodes for name in x.input if name and name not in trace.live
    )
    return {name: trace.values[name] for name in names if trace.values[name].dtype.kind == "f"}


def nominal_constants(
    trace: Trace, nodes: Sequence[onnx.NodeProto], numbers: Iterable[float]
) -> dict[str, float]:
    """Single constants that nodes read and that are, except for rounding, one of the numbers."""
    numbers = list(numbers)
    nominal_values = {}
    for name, constant in real_constants(trace, nodes).items():
        matches = [
            n
            for n in numbers
            if constant.size == 1 and abs(float(constant.ravel()[0]) - n) <= ROUNDING * abs(n)
        ]
        if matches:
            nominal_values[name] = matches[0]
    return nominal_values


def run_nodes(
    trace: Trace, nodes: list[onnx.NodeProto], inputs: Mapping[str, Array], end: str
) -> Array:
    """The output of nodes for these inputs, in float64."""
    inner_names = {name for node in nodes for name in node.output}
    names = {name for node in nodes for name in node.input if name} - inner_names - set(inputs)
    element = helper.np_dtype_to_tensor_dtype(trace.values[end].dtype)
    graph = helper.make_graph(
        nodes,
        "block",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for name, x in inputs.items()
        ],
        [helper.make_tensor_value_info(end, element, None)],
        [numpy_helper.from_array(np.asarray(trace.values[name]), name) for name in sorted(names)],
    )
    model = helper.make_model(graph, opset_imports=trace.opsets)
    float64_model = in_precision(model, TensorProto.DOUBLE) if element in REAL_TYPES else model
    return Evaluator(float64_model).run(inputs, [end])[end]
