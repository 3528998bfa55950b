"""Operators of ONNX itself that are read as compositions of simpler ones."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx

from dlb_graph.rewriting.fourier import LARGEST_MATRIX, dft, stft
from dlb_graph.rewriting.grid_sampling import grid_sample
from dlb_graph.rewriting.node_writer import NodeWriter, Rule
from dlb_graph.truth.trace import attributes_of

__all__ = ["RULES", "rule_of"]

#: The operator sets from which on Slice has inputs, and Trilu is one.
SLICE_OF_INPUTS, TRILU = 10, 14
#: More factors than this are no product that is written out.
MOST_FACTORS = 64
#: DepthToSpace's mode: the axes of [N, ...] into which channels go, and those of the result, in order.
_DEPTHS = {
    "DCR": ((None, None, -1), (0, 3, 4, 1, 5, 2)),
    "CRD": ((-1, None, None), (0, 1, 4, 2, 5, 3)),
}
#: SpaceToDepth's mode, which the newest operator sets have: blocks before channels, or behind them.
_SPACES = {"DCR": (0, 3, 5, 1, 2, 4), "CRD": (0, 1, 3, 5, 2, 4)}


def _depth_to_space(write: NodeWriter) -> bool:
    """Channels moved into blocks of places (Shi et al., arXiv:1609.05158)."""
    if write.opset < SLICE_OF_INPUTS:
        return False
    size = int(write.attributes["blocksize"])
    channels, order = _DEPTHS[write.attributes.get("mode", "DCR")]
    places = _sizes(write, 2, 4)
    split = [size if part is None else part for part in channels]
    wide = write.add("Concat", write.shape(0, *split), places, axis=0)
    moved = write.add("Transpose", write.add("Reshape", write.input(0), wide), perm=order)
    larger = write.add("Mul", places, write.shape(size))
    sizes = write.add("Concat", write.shape(0, -1), larger, axis=0)
    return write.end(write.add("Reshape", moved, sizes))


def _space_to_depth(write: NodeWriter) -> bool:
    """Blocks of places moved into channels."""
    if write.opset < SLICE_OF_INPUTS:
        return False
    size = int(write.attributes["blocksize"])
    fewer = write.add("Div", _sizes(write, 2, 4), write.shape(size))
    rows, columns = (write.add("Gather", fewer, write.shape(place)) for place in (0, 1))
    block = write.shape(size)
    split = (write.shape(0), _sizes(write, 1, 2), rows, block, columns, block)
    wide = write.add("Concat", *split, axis=0)
    order = _SPACES[write.attributes.get("mode", "DCR")]
    moved = write.add("Transpose", write.add("Reshape", write.input(0), wide), perm=order)
    sizes = write.add("Concat", write.shape(0, -1), fewer, axis=0)
    return write.end(write.add("Reshape", moved, sizes))


def _sizes(write: NodeWriter, start: int, stop: int) -> str:
    """Some sizes of the first input."""
    size = write.add("Shape", write.input(0))
    return write.add("Slice", size, write.shape(start), write.shape(stop))


def _cumulative_sum(write: NodeWriter) -> bool:
    """The sum of a triangle of the values, repeated once for each place."""
    axis, rank = write.constant(1), write.rank(write.input(0))
    if axis is None or rank is None or write.opset < TRILU:
        return False
    order = [*range(rank)]
    order[int(axis) % rank], order[-1] = order[-1], order[int(axis) % rank]
    value = write.add("Transpose", write.input(0), perm=order)
    sizes = write.add("Shape", value)
    last = write.add("Gather", sizes, write.shape(rank - 1))
    square = write.add("Concat", sizes, last, axis=0)
    raised = write.add("Unsqueeze", value, write.shape(-2))
    reverse, exclusive = (write.attributes.get(name, 0) for name in ("reverse", "exclusive"))
    away = write.tensor((1 if reverse else -1) if exclusive else 0, np.int64)
    part = write.add("Trilu", write.add("Expand", raised, square), away, upper=int(bool(reverse)))
    added = write.add("ReduceSum", part, write.shape(-1), keepdims=0)
    return write.end(write.add("Transpose", added, perm=order))


def _einsum(write: NodeWriter) -> bool:
    """Products of more than two values, one after the other."""
    read, arrow, written = write.attributes["equation"].replace(" ", "").partition("->")
    terms, values = read.split(","), list(write.node.input)
    if len(terms) < 3 or "." in read or not arrow:
        return False
    while len(terms) > 2:
        needed = {*written, *"".join(terms[2:])}
        letters = "".join(sorted({*terms[0], *terms[1]} & needed))
        joined = write.add("Einsum", *values[:2], equation=f"{terms[0]},{terms[1]}->{letters}")
        terms[:2], values[:2] = [letters], [joined]
    return write.end(write.add("Einsum", *values, equation=f"{terms[0]},{terms[1]}->{written}"))


def _last_of_equals(write: NodeWriter) -> bool:
    """Of the numbers backwards the first."""
    rank = write.rank(write.input(0))
    if rank is None or write.opset < SLICE_OF_INPUTS:
        return False
    axis = write.attributes.get("axis", 0) % rank
    backwards = (write.shape(number) for number in (-1, -(1 << 62), axis, -1))
    turned = write.add("Slice", write.input(0), *backwards)
    settings = {"axis": axis, "keepdims": write.attributes.get("keepdims", 1)}
    place = write.add(write.node.op_type, turned, **settings)
    size = write.add("Gather", write.add("Shape", write.input(0)), write.tensor(axis, np.int64))
    last = write.add("Sub", size, write.tensor(1, np.int64))
    return write.end(write.add("Sub", last, place))


def _product(write: NodeWriter) -> bool:
    """Products of the numbers along axes of known sizes, one axis after the other."""
    value, sizes = write.input(0), write.shapes.get(write.input(0))
    listed = write.constant(1) if write.input(1) else write.attributes.get("axes")
    if sizes is None or (write.input(1) and listed is None):
        return False
    named = [] if listed is None else np.ravel(listed).tolist()
    if not named and write.attributes.get("noop_with_empty_axes", 0):
        return write.end(value)
    axes = {int(axis) % len(sizes) for axis in named or range(len(sizes))}
    if not all(0 < sizes[axis] <= MOST_FACTORS for axis in axes):
        return False
    keeps_axes = write.attributes.get("keepdims", 1)
    for axis in sorted(axes, reverse=True):
        factors = [
            write.add(
                "Gather", value, write.tensor([place] if keeps_axes else place, np.int64), axis=axis
            )
            for place in range(sizes[axis])
        ]
        value = factors[0]
        for factor in factors[1:]:
            value = write.add("Mul", value, factor)
    return write.end(value)


def _from_columns(write: NodeWriter) -> bool:
    """Blocks put in their places of maps, where they overlap added up: a transposed convolution.

    Blocks that lie side by side are reordered only.
    """
    image, block, blocks = write.constant(1), write.constant(2), list[int]()
    columns = write.shapes.get(write.input(0), ())
    if image is None or block is None or len(columns) != 3:
        return False
    kernel, sizes = np.ravel(block).tolist(), np.ravel(image).tolist()
    rank = len(kernel)
    strides, dilations = (
        list(write.attributes.get(name) or [1] * rank) for name in ("strides", "dilations")
    )
    pads = list(write.attributes.get("pads") or [0] * 2 * rank)
    ends, left = zip(pads[:rank], pads[rank:]), list[int]()
    for size, width, stride, apart, end in zip(sizes, kernel, strides, dilations, ends):
        steps, rest = divmod(size + sum(end) - apart * (width - 1) - 1, stride)
        blocks.append(steps + 1)
        left.append(rest)
    if strides == kernel and not any(pads + left) and set(dilations) == {1}:
        raised = write.add("Reshape", write.input(0), write.shape(0, -1, *kernel, *blocks))
        pairs = [place for axis in range(rank) for place in (2 + rank + axis, 2 + axis)]
        moved = write.add("Transpose", raised, perm=[0, 1, *pairs])
        return write.end(write.add("Reshape", moved, write.shape(0, -1, *sizes)))
    count = math.prod(kernel)
    if not columns[1] or columns[1] % count or columns[1] * count > LARGEST_MATRIX:
        return False
    maps = write.add("Reshape", write.input(0), write.shape(0, -1, *blocks))
    channels = columns[1] // count
    ones = np.tile(np.eye(count).reshape(count, 1, *kernel), (channels, *(1,) * (rank + 1)))
    settings: dict[str, Any] = {
        "strides": strides,
        "dilations": dilations,
        "pads": pads,
        "output_padding": left,
    }
    return write.end(
        write.add("ConvTranspose", maps, write.tensor(ones), group=channels, **settings)
    )


def _layer_norm(write: NodeWriter) -> bool:
    """Several last axes as one."""
    rank = write.rank(write.input(0))
    axis = write.attributes.get("axis", -1)
    if rank is None or axis % rank == rank - 1 or write.uses(1):
        return False
    sizes = write.add("Shape", write.input(0))
    rows = write.shape(*(0,) * (axis % rank), -1)
    value = write.add("Reshape", write.input(0), rows)
    numbers = [write.add("Reshape", name, write.shape(-1)) for name in write.node.input[1:] if name]
    settings = {"epsilon": write.attributes.get("epsilon", 1e-5)}
    normal = write.add("LayerNormalization", value, *numbers, axis=-1, **settings)
    return write.end(write.add("Reshape", normal, sizes))


def rule_of(node: onnx.NodeProto) -> Rule | None:
    """The rule that may write out a node; None if it stays."""
    if node.op_type == "Einsum" and len(node.input) < 3:
        return None
    if node.op_type in ("ArgMax", "ArgMin") and not attributes_of(node).get("select_last_index", 0):
        return None
    if node.op_type == "LayerNormalization" and attributes_of(node).get("axis", -1) == -1:
        return None
    return RULES.get(node.op_type)


RULES: dict[str, Rule] = {
    **dict.fromkeys(("ArgMax", "ArgMin"), _last_of_equals),
    "CumSum": _cumulative_sum,
    "Col2Im": _from_columns,
    "DFT": dft,
    "DepthToSpace": _depth_to_space,
    "Einsum": _einsum,
    "GridSample": grid_sample,
    "LayerNormalization": _layer_norm,
    "ReduceProd": _product,
    "STFT": stft,
    "SpaceToDepth": _space_to_depth,
}
