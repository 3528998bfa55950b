"""Several inputs of an ONNX file as one: for each sample the numbers of one input after those of the other."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from dlb.graph.precision import REAL_TYPES
from dlb.proof.files.read import Port

__all__ = ["join_inputs", "sample_shape", "why_not_joined", "why_not_one"]


#: Operators that look up rows of a table by integers.
_LOOKING_UP = ("Gather", "GatherElements", "GatherND", "OneHot")


def why_not_joined(graph: onnx.GraphProto, ports: Sequence[Port]) -> str:
    """Why inputs cannot be read as one; "" if they can: numbers of one type, a batch and fixed sizes.

    Integers are numbers in a graph that looks up nothing by them.
    """
    for port in ports:
        if reason := why_not_one(graph, ports[0], port):
            return reason
        if not all(isinstance(size, int) for size in (port.shape or ())[1:]):
            return f"{port} has sizes that are open"
    return ""


def why_not_one(graph: onnx.GraphProto, first: Port, port: Port) -> str:
    """Why an input cannot be one with another, if its sizes are fixed; "" if it can."""
    indices = any(node.op_type in _LOOKING_UP for node in graph.node)
    if (indices and port.element not in REAL_TYPES) or port.element != first.element:
        return f"'{port.name}' holds numbers of another type than inputs that can be read as one"
    if not port.shape or not first.shape:
        return f"{port if first.shape else first} has no batch"
    if isinstance(port.shape[0], int) and port.shape[0] != first.shape[0]:
        return f"{port} and {first} have other batches"
    return ""


def sample_shape(port: Port) -> tuple[int, ...]:
    """The shape of a sample of an input whose sizes are fixed."""
    return tuple(int(size) for size in (port.shape or ())[1:])  # type: ignore[arg-type]


def join_inputs(graph: onnx.GraphProto, ports: Sequence[Port], opset: int) -> str:
    """Replace inputs by one [N, numbers], of which each is a slice; returns its name.

    Args:
        ports: inputs for which :func:`why_not_joined` has no reason.
    """
    name = "inputs"
    taken = {value.name for value in (*graph.input, *graph.initializer)}
    taken.update(output for node in graph.node for output in node.output)
    while name in taken:
        name += "_"
    nodes, start = [], 0
    for port in ports:
        shape = sample_shape(port)
        end = start + math.prod(shape)
        nodes += _part(graph, name, port.name, start, end, opset)
        held = numpy_helper.from_array(np.array([-1, *shape]), f"{port.name}/shape")
        graph.initializer.append(held)
        nodes.append(helper.make_node("Reshape", [f"{port.name}/part", held.name], [port.name]))
        start = end
    nodes += list(graph.node)
    del graph.node[:]
    graph.node.extend(nodes)
    batch = (ports[0].shape or (None,))[0]
    values = [value for value in graph.input if value.name not in {port.name for port in ports}]
    values.append(helper.make_tensor_value_info(name, ports[0].element, (batch, start)))
    del graph.input[:]
    graph.input.extend(values)
    return name


def _part(
    graph: onnx.GraphProto, whole: str, name: str, start: int, end: int, opset: int
) -> list[onnx.NodeProto]:
    """The numbers of one input; Slice has its bounds as attributes before operator set 10."""
    part = f"{name}/part"
    if opset < 10:
        return [helper.make_node("Slice", [whole], [part], starts=[start], ends=[end], axes=[1])]
    bounds = {"starts": [start], "ends": [end], "axes": [1]}
    held = [
        numpy_helper.from_array(np.array(value), f"{name}/{key}") for key, value in bounds.items()
    ]
    graph.initializer.extend(held)
    return [helper.make_node("Slice", [whole, *(each.name for each in held)], [part])]
