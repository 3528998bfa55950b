"""Reads operators that select numbers of a value by constant indices, wherever they are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from dlb.graph.block_search import run_nodes
from dlb.imported.importer import Importer
from dlb.imported.layers import unsupported
from dlb.imported.views import ValueView, positions, rows_by_sample, view_of
from dlb.workload.layers import Flatten, Gather

__all__ = ["select_places"]


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
    owners, places = np.divmod(found.ravel(), math.prod(sizes))
    order = rows_by_sample(owners, batch)
    if order is None:
        raise unsupported(node, "selects samples of the batch")
    of_samples = places[order].reshape(batch, -1)
    if (of_samples != of_samples[0]).any():
        raise unsupported(node, "selects other numbers of each sample")
    name = view.layer
    if len(sizes) > 1:
        name = importer.add_named(f"{name}_flat", Flatten(), (name,), {}, (batch, math.prod(sizes)))
    layer = Gather(axis=1, indices=tuple(of_samples[0].tolist()))
    name = importer.add(node, layer, [name], of_samples.shape)
    return view_of(name, np.argsort(order).reshape(found.shape), of_samples.shape)
