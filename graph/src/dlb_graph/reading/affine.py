"""Arithmetic with constants: biases written as additions, and scales and shifts of channels."""

from __future__ import annotations

import msgspec
import numpy as np
import onnx

from dlb_graph.layers import (
    ATTENTION_MAPS,
    Attention,
    AveragePool,
    BatchNorm,
    Conv,
    ConvTranspose,
    Elementwise,
    GroupNorm,
    Linear,
)
from dlb_graph.layers.numbers import Array
from dlb_graph.layers.windows import window_sizes
from dlb_graph.reading.importer import Attributes, Importer
from dlb_graph.reading.layers import PendingConcat, unsupported
from dlb_graph.reading.primitives import by_a_number, by_numbers, times_a_number
from dlb_graph.reading.samples_first import enlarged
from dlb_graph.reading.transformers import position_embedding
from dlb_graph.reading.views import ValueView, per_channel, view_of
from dlb_graph.truth.layout import before_expand, before_layout
from dlb_graph.truth.masks import UNBOUNDED
from dlb_graph.truth.merged_windows import rescaled_pool

__all__ = ["constant_arithmetic"]


_RECIPROCAL = Elementwise(function="reciprocal")


def constant_arithmetic(
    importer: Importer, node: onnx.NodeProto, attributes: Attributes
) -> ValueView:
    """x * c, x / c, x + c, x - c and c - x.

    A bias becomes that of the convolution or linear layer before it. A scale or shift of a batch
    normalisation, a linear layer or an attention is fused into that layer, if nothing else reads
    its value. Any other map gets a depthwise convolution with a kernel of 1, which has the same
    values and gradients. One number for all is an elementwise function, and numbers that differ within a
    channel get a scale or a shift.

    Raises:
        UnsupportedNode: no layer computes it.
    """
    index = 0 if node.input[0] in importer.trace.live else 1
    name, constant = node.input[index], importer.trace.constant(node, 1 - index)
    value = importer.trace.values[name]
    assert constant is not None
    single = importer.trace.values[before_expand(importer.trace, node.input[1 - index])]
    if single.size == 1:  # which the graph repeats
        constant = single.reshape((1,) * constant.ndim)
    output = importer.value_shape(node.output[0])
    if node.op_type == "Div" and index == 1:
        one = constant.size == 1 and constant.item() == 1
        if output != value.shape and not one:
            raise unsupported(node, "divides a constant by a value of fewer numbers")
        view = importer.apply(node, _RECIPROCAL, importer.elementwise(name))
        if one:
            return view
        if constant.size == 1:
            return times_a_number(importer, node, view, node.input[0])
        numbers = np.broadcast_to(constant, value.shape)
        return by_numbers(importer, node, view, numbers, np.zeros_like(numbers))
    if output != value.shape or not (np.abs(constant) < UNBOUNDED).all():
        by = _scale_and_shift(node, np.broadcast_to(constant, output), index)
        return by_numbers(importer, node, enlarged(importer, node, name), *by)
    view = importer.elementwise(name)
    shape = importer.shape(view)
    index_map = importer.index_map_of(view)
    numbers = np.broadcast_to(constant, value.shape)
    channels = per_channel(numbers, index_map, shape)
    # The position table that completes a pending concatenation may be zeros.
    if channels is None or isinstance(importer.layers[view.layer].layer, PendingConcat):
        position_table = position_embedding(importer, node, name, constant)
        if position_table is not None:
            return position_table
    if channels is None and constant.size == 1:
        return by_a_number(importer, node, name, node.input[1 - index])
    if channels is None:
        pooling = _rescaled_pool(importer, node, name, constant)
        if pooling is not None:
            return pooling
        return by_numbers(importer, node, view, *_scale_and_shift(node, numbers, index))
    scale, shift = _scale_and_shift(node, channels, index)
    # Zeros for every channel are an untrained bias.
    bias = node.op_type in ("Add", "Sum") and constant.size == len(channels)
    changes_nothing = bool((scale == 1).all() and not shift.any())
    if changes_nothing and not (bias and isinstance(importer.layers[view.layer].layer, _BIASED)):
        return view
    if constant.size == 1 and not changes_nothing and importer.is_rounded(node.output[0]):
        return by_a_number(importer, node, name, node.input[1 - index])
    if importer.has_one_reader(name) and _fuse_affine(importer, view.layer, scale, shift, bias):
        return view
    if changes_nothing:
        return view
    if constant.size == 1:
        return by_a_number(importer, node, name, node.input[1 - index])
    # Added to a sequence, or to features that become one, it is a position table.
    position_table = position_embedding(importer, node, name, constant) if len(shape) < 4 else None
    if position_table is not None:
        return position_table
    if len(shape) != 4:
        return by_numbers(importer, node, view, *_scale_and_shift(node, numbers, index))
    return view_of(_depthwise(importer, node, view.layer, scale, shift), index_map, shape)


