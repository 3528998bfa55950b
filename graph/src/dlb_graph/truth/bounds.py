"""The bounds to which an operator limits a value."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from dlb_graph.truth.trace import Trace

__all__ = ["bounds_of"]

#: A bound that no float32 exceeds counts as infinite.
_BEYOND = 3e38


def bounds_of(
    trace: Trace, node: onnx.NodeProto, attributes: Mapping[str, Any]
) -> tuple[float, float] | None:
    """The smallest and the largest number that a Clip, or a Max or Min with a constant, lets pass.

    Args:
        attributes: of the node.

    Returns:
        the lower and the upper bound, infinite if there is none; None if a bound depends on the
        input, is more than one number, or broadcasts the value to a larger shape.
    """
    live = [name for name in node.input if name in trace.live]
    if len(live) != 1 or trace.values[live[0]].shape != trace.values[node.output[0]].shape:
        return None
    if node.op_type == "Clip":
        low, high = attributes.get("min"), attributes.get("max")
        constants = [trace.constant(node, index) for index in (1, 2)]
        low, high = (
            attribute if constant is None else constant
            for attribute, constant in zip((low, high), constants)
        )
    elif len(node.input) == 2:
        (number,) = (trace.values[name] for name in node.input if name not in trace.live)
        low, high = (number, None) if node.op_type == "Max" else (None, number)
    else:
        return None
    bounds = [
        np.unique([infinite] if bound is None else bound)
        for bound, infinite in ((low, -math.inf), (high, math.inf))
    ]
    if any(len(bound) != 1 for bound in bounds):
        return None
    least, most = (float(bound[0]) for bound in bounds)
    return -math.inf if least <= -_BEYOND else least, math.inf if most >= _BEYOND else most
