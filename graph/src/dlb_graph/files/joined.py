"""Several inputs of an ONNX file as one: for each sample the numbers of one input after those of the other."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx
from onnx import helper

from dlb_graph.files.model_file import Port
from dlb_graph.rewriting.compositions import SLICE_OF_INPUTS
from dlb_graph.rewriting.node_writer import prepend, writer_of
from dlb_graph.truth.precision import REAL_TYPES

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


def join_inputs(model: onnx.ModelProto, ports: Sequence[Port], opset: int) -> str:
    """Replace inputs by one [N, numbers], of which each is a slice; returns its name.

    Args:
        ports: inputs for which :func:`why_not_joined` has no reason.
    """
    graph, name = model.graph, "inputs"
    taken = {value.name for value in (*graph.input, *graph.initializer)}
    taken.update(output for node in graph.node for output in node.output)
    while name in taken:
        name += "_"
    writers, start = [], 0
    for port in ports:
        shape = sample_shape(port)
        end = start + math.prod(shape)
        write = writer_of(model, port.name)
        part = f"{port.name}/part"
        if opset < SLICE_OF_INPUTS:
            write.add("Slice", name, output=part, starts=[start], ends=[end], axes=[1])
        else:
            write.add("Slice", name, *map(write.shape, (start, end, 1)), output=part)
        write.add("Reshape", part, write.shape(-1, *shape), output=port.name)
        writers.append(write)
        start = end
    prepend(graph, *writers)
    batch = (ports[0].shape or (None,))[0]
    values = [value for value in graph.input if value.name not in {port.name for port in ports}]
    values.append(helper.make_tensor_value_info(name, ports[0].element, (batch, start)))
    del graph.input[:]
    graph.input.extend(values)
    return name
