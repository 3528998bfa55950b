"""Operators that only arrange numbers, and padding seen through them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlb.graph.trace import Trace, attributes_of

__all__ = ["LAYOUT", "Padding", "padding_before"]

#: They neither compute nor leave out a number.
LAYOUT = {"Identity", "Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze"}


@dataclass(frozen=True)
class Padding:
    """What Pad operators put around a feature map [N, C, ...].

    Attributes:
        value: name of what was padded.
        before, after: how many numbers on each axis beside the first two; empty for no padding.
        number: what was put there.
    """

    value: str
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    number: float = 0.0


def padding_before(trace: Trace, name: str) -> Padding:
    """The padding of a value, seen through the layout operators between.

    Pads of other axes, of other modes, and those that crop, are not seen.
    """
    value = name
    axes = list(range(trace.values[name].ndim))
    while True:
        node = trace.producers.get(value)
        if node is None or not node.input or node.input[0] not in trace.live:
            return Padding(name)
        first = node.input[0]
        if node.op_type == "Pad":
            break
        moved = _moved(trace, value)
        if moved is None:
            return Padding(name)
        axes, value = [moved[axis] for axis in axes], first
    given = attributes_of(node)
    rank = len(axes)
    pads = np.asarray(given.get("pads", trace.constant(node, 1)))
    constant = trace.constant(node, 2)
    if constant is not None and constant.size != 1:
        return Padding(name)
    number = float(given.get("value", 0.0) if constant is None else constant.ravel()[0])
    if given.get("mode", "constant") != "constant" or pads.size != 2 * rank or pads.min() < 0:
        return Padding(name)
    before = tuple(int(pads[axis]) for axis in axes)
    after = tuple(int(pads[rank + axis]) for axis in axes)
    if any(before[:2] + after[:2]):
        return Padding(name)
    return Padding(first, before[2:], after[2:], number)


def _moved(trace: Trace, name: str) -> list[int] | None:
    """For each axis of a value, the axis it was before the layout operator that made it."""
    node = trace.producers[name]
    if node.op_type not in LAYOUT:
        return None
    after, before = trace.values[name].shape, trace.values[node.input[0]].shape
    if node.op_type == "Transpose":
        return list(attributes_of(node).get("perm", range(len(after))[::-1]))
    if len(after) != len(before) or [n for n in after if n > 1] != [n for n in before if n > 1]:
        return None
    # Only axes of size 1 have moved: the transpose of a map with one channel may be a reshape.
    large = [axis for axis, size in enumerate(before) if size > 1]
    ones = [axis for axis, size in enumerate(before) if size == 1]
    return [large.pop(0) if size > 1 else ones.pop(0) for size in after]
