"""Masks: numbers in fixed places that are replaced by one number, by Where or by adding one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import NodeProto

from dlb.graph.decimals import decimal, six_digits
from dlb.graph.layout import before_expand
from dlb.graph.reader import Attributes, Operation, Reader, generic_operation
from dlb.graph.trace import Trace

__all__ = [
    "MASKED",
    "UNBOUNDED",
    "ConstantMask",
    "added_mask",
    "chosen_numbers",
    "constant_mask",
    "mask",
    "mask_operation",
    "truth",
]

Array = npt.NDArray[Any]

#: A number at least this large stands for infinity.
UNBOUNDED = 1e30
#: What replaces a number to which minus infinity is added: the lowest finite number of float32.
MASKED = -3.4028234663852886e38


@dataclass(frozen=True, eq=False)
class ConstantMask:
    """A Where that keeps a value in fixed places.

    Attributes:
        name: of the value.
        kept: the places that stay, bool in the shape of the result.
        value: what replaces the others; the furthest finite number of float32 for an infinity.
    """

    name: str
    kept: Array
    value: float


def constant_mask(trace: Trace, node: NodeProto) -> ConstantMask | None:
    """A Where with a constant condition, one value and one constant number, in either order.

    None if it chooses between two values, or replaces places by several numbers or by NaN.
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
    return ConstantMask(node.input[index], kept, min(max(value, MASKED), -MASKED))


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


def mask(reader: Reader, node: NodeProto, raw: Attributes, output: str) -> Operation | int:
    """A Where of a constant condition, by how many places of a sample stay, as in any layout."""
    if reader.trace.constant(node, 0) is None:
        numbers = chosen_numbers(reader.trace, node)
        if numbers is not None:
            shown = dict(zip(("first", "second"), map(str, numbers)))
            inputs = [_before_expand(reader.trace, name) for name in reader.live_inputs(node)]
            return reader.make(node, "Where", shown, inputs)
    found = constant_mask(reader.trace, node)
    if found is None:
        return generic_operation(reader, node, raw, output)
    if found.kept.all() and found.kept.shape == reader.trace.values[found.name].shape:
        return reader.source[found.name]
    return mask_operation(reader, node, found.name, found.kept, found.value)


def truth(reader: Reader, node: NodeProto, raw: Attributes, output: str) -> Operation | int:
    """Whether real numbers are not 0, which a Where reads as the numbers themselves."""
    kinds = [reader.trace.values[name].dtype.kind for name in (node.input[0], output)]
    if kinds != ["f", "b"]:
        return reader.make(node, "Cast", raw)
    return reader.source[node.input[0]]


def _before_expand(trace: Trace, name: str) -> str:
    """The value before an Expand, and before the Cast of a condition that was repeated."""
    node = trace.producers.get(name)
    if node is not None and node.op_type == "Cast":
        name = node.input[0]
    return before_expand(trace, name)


def mask_operation(
    reader: Reader, node: NodeProto, name: str, kept: Array, value: float
) -> Operation:
    """The operation of a mask of a value; ``kept`` is in the shape of the result."""
    count = int(kept.sum()) // reader.trace.batch
    return reader.make(node, "Where", {"kept": count, "value": six_digits(value)}, [name])
