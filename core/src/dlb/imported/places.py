"""Reads operators that select or replace numbers of a value by constant indices, wherever they are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from dlb.graph.block_search import run_nodes
from dlb.imported.importer import Importer
from dlb.imported.layers import unsupported
from dlb.imported.views import ValueView, positions, rows_by_sample, view_of
from dlb.workload.layers import Concat, Flatten, Gather, Pad

__all__ = ["scatter", "select_places"]

Array = npt.NDArray[Any]


def select_places(
    importer: Importer, node: onnx.NodeProto, attributes: Mapping[str, Any]
) -> ValueView:
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
    return _gathered(importer, node, _flat(importer, view.layer), batch, owners, places)


def scatter(importer: Importer, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> ValueView:
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
        return _gathered(importer, node, joined, batch, owner, place)
    (other,) = {data, updates} - set(live)
    numbers = np.unique(trace.values[other])
    if len(numbers) != 1 or not np.isfinite(numbers[0]) or len(came) != batch:
        raise unsupported(node, "joins a value with several constant numbers")
    # The constant number lies behind those of each sample.
    pad = Pad(pads=(0, 1), value=float(numbers[0]))
    joined = importer.add(node, pad, layers, (batch, size + 1))
    sample = np.arange(batch).reshape(-1, *[1] * (came.ndim - 1))
    owner, place = np.where(place < 0, sample, owner), np.where(place < 0, size, place)
    return _gathered(importer, node, joined, batch, owner, place)


def _flat(importer: Importer, name: str) -> str:
    """A layer whose numbers lie along one axis."""
    batch, *sizes = importer.layers[name].shape
    if len(sizes) == 1:
        return name
    return importer.add_named(f"{name}_flat", Flatten(), (name,), {}, (batch, math.prod(sizes)))


def _gathered(
    importer: Importer, node: onnx.NodeProto, name: str, batch: int, owners: Array, places: Array
) -> ValueView:
    """Numbers of a flat layer.

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
    layer = Gather(axis=1, indices=tuple(of_samples[0].tolist()))
    name = importer.add(node, layer, [name], of_samples.shape)
    return view_of(name, np.argsort(order).reshape(places.shape), of_samples.shape)
