"""The bounds that an operator keeps a value within."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from dlb.graph.trace import Trace

__all__ = ["bounds_of"]

#: A bound that no float32 is beyond is none.
_BEYOND = 3e38


def bounds_of(
    trace: Trace, node: onnx.NodeProto, given: Mapping[str, Any]
) -> tuple[float, float] | None:
    """The least and the largest number that a Clip leaves of its first input, or the Max or Min of a
    value and a number: infinite where there is none.

    Args:
        given: the node's attributes.

    Returns:
        None where they depend on the input, are more than one number each, or make the value larger.
    """
    live = [name for name in node.input if name in trace.live]
    if len(live) != 1 or trace.values[live[0]].shape != trace.values[node.output[0]].shape:
        return None
    if node.op_type == "Clip":
        low, high = given.get("min"), given.get("max")
        found = [trace.constant(node, place) for place in (1, 2)]
        low, high = (
            attribute if constant is None else constant
            for attribute, constant in zip((low, high), found)
        )
    elif len(node.input) == 2:
        (number,) = (trace.values[name] for name in node.input if name not in trace.live)
        low, high = (number, None) if node.op_type == "Max" else (None, number)
    else:
        return None
    bounds = [
        np.unique([none] if bound is None else bound)
        for bound, none in ((low, -math.inf), (high, math.inf))
    ]
    if any(len(each) != 1 for each in bounds):
        return None
    least, most = (float(each[0]) for each in bounds)
    return -math.inf if least <= -_BEYOND else least, math.inf if most >= _BEYOND else most
