"""Normalisations of groups and by the root mean square, as single operators or decomposed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import onnx

from dlb_graph import layers as L
from dlb_graph.layers.decimals import decimal
from dlb_graph.reading.importer import Attributes, Importer
from dlb_graph.reading.layers import unsupported
from dlb_graph.reading.maps import map_layer, map_shape_of
from dlb_graph.reading.samples_first import whole_value
from dlb_graph.reading.views import Shape, ValueView, view_of
from dlb_graph.truth.layout import LAYOUT
from dlb_graph.truth.recognised import Block

__all__ = ["group_norm", "rms_norm"]


def group_norm(importer: Importer, node: onnx.NodeProto, attributes: Attributes) -> ValueView:
    """A group normalisation of features, rows or maps; one of instances has a group for each channel.

    A scale for each group, as operator sets before 21 have it, becomes one for each channel.
    """
    block = importer.blocks.get(node.output[0])
    if block is not None:
        return _decomposed(importer, node, block)
    start = node.input[0]
    channels = importer.value_shape(start)[1]
    groups = int(attributes.get("num_groups", channels))
    epsilon = decimal(attributes.get("epsilon", 1e-5))
    weights = {
        role: np.repeat(constant, channels // constant.size)
        for role, constant in importer.weights(node).items()
    }
    source, shape = _channels_first(importer, node, start)
    if channels % groups or groups == math.prod(shape[1:]) or epsilon <= 0:
        raise unsupported(
            node, f"normalises {list(shape)} in {groups} groups with epsilon {epsilon:g}"
        )
    layer = L.GroupNorm(groups=groups, epsilon=epsilon)
    return importer.value_of(node, importer.add(node, layer, [source], shape, weights))


def _decomposed(importer: Importer, node: onnx.NodeProto, block: Block) -> ValueView:
    """A group normalisation in parts, of a value in any shape."""
    (start,), channels = block.inputs, block.attributes["channels"]
    importer.revert_fusion(start)
    values = list(_same_numbers(importer, start))
    if block.channels_last:
        source, shape = _channels_last(importer, node, values, channels)
    else:
        names = [name for name in values if importer.value_shape(name)[1:2] == (channels,)]
        if not names:
            raise unsupported(node, f"normalises {channels} channels that no map or features have")
        # Rows only if there is nothing else: they are read as a map.
        rank = [importer.trace.values[name].ndim for name in names]
        best = min(range(len(names)), key=lambda k: (5, 4, 2, 3).index(rank[k]))
        source, shape = _channels_first(importer, node, names[best])
    importer.nominal_values.update(block.nominal_values)
    layer = L.GroupNorm(groups=block.attributes["groups"], epsilon=block.attributes["epsilon"])
    layer_name = importer.add(node, layer, [source], shape, block.weights)
    assert block.index_map is not None
    return view_of(layer_name, block.index_map, shape)


def _same_numbers(importer: Importer, name: str) -> Iterator[str]:
    """Values of 2 to 4 axes, batch first, with the numbers of a value in their order; of 5 if a layer's are."""
    trace = importer.trace
    ranks = {2, 3, 4} | ({5} & {len(importer.shape(importer.view(name)))})
    while True:
        value = trace.values[name]
        if value.ndim in ranks and len(value) == trace.batch:
            yield name
        producer = trace.producers.get(name)
        if producer is None or producer.op_type not in LAYOUT or producer.op_type == "Transpose":
            return
        name = producer.input[0]


def _channels_first(importer: Importer, node: onnx.NodeProto, name: str) -> tuple[str, Shape]:
    """The layer whose channels a value [N, C, ...] has, and its shape."""
    shape = importer.value_shape(name)
    if len(shape) > 2:
        return map_layer(importer, node, name), map_shape_of(shape)
    view = importer.elementwise(name)
    return (view.layer if view.index_map is None else whole_value(importer, node, name), shape)


def _channels_last(
    importer: Importer, node: onnx.NodeProto, names: Sequence[str], channels: int
) -> tuple[str, Shape]:
    """The same of a value with the numbers of a map [N, H, W, C] or [N, D, H, W, C]."""
    for name in names:
        samples, *sizes = importer.value_shape(name)
        if len(sizes) in (3, 4) and sizes[-1] == channels:
            shape = (samples, channels, *sizes[:-1])
            return importer.as_map(node, name, shape).layer, shape
    raise unsupported(node, f"normalises {channels} channels that no map has")


def rms_norm(importer: Importer, node: onnx.NodeProto, attributes: Attributes) -> ValueView:
    """A normalisation by the root mean square over the last axis of features or a sequence."""
    block = importer.blocks.get(node.output[0])
    if block is None:
        start, scale = node.input[0], importer.weights(node)["scale"]
        rank = importer.trace.values[start].ndim
        epsilon = decimal(attributes.get("epsilon", 1e-5))
        if attributes.get("axis", -1) % rank != rank - 1 or epsilon <= 0:
            raise unsupported(node, "normalises more than the last axis, or has no epsilon")
    else:
        (start,), scale = block.inputs, block.weights["scale"]
        epsilon = block.attributes["epsilon"]
        importer.revert_fusion(start)
        importer.nominal_values.update(block.nominal_values)
    source, rows, order = importer.features(node, start)
    shape = importer.layers[source].shape
    weight = np.empty(len(order))
    weight[order] = np.broadcast_to(scale, weight.shape)
    layer = L.RMSNorm(epsilon=epsilon)
    layer_name = importer.add(node, layer, [source], shape, {"scale": weight})
    return importer.value_of(node, layer_name, rows[:, None] * len(order) + order)