def _scale_and_shift(node: onnx.NodeProto, numbers: Array, index: int) -> tuple[Array, Array]:
    """What arithmetic with numbers multiplies by and adds; ``index`` is the input that is the value."""
    ones, zeros = np.ones_like(numbers), np.zeros_like(numbers)
    if node.op_type in ("Mul", "Div"):
        return (numbers if node.op_type == "Mul" else 1 / numbers), zeros
    if node.op_type == "Sub":
        return (-ones, numbers) if index else (ones, -numbers)
    return ones, numbers


def _rescaled_pool(
    importer: Importer, node: onnx.NodeProto, name: str, constant: Array
) -> ValueView | None:
    """An average pooling whose windows are scaled by the share of each that counts, or None.

    Frameworks write it so if they cannot exclude one-sided padding, or the rest that rounding up
    adds, from a mean.
    """
    view, rescaled = importer.view(name), None
    if node.op_type in ("Mul", "Div"):
        scale = constant if node.op_type == "Mul" else 1 / constant
        windows, scale = before_layout(importer.trace, name, scale)
        pooling = importer.trace.producers.get(windows)
        canonical_order = importer.view(windows).index_map is None
        if pooling is not None and pooling.op_type == "AveragePool" and canonical_order:
            rescaled = rescaled_pool(importer.trace, pooling, scale)
    shape = importer.shape(view)
    if rescaled is None or (rescaled.channels is not None and len(shape) != 4):
        return None
    pool_attributes = rescaled.attributes
    kernel, pads = pool_attributes["kernel"], pool_attributes["pads"]
    uncounted = pool_attributes.get("not counted", (0,) * len(kernel))
    after = (pad - rest for pad, rest in zip(pads[len(kernel) :], uncounted))
    layer = AveragePool(
        kernel=kernel,
        stride=pool_attributes["stride"],
        pads=(*pads[: len(kernel)], *after),
        ceil_mode=any(uncounted),
        count_include_pad=pool_attributes["count_include_pad"],
    )
    (source,) = importer.layers[view.layer].inputs
    size = importer.layers[source].shape[2:]
    sizes = window_sizes(size, layer.kernel, layer.stride, layer.pads, ceil=layer.ceil_mode)
    if sizes != shape[2:]:
        raise unsupported(node, "averages windows that no pooling layer has")
    exact = importer.recognised.nominal_values
    importer.nominal_values.update((name, exact[name]) for name in node.input if name in exact)
    pooled = importer.add(node, layer, [source], shape)
    if rescaled.channels is not None:
        pooled = _depthwise(importer, node, pooled, rescaled.channels, np.zeros(shape[1]))
    return view_of(pooled, importer.index_map_of(view), shape)


def _depthwise(
    importer: Importer, node: onnx.NodeProto, source: str, scale: Array, shift: Array
) -> str:
    """A convolution that scales and moves each channel of a map [N, C, H, W]."""
    weights = {"weight": scale.reshape(-1, 1, 1, 1), "bias": shift}
    bias, channels = bool(shift.any()), len(scale)
    if not bias:
        del weights["bias"]
    layer = Conv(out_channels=channels, kernel=(1, 1), groups=channels, bias=bias)
    return importer.add(node, layer, [source], importer.layers[source].shape, weights)


#: Layers that may have a bias.
_BIASED = (Attention, Conv, ConvTranspose, Linear)


def _fuse_affine(importer: Importer, name: str, scale: Array, shift: Array, is_bias: bool) -> bool:
    """Fuse a scale and a shift into the layer before them, if possible.

    Args:
        scale, shift: float64 [C].
        is_bias: the shift is a bias, even if it is zero.

    Returns:
        whether they were fused.
    """
    imported_layer = importer.layers[name]
    layer, weights = imported_layer.layer, dict(imported_layer.weights)
    only_shifts = bool((scale == 1).all())
    depthwise = (
        isinstance(layer, Conv) and layer.groups == layer.out_channels == imported_layer.shape[1]
    )
    if isinstance(layer, Attention):
        weights["output_weight"] = weights["output_weight"] * scale[:, None]
        if layer.bias or is_bias or shift.any():
            no_bias = np.zeros_like(shift)
            biases = {
                f"{role}_bias": weights.get(f"{role}_bias", no_bias) for role in ATTENTION_MAPS
            }
            biases["output_bias"] = biases["output_bias"] * scale + shift
            layer, weights = msgspec.structs.replace(layer, bias=True), {**weights, **biases}
        importer.change(name, layer=layer, weights=weights)
        return True
    if isinstance(layer, (BatchNorm, GroupNorm)):
        weights["scale"] = weights["scale"] * scale
    elif isinstance(layer, Linear) or (depthwise and layer.kernel == (1, 1)):  # type: ignore[union-attr]
        weights["weight"] = weights["weight"] * scale.reshape(
            -1, *(1,) * (weights["weight"].ndim - 1)
        )
    elif not (isinstance(layer, (Conv, ConvTranspose)) and only_shifts):
        return False
    bias = weights.get("bias", np.zeros_like(shift)) * scale + shift
    if isinstance(layer, (Conv, ConvTranspose, Linear)):
        if not (layer.bias or is_bias or bias.any()):
            importer.change(name, weights=weights)
            return True
        layer = msgspec.structs.replace(layer, bias=True)
    importer.change(name, layer=layer, weights={**weights, "bias": bias})
    return True
