"""Concatenations, sums and products of values, and layers that end in them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from dlb_graph import layers as L
from dlb_graph.reading.affine import constant_arithmetic
from dlb_graph.reading.importer import Attributes, Importer
from dlb_graph.reading.layers import unsupported
from dlb_graph.reading.primitives import BINARY, broadcast
from dlb_graph.reading.samples_first import aligned, joined
from dlb_graph.reading.transformers import concat_constants
from dlb_graph.reading.views import ValueView, axes_of, positions, view_of
from dlb_graph.truth.layout import before_expand

__all__ = ["arithmetic", "concat", "elementwise"]


def concat(importer: Importer, node: onnx.NodeProto, attributes: Attributes) -> ValueView:
    if not importer.trace.live.issuperset(node.input):
        return concat_constants(importer, node, attributes)
    views = [importer.elementwise(name) for name in node.input]
    if len(views) == 1:
        return views[0]
    shapes = [importer.shape(view) for view in views]
    orders = {
        tuple(range(len(shape))) if view.index_map is None else axes_of(view.index_map, shape) or ()
        for view, shape in zip(views, shapes)
    }
    order = orders.pop()
    value = importer.trace.values[node.output[0]]
    if orders or len(order) != value.ndim:
        views = [importer.materialise_layout(name) for name in node.input]
        shapes = [importer.shape(view) for view in views]
        orders = {() for view in views if view.index_map is not None}
        order = tuple(range(value.ndim))
    if orders or len(order) != value.ndim:
        values = aligned(importer, node, node.input)
        return joined(importer, node, values, values[0].axis(attributes["axis"] % value.ndim))
    axis = order[attributes["axis"] % value.ndim]
    if not axis:
        raise unsupported(node, "joins samples")
    size = sum(shape[axis] for shape in shapes)
    shape = (*shapes[0][:axis], size, *shapes[0][axis + 1 :])
    layer_name = importer.add(node, L.Concat(axis=axis), [view.layer for view in views], shape)
    return view_of(layer_name, positions(shape).transpose(order), shape)


def arithmetic(importer: Importer, node: onnx.NodeProto, attributes: Attributes) -> ValueView:
    """Sums and products of values; :mod:`dlb_graph.reading.affine` has those with constants."""
    live = [name for name in node.input if name in importer.trace.live]
    if node.op_type in ("Sum", "Max", "Min") and len(node.input) == 1:
        return importer.view(node.input[0])
    if len(live) == 1 and len(node.input) == 2:
        return constant_arithmetic(importer, node, attributes)
    if len(live) != len(node.input):
        raise unsupported(node, "combines several values with a constant")
    live = [before_expand(importer.trace, name) for name in live]
    if len({importer.value_shape(name) for name in live}) > 1:
        gated = _gated(importer, node, live) if node.op_type == "Mul" else None
        return broadcast(importer, node, live) if gated is None else gated
    views = [importer.elementwise(name) for name in live]
    shapes = {importer.shape(view) for view in views}
    first = views[0]
    same_layout = all(
        view.index_map is first.index_map
        or np.array_equal(importer.index_map_of(view), importer.index_map_of(first))
        for view in views
    )
    if len(shapes) != 1 or not same_layout:
        views = [importer.materialise_layout(name) for name in live]
        shapes, first = {importer.shape(view) for view in views}, views[0]
        same_layout = all(view.index_map is None for view in views)
    layers: dict[str, L.Layer] = {"Mul": L.Mul(), "Add": L.Add(), "Sum": L.Add()}
    layer = layers.get(node.op_type) or L.Binary(function=BINARY[node.op_type])
    if len(shapes) != 1 or not same_layout:
        return _of_samples_first(importer, node, layer, live)
    total = first.layer
    for view in views[1:]:
        total = importer.add(node, layer, [total, view.layer], importer.shape(first))
    return ValueView(total, first.index_map)


def _of_samples_first(
    importer: Importer, node: onnx.NodeProto, layer: L.Layer, names: Sequence[str]
) -> ValueView:
    """The same of values whose samples are not their first axis."""
    first, *others = aligned(importer, node, names)
    total = first.layer
    for value in others:
        if value.shape != first.shape:
            raise unsupported(node, "combines values whose layouts differ")
        total = importer.add(node, layer, [total, value.layer], first.shape)
    return first.view(total, first.shape)


def _gated(importer: Importer, node: onnx.NodeProto, read: Sequence[str]) -> ValueView | None:
    """The product of a map and one number for each of its channels; None for any other."""
    output = importer.trace.values[node.output[0]]
    small, large = sorted(read, key=lambda name: importer.trace.values[name].size)
    if importer.value_shape(large) != output.shape:
        return None
    view = importer.view(large)
    shape, index_map = importer.shape(view), importer.index_map_of(view)
    gate, gate_shape = importer.view(small), importer.shape(importer.view(small))
    channels, ones = (shape[:2], (1,) * (len(shape) - 2)) if len(shape) in (4, 5) else ((), ())
    # For each number of the map, the position of the gate's number that multiplies it.
    factor_of_value = np.broadcast_to(importer.index_map(small), output.shape)
    gate_positions = positions((*channels, *ones)) if channels else None
    if gate_positions is None or not np.array_equal(
        np.broadcast_to(gate_positions, shape).ravel()[index_map], factor_of_value
    ):
        return None
    layer = gate.layer
    if gate_shape != (*channels, *ones):
        layer = importer.add_named(
            f"{layer}_map", L.Reshape(shape=(shape[1], *ones)), (layer,), {}, gate_positions.shape
        )
    layer_name = importer.add(node, L.Mul(), [view.layer, layer], shape)
    return view_of(layer_name, index_map, shape)


def elementwise(importer: Importer, node: onnx.NodeProto, layer: L.Layer, name: str) -> ValueView:
    """Add an elementwise layer; the value keeps its layout."""
    return importer.apply(node, layer, importer.elementwise(name))
