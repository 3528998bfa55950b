"""Reads transposed convolutions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec
import onnx

from dlb_graph import layers as L
from dlb_graph.layers.transposed import places_of
from dlb_graph.reading.importer import Attributes, Importer
from dlb_graph.reading.layers import unsupported
from dlb_graph.reading.maps import add_map, map_layer, pads_of, sizes_of
from dlb_graph.reading.views import ValueView, axes_of, positions

__all__ = ["conv_transpose", "crop"]


def conv_transpose(importer: Importer, node: onnx.NodeProto, attributes: Attributes) -> ValueView:
    """With ``auto_pad`` and ``output_shape`` resolved.

    What is added at the end and what is left out there cancel each other.
    """
    weights = importer.weights(node)
    weight = weights["weight"]
    if weight.ndim not in (3, 4, 5):
        raise unsupported(
            node, f"has {weight.ndim - 2} spatial axes; dlb's transposed convolution has 2 or 3"
        )
    data = map_layer(importer, node, node.input[0])
    size, kernel = importer.value_shape(node.input[0])[2:], tuple(weight.shape[2:])
    places = places_of(lambda name, default: attributes.get(name, default), size, kernel)
    added = tuple(max(0, -after) for after in places.after)
    if min(places.before) < 0 or any(m >= step for m, step in zip(added, places.stride)):
        raise unsupported(
            node,
            f"adds {list(added)} to the output, which must be less than the stride "
            f"{list(places.stride)}, or adds at its start",
        )
    layer = L.ConvTranspose(
        out_channels=weight.shape[1] * places.groups,
        kernel=sizes_of(kernel, 1),
        stride=sizes_of(places.stride, 1),
        pads=pads_of(places.before, tuple(max(0, after) for after in places.after)),
        output_padding=sizes_of(added, 0),
        dilation=sizes_of(places.dilation, 1),
        groups=places.groups,
        bias="bias" in weights,
    )
    weights["weight"] = weight.reshape(*weight.shape[:2], *layer.kernel)
    return add_map(importer, node, layer, data, weights)


def crop(
    importer: Importer, node: onnx.NodeProto, indices_by_axis: Mapping[int, Sequence[int]]
) -> ValueView | None:
    """The view of a part of a transposed convolution, which then leaves out what is cut off.

    Returns:
        None if the value is none, another node reads it, or the part is not in its middle.
    """
    view = importer.view(node.input[0])
    layer, shape = importer.layers[view.layer].layer, list(importer.shape(view))
    if not isinstance(layer, L.ConvTranspose) or not importer.has_one_reader(node.input[0]):
        return None
    index_map = importer.index_map_of(view)
    rows = index_map.ndim == 3 and index_map.size == math.prod(shape)
    order = axes_of(index_map.reshape(shape) if rows else index_map, tuple(shape))
    if order is None or (rows and order != (0, 1, 2, 3)):
        return None
    axes = len(layer.kernel)
    before, after = list(layer.pads[:axes]), list(layer.pads[axes:])
    for value_axis, kept in indices_by_axis.items():
        axis = order[value_axis]
        if list(kept) == list(range(shape[axis])):
            continue
        if axis < 2 or list(kept) != list(range(kept[0], kept[-1] + 1)):
            return None
        before[axis - 2] += int(kept[0])
        after[axis - 2] += shape[axis] - 1 - int(kept[-1])
        shape[axis] = len(kept)
    left_out = [pad - more for pad, more in zip(after, layer.output_padding)]
    changed = msgspec.structs.replace(
        layer,
        pads=(*before, *(max(0, number) for number in left_out)),
        output_padding=sizes_of([max(0, -number) for number in left_out], 0),
    )
    importer.change(view.layer, layer=changed, shape=tuple(shape))
    return importer.value_of(node, view.layer, positions(tuple(shape)).transpose(order))
