"""Masks: numbers in fixed places that are replaced by one number, by Where or by adding one."""

from __future__ import annotations

import numpy as np
from onnx import NodeProto

from dlb_graph.layers.decimals import decimal
from dlb_graph.layers.numbers import Array
from dlb_graph.truth.trace import Trace

__all__ = ["MASKED", "UNBOUNDED", "added_mask", "chosen_numbers", "constant_mask"]


#: A number at least this large stands for infinity.
UNBOUNDED = 1e30
#: What replaces a number to which minus infinity is added: the lowest finite number of float32.
MASKED = -3.4028234663852886e38


def constant_mask(trace: Trace, node: NodeProto) -> tuple[str, Array, float] | None:
    """A Where with a constant condition, one value and one constant number, in either order.

    Returns:
        the value, the places that stay, bool in the shape of the result, and what replaces the others: the
        furthest finite number of float32 for an infinity. None if it chooses between two values, or replaces
        places by several numbers or by NaN.
    """
    condition = trace.constant(node, 0)
    live = [index for index in (1, 2) if node.input[index] in trace.live]
    if condition is None or len(live) != 1:
        return None
    (index,), shape = live, trace.values[node.output[0]].shape
    kept = np.broadcast_to(condition if index == 1 else ~condition, shape)
    numbers = np.broadcast_to(trace.values[node.input[3 - index]], shape)[~kept]
    value = float(numbers[0]) if numbers.size else 0.0
    if np.isnan(value) or (numbers != value).any():
        return None
    return node.input[index], kept, min(max(value, MASKED), -MASKED)


def chosen_numbers(trace: Trace, node: NodeProto) -> list[float | None] | None:
    """What a Where of a condition that depends on the input chooses: a number, or None for a value.

    None if both are constants, or one is more than one number.
    """
    numbers: list[float | None] = []
    for place in (1, 2):
        constant = trace.constant(node, place)
        if constant is None:
            numbers.append(None)
            continue
        value = float(constant.ravel()[0]) if constant.size else np.nan
        if not (constant == value).all():
            return None
        within = min(max(value, MASKED), -MASKED)
        numbers.append(within if abs(within) == -MASKED else decimal(within))
    return numbers if None in numbers else None


def added_mask(numbers: Array) -> Array | None:
    """The places that numbers keep which are added: bool, false where they are minus infinity, or nearly.

    None if no number is, and where one is infinity or NaN.
    """
    masked = numbers <= -UNBOUNDED
    return ~masked if masked.any() and (numbers[~masked] < UNBOUNDED).all() else None
