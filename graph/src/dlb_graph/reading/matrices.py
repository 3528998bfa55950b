"""Reads products of a value and a constant that are more than one matrix."""

from __future__ import annotations

import math

import numpy as np
import onnx

from dlb_graph.layers import Conv, Linear
from dlb_graph.layers.numbers import Array
from dlb_graph.reading.importer import Importer
from dlb_graph.reading.layers import unsupported
from dlb_graph.reading.views import ValueView, positions, view_of

__all__ = ["matrices_times", "matrix_times", "times_matrices"]


def matrix_times(importer: Importer, node: onnx.NodeProto, matrix: Array) -> ValueView:
    """A constant matrix times a value [N, ..., k, columns]: a linear layer over the axis before the last."""
    name = node.input[1]
    *outer, features, columns = importer.value_shape(name)
    turned = (*range(len(outer)), len(outer) + 1, len(outer))
    view = importer.materialise_layout(name, turned, rows=True)
    rows = math.prod([*outer[1:], columns])
    if view.index_map is not None or importer.shape(view) != (outer[0], rows, features):
        raise unsupported(
            node, "multiplies a constant by a value in an order that no layer produces"
        )
    shape = (outer[0], rows, len(matrix))
    layer = Linear(out_features=len(matrix), bias=False)
    layer_name = importer.add(node, layer, [view.layer], shape, {"weight": matrix})
    return view_of(layer_name, positions((*outer, columns, len(matrix))).transpose(turned), shape)


def times_matrices(importer: Importer, node: onnx.NodeProto, matrices: Array) -> ValueView:
    """A value [N, ..., rows, k] times a constant [..., k, columns]: see :func:`_product`."""
    name = node.input[0]
    return _product(importer, node, name, importer.index_map(name), matrices)


def matrices_times(importer: Importer, node: onnx.NodeProto, matrices: Array) -> ValueView:
    """A constant [..., rows, k] times a value [N, ..., k, columns]: the same of both turned."""
    name = node.input[1]
    index_map = importer.index_map(name)
    index_map = index_map.swapaxes(-1, -2) if index_map.ndim > 1 else index_map
    view = _product(importer, node, name, index_map, matrices.swapaxes(-1, -2))
    turned = importer.index_map_of(view).swapaxes(-1, -2)
    return view_of(view.layer, turned, importer.shape(view))


def _product(
    importer: Importer, node: onnx.NodeProto, name: str, index_map: Array, matrices: Array
) -> ValueView:
    """Several matrices, each of some rows of a value: a convolution of groups, with one for each matrix."""
    batch, *sample = importer.shape(importer.view(name))
    refused = unsupported(node, "only a value times constant matrices of its rows is supported")
    if index_map.ndim < 2:
        raise refused
    *outer, rows, features = index_map.shape
    *own, _, columns = matrices.shape
    # A row may be multiplied by one.
    fitting = zip(reversed(own), reversed(outer))
    if len(own) > len(outer) or any(count not in (1, size) for count, size in fitting):
        raise refused
    groups = math.prod(own)
    # Which matrix each row is multiplied by, and of which sample it is.
    matrix = np.broadcast_to(np.arange(groups).reshape(*own, 1), (*outer, rows)).ravel()
    owner = index_map[..., 0].ravel() // math.prod(sample)
    order = np.lexsort((matrix, owner))
    places = len(order) // (batch * groups)
    each = np.repeat(np.arange(batch * groups), places)
    if not np.array_equal((owner * groups + matrix)[order], each):
        raise refused
    arranged = index_map.reshape(-1, features)[order].reshape(batch, groups, places, features)
    # [N, groups * features, places, 1]
    arranged = arranged.transpose(0, 1, 3, 2).reshape(batch, -1, places, 1)
    view = importer.materialise(name, arranged)
    if view.index_map is not None or importer.shape(view) != arranged.shape:
        raise unsupported(
            node, "multiplies constants by a value in an order that no layer produces"
        )
    weight = matrices.reshape(groups, features, columns).transpose(0, 2, 1)
    layer = Conv(out_channels=groups * columns, kernel=(1, 1), groups=groups, bias=False)
    shape = (batch, groups * columns, places, 1)
    weights = {"weight": np.ascontiguousarray(weight).reshape(-1, features, 1, 1)}
    layer_name = importer.add(node, layer, [view.layer], shape, weights)
    found = positions((batch, groups, columns, places)).transpose(0, 1, 3, 2).reshape(-1, columns)
    back = np.empty_like(found)
    back[order] = found
    return view_of(layer_name, back.reshape(*outer, rows, columns), shape)
