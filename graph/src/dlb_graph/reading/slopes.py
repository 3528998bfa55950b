"""PReLU: slopes of channels, or one of a whole value."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from dlb_graph.layers import PReLU
from dlb_graph.reading.importer import Attributes, Importer
from dlb_graph.reading.layers import unsupported
from dlb_graph.reading.maps import rows_as_map
from dlb_graph.reading.views import ValueView, per_channel

__all__ = ["prelu"]


def prelu(importer: Importer, node: onnx.NodeProto, attributes: Attributes) -> ValueView:
    """A PReLU with constant slopes, as an operator or decomposed, in whatever layout the value is."""
    block = importer.blocks.get(node.output[0])
    if block is None:
        name, slope = node.input[0], importer.weights(node)["slope"]
    else:
        (name,), slope = block.inputs, block.weights["slope"]
        importer.revert_fusion(name)
    view, value_shape = importer.elementwise(name), importer.value_shape(name)
    if importer.value_shape(node.output[0]) != value_shape:
        raise unsupported(node, "its slopes repeat the value")
    if slope.size == 1:
        return importer.apply(node, PReLU(shared=True), view, {"slope": slope.reshape(1)})
    if slope.ndim == 1 and slope.size == value_shape[1] != value_shape[-1]:
        # Before operator set 7, a slope for each channel was written without the axes after it.
        slope = slope.reshape(-1, *(1,) * (len(value_shape) - 2))
    slopes = np.broadcast_to(slope, value_shape)
    channels = _of_channels(importer, view, slopes)
    if channels is None:  # the axis of the slopes is not the layer's channels: transpose it first
        view = (
            rows_as_map(importer, node, name)
            if len(value_shape) == 3
            else importer.materialise_layout(name)
        )
        channels = _of_channels(importer, view, slopes)
    if channels is None:
        raise unsupported(node, "its slopes differ within a channel")
    return importer.apply(node, PReLU(), view, {"slope": channels})


def _of_channels(
    importer: Importer, view: ValueView, slopes: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any] | None:
    """The slope of each channel of a view's layer; None if they differ within one."""
    shape = importer.shape(view)
    if len(shape) not in (2, 4, 5):
        return None
    return per_channel(slopes, importer.index_map_of(view), shape)
