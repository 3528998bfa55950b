"""Reads masks: numbers in fixed places that are replaced by one number."""

from __future__ import annotations

import numpy as np
import onnx

from dlb_graph.layers import Mask, Where
from dlb_graph.layers.numbers import Array
from dlb_graph.reading.importer import Importer
from dlb_graph.reading.layers import unsupported
from dlb_graph.reading.samples_first import aligned, enlarged
from dlb_graph.reading.views import ValueView, of_a_sample
from dlb_graph.truth.masks import MASKED, chosen_numbers, constant_mask
from dlb_graph.truth.trace import attributes_of
from dlb_worker.masks import packed

__all__ = ["add_mask", "triangle", "where"]


def where(importer: Importer, node: onnx.NodeProto) -> ValueView:
    """A Where with a constant condition, one value and one constant number; or of three values."""
    if importer.trace.constant(node, 0) is None:
        return _chosen(importer, node)
    found = constant_mask(importer.trace, node)
    if found is None:
        raise unsupported(
            node, "only one value and one constant number in fixed places are supported"
        )
    name, kept, number = found
    if not kept.any():
        raise unsupported(node, "makes a constant of the input")
    view = enlarged(importer, node, name)
    return view if kept.all() else add_mask(importer, node, view, kept, number)


def triangle(importer: Importer, node: onnx.NodeProto) -> ValueView:
    """A Trilu: zeros above or below a diagonal of the last two axes."""
    diagonal = importer.trace.constant(node, 1)
    if diagonal is None and len(node.input) > 1 and node.input[1]:
        raise unsupported(node, "its diagonal depends on the input")
    upper = attributes_of(node).get("upper", 1)
    part, number = (np.triu, np.tril)[not upper], int(diagonal or 0)
    kept = part(np.ones(importer.value_shape(node.input[0]), bool), number)
    if not kept.any():
        raise unsupported(node, "makes a constant of the input")
    view = importer.elementwise(node.input[0])
    return view if kept.all() else add_mask(importer, node, view, kept, 0.0)


def _chosen(importer: Importer, node: onnx.NodeProto) -> ValueView:
    """Of two values by a third, or of one value and a constant number."""
    numbers = chosen_numbers(importer.trace, node)
    if numbers is None:
        raise unsupported(node, "chooses constants that are more than one number")
    rank = len(importer.value_shape(node.output[0]))
    names = [name for name in node.input if name in importer.trace.live]
    values = aligned(importer, node, [importer.raised(name, rank) for name in names])
    if len({value.shape[0] for value in values}) > 1:
        raise unsupported(node, "repeats a value along the batch")
    shape = np.broadcast_shapes(*(value.shape for value in values))
    for place, number in enumerate(numbers, start=1):
        if number is not None and abs(number) < -MASKED:
            importer.nominal_values[node.input[place]] = number
    layer = Where(first=numbers[0], second=numbers[1])
    name = importer.add(node, layer, [value.layer for value in values], shape)
    return values[0].view(name, shape)


def add_mask(
    importer: Importer, node: onnx.NodeProto, view: ValueView, kept: Array, value: float
) -> ValueView:
    """A mask of a view.

    Args:
        kept: the places that stay, bool in the view's shape.
        value: what replaces the others.
    """
    shape, index_map = importer.shape(view), importer.index_map_of(view)
    if not np.array_equal(np.sort(index_map, axis=None), np.arange(np.prod(shape))):
        raise unsupported(node, "masks a part of a layer's value")
    canonical = np.empty(kept.size, bool)
    canonical[index_map.ravel()] = kept.ravel()
    sample = of_a_sample(canonical.reshape(shape))
    if sample is None:
        raise unsupported(node, "its mask differs between samples")
    layer = Mask(sizes=sample.shape, kept=packed(sample), value=value)
    return importer.apply(node, layer, view)
