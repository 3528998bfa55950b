"""Transposed convolutions, in the terms that frameworks have for them. Shapes are [C, H, W]."""

from typing import NamedTuple, Tuple

from dlb_worker.model import Node

__all__ = ["EvenPads", "even_transposed"]

Sizes = Tuple[int, ...]


class EvenPads(NamedTuple):
    """A transposed convolution that leaves out as much before each axis as after it, and a cut.

    Attributes:
        pads: left out on both sides of each axis.
        output_padding: added at the end of each axis, less than the stride.
        ranges: what is kept of each axis of a sample afterwards, (start, stop); () if that is all.
    """

    pads: Sizes
    output_padding: Sizes
    ranges: Tuple[Tuple[int, int], ...]


def even_transposed(node: Node) -> EvenPads:
    """How a framework computes a node that takes one number of pads for each axis.

    Uneven pads are even ones and a larger output padding, or else a cut.
    """
    pads, added, ranges, whole = [], [], [(0, node.shape[0])], True
    for axis, size in enumerate(node.shape[1:]):
        stride, before = node.stride[axis], node.pads[axis]
        # What is left out at the end; below 0 it is added.
        after = node.pads[axis + len(node.kernel)] - node.output_padding[axis]
        even = before if 0 <= before - after < stride else max(0, min(before, after))
        more = max(0, even - after)
        start, produced = before - even, size + before - even + max(0, after - even)
        pads.append(even)
        added.append(more)
        ranges.append((start, start + size))
        whole = whole and start == 0 and produced == size
    return EvenPads(tuple(pads), tuple(added), () if whole else tuple(ranges))
