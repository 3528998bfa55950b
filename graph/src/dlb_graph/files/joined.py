"""Several inputs of an ONNX file as one: for each sample the numbers of one input after those of the other."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx
from onnx import helper

from dlb_graph.files.model_file import Port
from dlb_graph.rewriting.compositions import SLICE_OF_INPUTS
from dlb_graph.rewriting.node_writer import prepend, writer_of
from dlb_graph.truth.layout import LAYOUT
from dlb_graph.truth.precision import REAL_TYPES

__all__ = ["join_inputs", "looked_up", "sample_shape", "why_not_joined", "why_not_one"]


#: Operators that look up rows of a table by integers, and those after which integers still do.
_LOOKING_UP = ("Gather", "GatherElements", "GatherND", "OneHot")
_MOVING = {"Cast", "Gather", "Identity", "Slice", "Split"} | LAYOUT
#: Rows of the smallest and the largest table of integers that are read as one: of fewer rows, such as those of
#: two sentences, as few would be looked up in all tables. Next to real numbers every row is compared with.
_ROWS_OF_INTEGERS, _ROWS_NEXT_TO_REALS = (3, math.inf), (5, 1000)


def looked_up(graph: onnx.GraphProto, port: Port) -> list[int]:
    """The rows of each table that integers of an input look up; 0 of one that is computed."""
    names, rows = {port.name}, list[int]()
    held = {tensor.name: tensor.dims[0] for tensor in graph.initializer if tensor.dims}
    for node in graph.node:
        if node.op_type in _MOVING and node.input[0] in names:
            names.update(node.output)
        elif node.op_type == "Gather" and node.input[1] in names:
            rows.append(held.get(node.input[0], 0))
    return rows if port.element not in REAL_TYPES else []


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
    integers = [each for each in (first, port) if each.element not in REAL_TYPES]
    rows = [count for each in integers for count in looked_up(graph, each) or [0]]
    least, most = _ROWS_OF_INTEGERS if len(integers) == 2 else _ROWS_NEXT_TO_REALS
    of_tables = least <= min(rows, default=0) and max(rows, default=0) <= most
    if not of_tables and ((indices and integers) or port.element != first.element):
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
    element = next((p.element for p in ports if p.element in REAL_TYPES), ports[0].element)
    for port in ports:
        shape = sample_shape(port)
        end = start + math.prod(shape)
        write = writer_of(model, port.name)
        part = f"{port.name}/part"
        if opset < SLICE_OF_INPUTS:
            write.add("Slice", name, output=part, starts=[start], ends=[end], axes=[1])
        else:
            write.add("Slice", name, *map(write.shape, (start, end, 1)), output=part)
        same = part if port.element == element else write.add("Cast", part, to=port.element)
        write.add("Reshape", same, write.shape(-1, *shape), output=port.name)
        writers.append(write)
        start = end
    prepend(graph, *writers)
    batch = (ports[0].shape or (None,))[0]
    values = [value for value in graph.input if value.name not in {port.name for port in ports}]
    values.append(helper.make_tensor_value_info(name, element, (batch, start)))
    del graph.input[:]
    graph.input.extend(values)
    return name
