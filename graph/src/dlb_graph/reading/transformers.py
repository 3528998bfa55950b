"""The layers of transformers, as single operators or decomposed.

:mod:`dlb_graph.truth.blocks` recognises the decomposed ones by their results. This module turns them
into layers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx

from dlb_graph import layers as L
from dlb_graph.layers.decimals import decimal
from dlb_graph.layers.numbers import Array
from dlb_graph.reading.importer import Attributes, Importer
from dlb_graph.reading.layers import BlockMisread, PendingAttention, PendingConcat, unsupported
from dlb_graph.reading.primitives import by_numbers
from dlb_graph.reading.samples_first import aligned, constant_value, joined, samples_first
from dlb_graph.reading.slices import producing_layer
from dlb_graph.reading.views import ValueView, positions, view_of
from dlb_graph.truth.recognised import Block

__all__ = [
    "attention",
    "complete_attention",
    "concat_constants",
    "gelu",
    "layer_norm",
    "position_embedding",
    "reduce_mean",
]


def gelu(importer: Importer, node: onnx.NodeProto, attributes: Attributes) -> ValueView:
    """A GELU, as an operator or decomposed."""
    block = importer.blocks.get(node.output[0])
    start = node.input[0] if block is None else _block_input(importer, block)
    kind = (
        attributes.get("approximate", "none") if block is None else block.attributes["approximate"]
    )
    view = importer.elementwise(start)
    shape = importer.shape(view)
    layer_name = importer.add(node, L.GELU(approximate=kind), [view.layer], shape)
    index_map = importer.index_map_of(view)
    index_map = (
        index_map
        if block is None or block.index_map is None
        else index_map.ravel()[block.index_map]
    )
    view = importer.value_of(node, layer_name, index_map)
    if block is None or not block.weights:
        return view
    scale = np.broadcast_to(block.weights["scale"], importer.value_shape(node.output[0]))
    return by_numbers(importer, node, view, scale, np.zeros_like(scale))


def layer_norm(importer: Importer, node: onnx.NodeProto, attributes: Attributes) -> ValueView:
    """A layer normalisation over the last axis of [N, features] or [N, T, features]."""
    block = importer.blocks.get(node.output[0])
    if block is None:
        start = node.input[0]
        parameters = importer.weights(node)
        rank = importer.trace.values[start].ndim
        if attributes.get("axis", -1) % rank != rank - 1:
            raise unsupported(node, "normalises more than the last axis")
        features, bias = importer.value_shape(start)[-1], parameters.get("bias", np.zeros(1))
        parameters = {
            name: np.broadcast_to(values, (features,))
            for name, values in {**parameters, "bias": bias}.items()
        }
        epsilon = decimal(attributes.get("epsilon", 1e-5))
    else:
        start, parameters = _block_input(importer, block), dict(block.weights)
        epsilon = block.attributes["epsilon"]
    source, rows, order = importer.features(node, start)
    shape = importer.layers[source].shape
    weights = {}
    for name, values in parameters.items():
        weights[name] = np.empty(len(order))
        weights[name][order] = values
    layer_name = importer.add(node, L.LayerNorm(epsilon=epsilon), [source], shape, weights)
    index_map = (rows[:, None] * len(order) + order).reshape(importer.value_shape(node.output[0]))
    if block is None or block.table is None:
        return view_of(layer_name, index_map, shape)
    table = np.empty(math.prod(shape))
    table[index_map.ravel()] = np.broadcast_to(block.table, index_map.shape).ravel()
    weights = {"weight": table.reshape(shape)[0]}
    return view_of(
        importer.add(node, L.PositionEmbedding(), [layer_name], shape, weights), index_map, shape
    )


def _block_input(importer: Importer, block: Block) -> str:
    """The single input of a block. The exact values of its constants are recorded."""
    (start,) = block.inputs
    importer.view(start)
    importer.nominal_values.update(block.nominal_values)
    return start


def attention(importer: Importer, node: onnx.NodeProto, attributes: Attributes) -> ValueView:
    """The output of the heads: three linear maps of one value. The output map comes later."""
    block = importer.blocks.get(node.output[0])
    if block is None:
        raise unsupported(node, "dlb has no layer for this operator")
    linears = [producing_layer(importer, name) for name in block.inputs]
    sizes = {linear.shape for linear in linears}
    layouts_match = all(
        np.array_equal(index_map, block.linear_parts.get(name, positions(index_map.shape)))
        for name, index_map in ((name, importer.index_map(name)) for name in block.inputs)
    )
    shape = linears[0].shape
    if (
        any(not isinstance(linear.layer, L.Linear) for linear in linears)
        or len(shape) != 3
        or not layouts_match
    ):
        raise unsupported(node, "attention: its inputs are not three linear maps")
    (source, *other_sources) = {linear.inputs[0] for linear in linears}
    if other_sources or sizes != {importer.layers[source].shape}:
        raise unsupported(
            node,
            "attention: its queries, keys and values must come from one value and have its size",
        )
    weights = {}
    biased = any("bias" in linear.weights for linear in linears)
    for name, linear in zip(L.ATTENTION_MAPS, linears):
        weights[f"{name}_weight"] = linear.weights["weight"]
        if biased:
            weights[f"{name}_bias"] = linear.weights.get("bias", np.zeros(shape[2]))
    importer.nominal_values.update(block.nominal_values)
    layer = PendingAttention(block.attributes["heads"], block.attributes["causal"], node.output[0])
    return ValueView(
        importer.add_named(node.name or node.output[0], layer, (source,), weights, shape),
        block.index_map,
    )


def complete_attention(
    importer: Importer, node: onnx.NodeProto, name: str, weight: Array, bias: Array | None
) -> None:
    """Complete an attention with its output map.

    Args:
        weight: float64 [out, in].
        bias: float64 [out], or None.
    """
    imported_layer = importer.layers[name]
    assert isinstance(imported_layer.layer, PendingAttention)
    if weight.shape != (imported_layer.shape[2], imported_layer.shape[2]):
        raise BlockMisread(imported_layer.layer.output)
    weights = dict(imported_layer.weights)
    biased = bias is not None or "query_bias" in weights
    if biased:
        no_bias = np.zeros(imported_layer.shape[2])
        for role in L.ATTENTION_MAPS[:3]:
            weights.setdefault(f"{role}_bias", no_bias)
        weights["output_bias"] = no_bias if bias is None else bias
    weights["output_weight"] = weight
    ordered = [f"{role}_{kind}" for kind in ("weight", "bias") for role in L.ATTENTION_MAPS]
    importer.change(
        name,
        layer=L.Attention(
            heads=imported_layer.layer.heads, causal=imported_layer.layer.causal, bias=biased
        ),
        weights={role: weights[role] for role in ordered if role in weights},
    )


def position_embedding(
    importer: Importer, node: onnx.NodeProto, name: str, constant: Array
) -> ValueView | None:
    """A position table added to every sequence; None if it is no table.

    Constant steps that were joined to the sequence become part of the table. So does a row, which is
    equal at every step.
    """
    value = importer.trace.values[name]
    broadcast = np.broadcast_to(constant, value.shape)
    if (
        node.op_type not in ("Add", "Sum")
        or value.ndim != 3
        or not (broadcast == broadcast[:1]).all()
    ):
        return None
    view = (
        importer.view(name)
        if len(importer.shape(importer.view(name))) == 3
        else importer.materialise_layout(name)
    )
    shape = importer.shape(view)
    index_map = importer.index_map_of(view)
    if len(shape) != 3 or index_map.shape != value.shape:
        return None
    flat_table = np.empty(value.size)
    flat_table[index_map.ravel()] = broadcast.ravel()
    table = flat_table.reshape(shape)
    if not (table == table[:1]).all():
        return None
    source, weight = importer.layers[view.layer], table[0]
    merged = isinstance(source.layer, PendingConcat) or (
        isinstance(source.layer, L.PositionEmbedding)
        and any((rows == rows[:1]).all() for rows in (weight, source.weights["weight"]))
    )
    if merged and importer.has_one_reader(name):
        weight = weight + source.weights["weight"]
        layer_name = importer.add(
            node, L.PositionEmbedding(), source.inputs, shape, {"weight": weight}
        )
    else:
        layer_name = importer.add(
            node, L.PositionEmbedding(), [view.layer], shape, {"weight": weight}
        )
    return view_of(layer_name, index_map, shape)


def concat_constants(importer: Importer, node: onnx.NodeProto, attributes: Attributes) -> ValueView:
    """A sequence between constant steps that are equal for every sample, such as a class token.

    It becomes a pad with zeros. The constants become part of the position table that was added
    before or is added next.
    """
    value = importer.trace.values[node.output[0]]
    live = [name for name in node.input if name in importer.trace.live]
    view = importer.materialise_layout(live[0])
    steps = value.ndim == 3 and attributes["axis"] % 3 == 1
    if not steps or len(live) > 1 or view.index_map is not None or len(importer.shape(view)) != 3:
        return _joined_constants(importer, node, attributes["axis"] % value.ndim, live)
    sizes = [importer.value_shape(name)[1] for name in node.input]
    position = list(node.input).index(live[0])
    before, after = sum(sizes[:position]), sum(sizes[position + 1 :])
    table = value.copy()
    table[:, before : before + sizes[position]] = 0.0
    if not (table == table[:1]).all():
        raise unsupported(node, "joins a different constant to each sample")
    source = importer.layers[view.layer]
    layer: L.PositionEmbedding | PendingConcat = PendingConcat()
    inputs: tuple[str, ...] = (view.layer,)
    if isinstance(source.layer, L.PositionEmbedding) and importer.has_one_reader(live[0]):
        layer, inputs = source.layer, source.inputs
        table[:, before : before + sizes[position]] = source.weights["weight"]
    padded = importer.add(node, L.Pad(pads=(before, 0, after, 0)), inputs, value.shape)
    return ValueView(
        importer.add_named(padded, layer, (padded,), {"weight": table[0]}, value.shape)
    )


def _joined_constants(
    importer: Importer, node: onnx.NodeProto, axis: int, live: Sequence[str]
) -> ValueView:
    """Values and constants along any axis: zeros around a value, to which the constants are added."""
    whole = importer.trace.values[node.output[0]]
    if len(live) > 1:
        return _joined_to_several(importer, node, axis, live)
    value = samples_first(importer, node, live[0])
    along = value.axis(axis)
    sizes = [importer.value_shape(name)[axis] for name in node.input]
    starts = [sum(sizes[:place]) for place in range(len(sizes))]
    places = [place for place, name in enumerate(node.input) if name in live]
    if not along or whole.dtype.kind != "f":
        raise unsupported(node, "joins constants to samples")
    before = starts[places[0]]
    after = sum(sizes) - before - sizes[places[0]]
    rank = len(value.shape) - 1
    pads = [before * (k == along) for k in range(1, rank + 1)]
    pads += [after * (k == along) for k in range(1, rank + 1)]
    shape = (*value.shape[:along], sum(sizes), *value.shape[along + 1 :])
    padded = importer.add(node, L.Pad(pads=tuple(pads)), [value.layer], shape)
    numbers = whole.astype(np.float64)
    kept = [slice(None)] * whole.ndim
    kept[axis] = slice(before, before + sizes[places[0]])
    numbers[tuple(kept)] = 0.0
    view = value.view(padded, shape)
    return by_numbers(importer, node, view, np.ones_like(numbers), numbers)


def _joined_to_several(
    importer: Importer, node: onnx.NodeProto, axis: int, live: Sequence[str]
) -> ValueView:
    """Several values, with constants between them that are values of their own."""
    values = dict(zip(live, aligned(importer, node, live)))
    first = values[live[0]]
    held = importer.trace.values
    parts = [
        values[name] if name in values else constant_value(importer, node, held[name], first)
        for name in node.input
    ]
    return joined(importer, node, parts, first.axis(axis))


def reduce_mean(
    importer: Importer, node: onnx.NodeProto, axes: tuple[int, ...]
) -> ValueView | None:
    """The mean of a sequence over time or over features; None for any other mean."""
    name = node.input[0]
    value = importer.trace.values[name]
    if value.ndim != 3 or len(axes) != 1 or not axes[0]:
        return None
    view = importer.materialise_layout(name)
    shape = importer.shape(view)
    if len(shape) != 3 or view.index_map is not None:
        return None
    output_shape = (shape[0], shape[3 - axes[0]])
    layer_name = importer.add(node, L.ReduceMean(axis=axes[0]), [view.layer], output_shape)
    return importer.value_of(node, layer_name)
