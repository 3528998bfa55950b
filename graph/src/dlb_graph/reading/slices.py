"""Reads Pad, Slice, Split and Gather: constants around a value, and selected indices of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx
from onnx import helper

from dlb_graph import layers as L
from dlb_graph.layers import MOST_AXES
from dlb_graph.layers.decimals import decimal
from dlb_graph.layers.numbers import Array
from dlb_graph.reading.importer import Attributes, Importer
from dlb_graph.reading.layers import ImportedLayer, unsupported
from dlb_graph.reading.samples_first import samples_first
from dlb_graph.reading.transposed import crop
from dlb_graph.reading.views import Shape, ValueView, axes_of, positions, rows_by_sample, view_of
from dlb_graph.truth.layout import RESIZING, padding_of, selected_indices
from dlb_graph.truth.linear_parts import selected_features
from dlb_graph.truth.trace import Trace
from dlb_graph.workload.model import Input, Model, Node
from dlb_graph.workload.shapes import infer_shapes

__all__ = ["axes_of_value", "pad", "producing_layer", "select_part", "split_into_slices"]


def pad(importer: Importer, node: onnx.NodeProto, attributes: Attributes) -> ValueView:
    """A Pad. A convolution or a pooling merges one with a constant where it reads the value."""
    if selected_indices(importer.trace, node) is not None:
        return select_part(importer, node, attributes)
    padding = padding_of(importer.trace, node)
    if padding is None or not math.isfinite(padding[1]):
        raise unsupported(
            node, "only padding with a finite constant or with numbers of the value is supported"
        )
    pads, number = padding
    rank = len(pads) // 2
    found = axes_of_value(importer, node)
    if found is None:
        value = samples_first(importer, node, node.input[0])
        shape, source = value.shape, value.layer
        order = tuple(value.axis(axis) for axis in range(rank))
    else:
        value = None
        view, order, shape = found
        source = view.layer
    sides = [{order[k]: pads[k + side] for k in range(rank)} for side in (0, rank)]
    before, after = ([side.get(axis, 0) for axis in range(len(shape))] for side in sides)
    if before[0] or after[0]:
        raise unsupported(node, "pads the batch")
    layer = L.Pad(pads=(*before[1:], *after[1:]), value=decimal(number))
    output_shape = tuple(b + size + a for b, size, a in zip(before, shape, after))
    name = importer.add(node, layer, [source], output_shape)
    if value is not None:
        return value.view(name, output_shape)
    return view_of(name, positions(output_shape).transpose(order), output_shape)


def select_part(importer: Importer, node: onnx.NodeProto, attributes: Attributes) -> ValueView:
    """Selected indices along the axes of a value."""
    indices_by_axis = selected_indices(importer.trace, node)
    if indices_by_axis is None and node.op_type in RESIZING:
        raise unsupported(
            node,
            "only the nearest element and interpolation without antialiasing or a crop are supported, "
            "for constant sizes",
        )
    if indices_by_axis is None:
        raise unsupported(node, "its indices depend on the input")
    cropped = crop(importer, node, indices_by_axis)
    if cropped is not None:
        return cropped
    input_shape = importer.value_shape(node.input[0])
    linear_features = _features_of_linear(importer, node, indices_by_axis)
    if linear_features is not None:
        view, features, index_map = linear_features
        name = _add_slices(importer, node, view.layer, {2: features})
        return importer.value_of(node, name, index_map)
    rows = _rows(importer, node.input[0])
    if rows is None:
        found = axes_of_value(importer, node)
        if found is None:
            return _of_samples_first(importer, node, indices_by_axis)
        view, order, shape = found
    else:
        view, order, shape = rows, (0, 2), importer.shape(rows)
        every_row = range(input_shape[0])
        if list(indices_by_axis.get(0, every_row)) != list(every_row):
            return _of_samples_first(importer, node, indices_by_axis)
    cuts = {
        order[axis]: indices
        for axis, indices in indices_by_axis.items()
        if list(indices) != list(range(input_shape[axis]))
    }
    name = _add_slices(importer, node, view.layer, cuts)
    output_shape = importer.layers[name].shape
    if rows is not None:
        return importer.value_of(node, name)
    selected = set(cuts) if len(output_shape) < len(shape) else set()
    kept_axes = [axis for axis in order if axis not in selected]
    index_map = positions(output_shape).transpose(
        [sorted(kept_axes).index(axis) for axis in kept_axes]
    )
    return importer.value_of(node, name, index_map)


def _of_samples_first(
    importer: Importer, node: onnx.NodeProto, indices_by_axis: Mapping[int, Sequence[int]]
) -> ValueView:
    """The same of a value whose samples are not its first axis."""
    by_position = _by_position(importer, node, indices_by_axis)
    if by_position is not None:
        return by_position
    value = samples_first(importer, node, node.input[0])
    shape = importer.value_shape(node.input[0])
    cuts = {
        value.axis(axis): indices
        for axis, indices in indices_by_axis.items()
        if list(indices) != list(range(shape[axis]))
    }
    name = _add_slices(importer, node, value.layer, cuts)
    kept = tuple(len(cuts.get(axis, range(size))) for axis, size in enumerate(value.shape))
    view = value.view(name, kept)  # a select leaves an axis out, whose size would be 1
    index_map = positions(kept) if view.index_map is None else view.index_map
    return importer.value_of(node, name, index_map)


def _by_position(
    importer: Importer, node: onnx.NodeProto, indices_by_axis: Mapping[int, Sequence[int]]
) -> ValueView | None:
    """The numbers that a node selects, if they are the same indices of every sample, such as its last step.

    They may be selected from rows in which samples follow each other.
    """
    view, index_map = importer.view(node.input[0]), importer.index_map(node.input[0])
    for axis, indices in indices_by_axis.items():
        index_map = index_map.take(list(indices), axis)
    index_map = index_map.reshape(importer.value_shape(node.output[0]))
    batch, *sizes = shape = importer.shape(view)
    owners, places = np.divmod(index_map.ravel(), math.prod(sizes))
    order = rows_by_sample(owners, batch) if owners.size else None
    if order is None:
        return None
    of_samples = places[order].reshape(batch, -1)
    selected = np.unique(of_samples[0])
    along = [np.unique(axis) for axis in np.unravel_index(selected, sizes)]
    if (of_samples != of_samples[0]).any() or math.prod(map(len, along)) != len(selected):
        return None
    cuts = {
        axis: _as_range(indices)
        for axis, indices in enumerate(along, start=1)
        if len(indices) < shape[axis]
    }
    if not cuts:
        return None
    name = _add_slices(importer, node, view.layer, cuts)
    found = np.searchsorted(selected, places) + owners * len(selected)
    return importer.value_of(node, name, found)


def _add_slices(
    importer: Importer, node: onnx.NodeProto, name: str, cuts: Mapping[int, Sequence[int]]
) -> str:
    """Add the layers that select indices along the axes of a layer's value; returns the last one's name."""
    if 0 in cuts:
        raise unsupported(node, "selects samples of the batch")
    for layer in _slicing_layers(cuts, importer.layers[name].shape):
        shape = _output_shape(layer, importer.layers[name].shape)
        name = importer.add(node, layer, [name], shape)
    return name


def _rows(importer: Importer, name: str) -> ValueView | None:
    """The view of sequences [N, T, features] whose rows [N * T, features] a value is, or None."""
    view = importer.elementwise(name)
    shape, index_map = importer.shape(view), importer.index_map_of(view)
    if len(shape) != 3 or index_map.shape != (shape[0] * shape[1], shape[2]):
        return None
    return view if np.array_equal(index_map, positions(shape).reshape(index_map.shape)) else None


def _features_of_linear(
    importer: Importer, node: onnx.NodeProto, indices_by_axis: Mapping[int, Sequence[int]]
) -> tuple[ValueView, Sequence[int], Array] | None:
    """Selected features of a linear layer's sequences, after layout operators such as splits of heads.

    Returns:
        the layer's view, the features, and an index map of the selected numbers into
        [N, T, selected features]; None if they are not whole features of every row.
    """
    view = importer.elementwise(node.input[0])
    shape, index_map = importer.shape(view), importer.index_map_of(view)
    linear = isinstance(importer.layers[view.layer].layer, L.Linear)
    if (
        not linear
        or len(shape) != 3
        or index_map.ndim == 2
        or axes_of(index_map, shape) is not None
    ):
        return None
    for axis, indices in indices_by_axis.items():
        index_map = index_map.take(list(indices), axis)
    selected = selected_features(index_map, math.prod(shape), shape[2])
    if selected is None or len(selected[0]) in (0, shape[2]):
        return None
    features, index_in_rows = selected
    return view, _as_range(features), index_in_rows


def _as_range(indices: Array) -> Sequence[int]:
    """Ascending indices, as a range if they have one step."""
    first, last = int(indices[0]), int(indices[-1])
    step = int(indices[1]) - first if len(indices) > 1 else 1
    full_range = range(first, last + 1, step)
    listed: list[int] = indices.tolist()
    return full_range if list(full_range) == listed else listed


def split_into_slices(traced: Trace) -> Trace:
    """The graph with each Split replaced by a Slice for each output: a layer has one value."""
    nodes = tuple(slice_node for node in traced.nodes for slice_node in _slices(traced, node))
    producers = {name: node for node in nodes for name in node.output if name}
    return replace(traced, nodes=nodes, producers=producers)


def _slices(traced: Trace, node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    if node.op_type != "Split" or not traced.live.isdisjoint(node.input[1:]):
        yield node
        return
    for number, name in enumerate(node.output):
        for axis, indices in (selected_indices(traced, node, number) or {}).items():
            assert isinstance(indices, range)
            slice_node = helper.make_node("Slice", node.input[:1], [name])
            slice_node.name = f"{node.name}_{number}" if node.name else name
            for key, value in (("axes", axis), ("starts", indices.start), ("ends", indices.stop)):
                slice_node.attribute.append(helper.make_attribute(key, [value]))
            yield slice_node


def producing_layer(importer: Importer, name: str) -> ImportedLayer:
    """The layer that a value belongs to.

    If the value has some features of a linear layer, the result is a linear layer of those features
    alone: one matrix may produce queries, keys and values.
    """
    layer = importer.before_fusion(name)
    if not isinstance(layer.layer, L.Slice | L.Gather):
        return layer
    linear = importer.layers[layer.inputs[0]]
    if not isinstance(linear.layer, L.Linear) or layer.shape[:-1] != linear.shape[:-1]:
        return layer
    if isinstance(layer.layer, L.Slice):
        features = list(layer.layer.places(linear.shape[1:])[-1])
    elif layer.layer.axis == len(linear.shape) - 1:
        features = list(layer.layer.indices)
    else:
        return layer
    weights = {role: array[features] for role, array in linear.weights.items()}
    return ImportedLayer(linear.layer, linear.inputs, weights, layer.shape)


def axes_of_value(
    importer: Importer, node: onnx.NodeProto
) -> tuple[ValueView, tuple[int, ...], Shape] | None:
    """The view that a node reads, the canonical axis of each of its axes, and the layer's shape.

    None if no layer has the value's numbers in an order of its axes.
    """
    view = importer.elementwise(node.input[0])
    shape, index_map = importer.shape(view), importer.index_map_of(view)
    axes = axes_of(index_map, shape)
    if axes is None:
        view = importer.materialise_layout(node.input[0])
        shape, index_map = importer.shape(view), importer.index_map_of(view)
        axes = axes_of(index_map, shape)
    if axes is None or len(shape) not in range(2, MOST_AXES + 2):
        return None
    return view, axes, shape


def _slicing_layers(cuts: Mapping[int, Sequence[int]], shape: Shape) -> list[L.Layer]:
    """A select for one index of a sequence, slices for ascending ranges, gathers for the rest."""
    if len(cuts) == 1 and len(shape) == 3:
        ((axis, indices),) = cuts.items()
        if len(indices) == 1:
            return [L.Select(axis=axis, index=indices[0])]
    ranges_by_axis = {
        axis: indices
        for axis, indices in cuts.items()
        if isinstance(indices, range) and indices.step > 0
    }
    layers: list[L.Layer] = []
    if ranges_by_axis:
        ranges = [ranges_by_axis.get(axis, range(size)) for axis, size in enumerate(shape)][1:]
        steps = tuple(indices.step for indices in ranges)
        layers.append(
            L.Slice(
                starts=tuple(indices.start for indices in ranges),
                ends=tuple(indices.stop for indices in ranges),
                steps=() if {indices.step for indices in ranges} == {1} else steps,
            )
        )
    gathered = [axis for axis in cuts if axis not in ranges_by_axis]
    return [*layers, *(L.Gather(axis=axis, indices=tuple(cuts[axis])) for axis in gathered)]


def _output_shape(layer: L.Layer, shape: Shape) -> Shape:
    """The shape of a layer's value for an input of a shape, both with the batch."""
    model = Model(input=Input(shape=shape[1:]), nodes=(Node(name="layer", layer=layer),))
    return (shape[0], *infer_shapes(model)["layer"])
