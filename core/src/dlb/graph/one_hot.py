"""Classes as rows of a table that has a 1 in each: ONNX OneHot, and Equal with the numbers from 0."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from dlb.graph.trace import Trace, attributes_of

__all__ = ["one_hot_table"]


def one_hot_table(trace: Trace, node: onnx.NodeProto) -> tuple[str, npt.NDArray[Any]] | None:
    """The value whose classes a node compares with every number, and the table float64 [classes, classes].

    None if the numbers are no constants, or not along the last axis of the output.
    """
    size = trace.values[node.output[0]].shape[-1:]
    if node.op_type == "OneHot":
        depth, values = trace.constant(node, 1), trace.constant(node, 2)
        axis = attributes_of(node).get("axis", -1)
        if (
            depth is None
            or values is None
            or axis not in (-1, len(trace.values[node.output[0]].shape) - 1)
        ):
            return None
        off, on = values.ravel().astype(np.float64)
        return node.input[0], off + (on - off) * np.eye(int(depth.item()))
    live = [name for name in node.input if name in trace.live]
    constants = [trace.values[name] for name in node.input if name not in trace.live]
    if len(live) != 1 or len(constants) != 1 or constants[0].shape[-1:] != size:
        return None
    numbers = constants[0].ravel()
    if trace.values[live[0]].dtype.kind not in "iu" or not np.array_equal(
        numbers, np.arange(*size)
    ):
        return None
    return live[0], np.eye(len(numbers))
