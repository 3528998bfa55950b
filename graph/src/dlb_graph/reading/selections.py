"""Reads numbers that are selected or replaced: by constant places, by computed ones, the largest."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import onnx

from dlb_graph.layers import Concat, Flatten, Gather, GatherElements, Pad
from dlb_graph.layers.numbers import Array
from dlb_graph.reading.importer import Attributes, Importer
from dlb_graph.reading.layers import unsupported
from dlb_graph.reading.samples_first import aligned, constant_value, samples_first
from dlb_graph.reading.views import ValueView, positions, rows_by_sample, view_of
from dlb_graph.truth.block_search import run_nodes
from dlb_graph.truth.lookups import lookup_of, ranking_of

__all__ = ["gathered", "look_up", "rank", "scatter", "select_places"]


def select_places(importer: Importer, node: onnx.NodeProto, attributes: Attributes) -> ValueView:
    """The node is run on the places of numbers: so it says which are selected."""
    trace, source = importer.trace, node.input[0]
    if source not in trace.live or not trace.live.isdisjoint(node.input[1:]):
        raise unsupported(node, "its indices depend on the input")
    inputs = {name: trace.values[name] for name in node.input[1:] if name}
    inputs[source] = positions(importer.value_shape(source))
    selected = run_nodes(trace, [node], inputs, node.output[0]).astype(np.int64)
    if not selected.size:
        raise unsupported(node, "selects nothing")
    view = importer.view(source)
    batch, *sizes = importer.shape(view)
    found = importer.index_map(source).ravel()[selected]
    owners, places = np.divmod(found, math.prod(sizes))
    return gathered(importer, node, _flat(importer, view.layer), batch, owners, places)


def scatter(importer: Importer, node: onnx.NodeProto, attributes: Attributes) -> ValueView:
    """Numbers of one value, and in their place some of another: numbers of both, joined, by constant indices.

    One of the two may be one constant number.
    """
    trace, (data, _, updates) = importer.trace, node.input[:3]
    if attributes.get("reduction", "none") != "none" or node.input[1] in trace.live:
        raise unsupported(node, "adds numbers up, or its indices depend on the input")
    counts = [trace.values[name].size for name in (data, updates)]
    inputs = {node.input[1]: trace.values[node.input[1]]}
    inputs[data] = positions(importer.value_shape(data))
    inputs[updates] = counts[0] + positions(importer.value_shape(updates))
    came = run_nodes(trace, [node], inputs, node.output[0]).astype(np.int64)
    live = [name for name in (data, updates) if name in trace.live]
    views = [importer.view(name) for name in live]
    batch = importer.shape(views[0])[0]
    layers, owners, places, size = list[str](), list[Array](), list[Array](), 0
    for name in (data, updates):
        if name in live:
            view = importer.view(name)
            width = math.prod(importer.shape(view)[1:])
            owner, place = np.divmod(importer.index_map(name).ravel(), width)
            layers.append(_flat(importer, view.layer))
            owners.append(owner)
            places.append(size + place)
            size += width
        else:
            owners.append(np.full(trace.values[name].size, -1))
            places.append(owners[-1])
    owner, place = (np.concatenate(each)[came] for each in (owners, places))
    if len(live) == 2:
        joined = importer.add(node, Concat(axis=1), layers, (batch, size))
        return gathered(importer, node, joined, batch, owner, place)
    (other,) = {data, updates} - set(live)
    numbers = np.unique(trace.values[other])
    if len(numbers) != 1 or not np.isfinite(numbers[0]) or len(came) != batch:
        raise unsupported(node, "joins a value with several constant numbers")
    # The constant number lies behind those of each sample.
    pad = Pad(pads=(0, 1), value=float(numbers[0]))
    joined = importer.add(node, pad, layers, (batch, size + 1))
    sample = np.arange(batch).reshape(-1, *[1] * (came.ndim - 1))
    owner, place = np.where(place < 0, sample, owner), np.where(place < 0, size, place)
    return gathered(importer, node, joined, batch, owner, place)


def _flat(importer: Importer, name: str) -> str:
    """A layer whose numbers lie along one axis."""
    batch, *sizes = importer.layers[name].shape
    if len(sizes) == 1:
        return name
    return importer.add_named(f"{name}_flat", Flatten(), (name,), {}, (batch, math.prod(sizes)))


def gathered(
    importer: Importer, node: onnx.NodeProto, name: str, batch: int, owners: Array, places: Array
) -> ValueView:
    """Numbers of a flat layer, or rows of one of two axes.

    Args:
        batch: samples of the layer.
        owners: int64 in the value's shape, of which sample each number is.
        places: the same, where in that sample.
    """
    order = rows_by_sample(owners.ravel(), batch)
    if order is None:
        raise unsupported(node, "selects samples of the batch")
    of_samples = places.ravel()[order].reshape(batch, -1)
    if (of_samples != of_samples[0]).any():
        raise unsupported(node, "selects other numbers of each sample")
    layer, features = (
        Gather(axis=1, indices=tuple(of_samples[0].tolist())),
        importer.layers[name].shape[2:],
    )
    shape = (*of_samples.shape, *features)
    name = importer.add(node, layer, [name], shape)
    index_map = positions(shape).reshape(-1, *features)[np.argsort(order)]
    return view_of(name, index_map.reshape(*places.shape, *features), shape)


def look_up(importer: Importer, node: onnx.NodeProto) -> ValueView | None:
    """A GatherElements, and what does the same; None if the indices are constants.

    Raises:
        UnsupportedNode: it is none, or selects along the batch.
    """
    trace, (data, indices) = importer.trace, node.input
    if indices not in trace.live:
        return None
    found = lookup_of(trace, node)
    if found is None:
        raise unsupported(node, "its indices depend on the input, and are not those of one axis")
    given = importer.reshaped(found.given, found.sizes)
    if data in trace.live:
        value, places = aligned(importer, node, [importer.reshaped(found.data, found.shape), given])
    else:
        places = samples_first(importer, node, given)
        value = constant_value(importer, node, trace.values[found.data], places)
    axis = places.axis(found.axis)
    if axis == 0:
        raise unsupported(node, "selects samples of the batch")
    shape = [*map(max, value.shape, places.shape)]
    shape[axis] = places.shape[axis]
    layer = GatherElements(axis=axis)
    name = importer.add(node, layer, [value.layer, places.layer], tuple(shape))
    index_map = importer.index_map_of(places.view(name, tuple(shape)))
    if index_map.size != trace.values[node.output[0]].size:
        raise unsupported(node, "has indices for a part of the value alone")
    return importer.value_of(node, name, index_map)


def rank(importer: Importer, node: onnx.NodeProto, attributes: Attributes) -> ValueView:
    """TopK, ArgMax and ArgMin along an axis of a sample: indices, and with TopK the numbers at them."""
    found = ranking_of(importer.trace, node)
    if found is None:
        raise unsupported(
            node,
            "how many numbers it chooses depends on the input, or it chooses the last of equal ones",
        )
    value = samples_first(importer, node, node.input[0])
    if value.shape[0] == 1 and value.axis(found.axis) == 0:  # a batch of one: the whole value
        value = samples_first(importer, node, node.input[0], alone=True)
    axis = value.axis(found.axis)
    if axis == 0:
        raise unsupported(node, "compares samples of the batch")
    shape = (*value.shape[:axis], found.k, *value.shape[axis + 1 :])
    layer = msgspec.structs.replace(found, axis=axis)
    name = importer.add(node, layer, [value.layer], shape)
    indices = value.view(name, shape)
    if node.op_type == "TopK":
        importer.also(node.output[1], indices)
        numbers = importer.add(node, GatherElements(axis=axis), [value.layer, name], shape)
        return value.view(numbers, shape)
    return importer.value_of(node, name, importer.index_map_of(indices))
