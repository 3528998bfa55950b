"""Reads Resize and Upsample: interpolation along axes, or the nearest elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec
import numpy as np
import onnx

from dlb_graph.reading.importer import Attributes, Importer
from dlb_graph.reading.layers import unsupported
from dlb_graph.reading.samples_first import samples_first
from dlb_graph.reading.slices import axes_of_value, select_part
from dlb_graph.reading.views import ValueView, positions, view_of
from dlb_graph.truth.layout import interpolation

__all__ = ["resize"]

Number = TypeVar("Number", int, float)


def resize(importer: Importer, node: onnx.NodeProto, attributes: Attributes) -> ValueView:
    """A resize of a value whose axes are in any order, or selected elements of it."""
    asked = interpolation(importer.trace, node)
    if asked is None:
        return select_part(importer, node, attributes)
    shape = importer.value_shape(node.input[0])
    scales = importer.trace.constant(node, 2)
    if scales is None or asked.coordinates != "align_corners":
        scales = np.zeros(0)
    if any(
        abs(size * scale - output) > 1e-4 for size, scale, output in zip(shape, scales, asked.sizes)
    ):  # ONNX's reference and ONNX Runtime place the elements differently
        raise unsupported(node, "aligns corners by scales that give no whole size")
    if asked.sizes == shape and set(asked.scales) <= {1}:
        return importer.view(node.input[0])
    found = axes_of_value(importer, node)
    if found is not None:
        view, axes, before = found
        layer, place_of = view.layer, axes
    else:
        value = samples_first(importer, node, node.input[0])
        layer, before = value.layer, value.shape
        place_of = tuple(value.axis(axis) for axis in range(len(shape)))
    batch = place_of.index(0)
    if asked.sizes[batch] != shape[batch] or set(asked.scales[batch : batch + 1]) - {1}:
        raise unsupported(node, "resizes the batch")
    sizes = _in_order(asked.sizes, place_of, before)
    by = _in_order(asked.scales, place_of, (1.0,) * len(before)) if asked.scales else ()
    resized = msgspec.structs.replace(asked, sizes=sizes[1:], scales=by[1:])
    name = importer.add(node, resized, [layer], sizes)
    if found is None:
        return value.view(name, sizes)
    return view_of(name, positions(sizes).transpose(axes), sizes)


def _in_order(
    numbers: Sequence[Number], places: Sequence[int], others: Sequence[Number]
) -> tuple[Number, ...]:
    """Numbers of a file's axes in the order of a layer's axes; the batch and axes that are new keep theirs."""
    ordered = list(others)
    for number, place in zip(numbers, places):
        if place:
            ordered[place] = number
    return tuple(ordered)
