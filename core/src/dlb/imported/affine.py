"""Arithmetic with constants: biases written as additions, and what scales or shifts channels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import onnx

from dlb.graph.operations import before_layout, reader_of
from dlb.graph.window_rules import rescaled_pool
from dlb.imported.transformers import position_embedding
from dlb.imported.values import Held, arranged, per_channel
from dlb.imported.walk import Joined, NotCovered, Walk, called
from dlb.workload.layers import (
    ATTENTION_MAPS,
    Attention,
    AveragePool,
    BatchNorm,
    Conv,
    Linear,
)
from dlb.workload.shapes import window_sizes

__all__ = ["with_constant"]

Array = npt.NDArray[Any]


def with_constant(walk: Walk, node: onnx.NodeProto, given: Mapping[str, Any]) -> Held:
    """x * c, x / c, x + c, x - c and c - x, where c is one number for each channel.

    A bias becomes that of the convolution or linear layer before it; what scales or shifts a batch
    normalisation or a linear layer that nothing else reads is taken into it. Of any other map it is
    a convolution of each channel by itself, with a kernel of 1, which is the same and is trained
    as the same.

    Raises:
        NotCovered: no layer does that.
    """
    index = 0 if node.input[0] in walk.trace.live else 1
    name, constant = node.input[index], walk.trace.constant(node, 1 - index)
    value = walk.trace.values[name]
    assert constant is not None
    if node.op_type == "Div" and index == 1:
        raise NotCovered(f"{called(node)}: divides a constant by a value")
    if walk.trace.values[node.output[0]].shape != value.shape:
        raise NotCovered(f"{called(node)}: a constant that makes the value larger")
    held = walk.elementwise(name)
    shape = walk.shape(held)
    places = walk.places(name) if held.places is None else held.places
    channels = per_channel(np.broadcast_to(constant, value.shape), places, shape)
    # The table that a sequence with constant steps waits for may be zeros.
    if channels is None or isinstance(walk.made[held.layer].layer, Joined):
        added = position_embedding(walk, node, name, constant)
        if added is not None:
            return added
    if channels is None:
        return _rescaled(walk, node, name, constant)
    ones, zeros = np.ones_like(channels), np.zeros_like(channels)
    scale, shift = {
        "Mul": (channels, zeros),
        "Div": (1 / channels, zeros),
        "Add": (ones, channels),
        "Sum": (ones, channels),
        "Sub": (-ones, channels) if index else (ones, -channels),
    }[node.op_type]
    # Zeros for every channel are a bias that was not trained yet.
    bias = node.op_type in ("Add", "Sum") and constant.size == len(channels)
    nothing = bool((scale == 1).all() and not shift.any())
    if nothing and not (bias and isinstance(walk.made[held.layer].layer, _BIASED)):
        return held
    if walk.alone(name) and _taken_in(walk, held.layer, scale, shift, bias):
        return held
    if nothing:
        return held
    # Of a sequence, or of features that were made one, what is added is a table, if of one row.
    table = position_embedding(walk, node, name, constant) if len(shape) < 4 else None
    if table is not None:
        return table
    if len(shape) != 4:
        raise NotCovered(
            f"{called(node)}: scales or shifts features, which only a linear layer or a batch "
            "normalisation that nothing else reads could take in"
        )
    weights = {"weight": scale.reshape(-1, 1, 1, 1), "bias": shift}
    bias = bool(shift.any())
    if not bias:
        del weights["bias"]
    count = len(scale)
    layer = Conv(out_channels=count, kernel=(1, 1), groups=count, bias=bias)
    made = walk.add(node, layer, [held.layer], shape, weights)
    return arranged(made, places, shape)


def _rescaled(walk: Walk, node: onnx.NodeProto, name: str, constant: Array) -> Held:
    """An average pooling whose windows are scaled by how much of each counts.

    So write it frameworks that cannot leave pads on one side, or what rounding up adds, out of a
    mean.
    """
    held, found = walk.of(name), None
    if node.op_type in ("Mul", "Div"):
        scale = constant if node.op_type == "Mul" else 1 / constant
        windows, scale = before_layout(walk.trace, name, scale)
        pooling = walk.trace.producers.get(windows)
        own = walk.of(windows).places is None
        if pooling is not None and pooling.op_type == "AveragePool" and own:
            reader = reader_of(walk.trace)
            found = rescaled_pool(reader, pooling, scale)
    if found is None or found.channels is not None:
        raise NotCovered(f"{called(node)}: a constant that differs within a channel")
    meaning = found.meaning
    top, left, bottom, right = meaning["pads"]
    below, beside = meaning.get("not counted", (0, 0))
    layer = AveragePool(
        kernel=meaning["kernel"],
        stride=meaning["stride"],
        pads=(top, left, bottom - below, right - beside),
        ceil_mode=bool(below or beside),
        count_include_pad=meaning["count_include_pad"],
    )
    shape = walk.shape(held)
    (source,) = walk.made[held.layer].inputs
    size = walk.made[source].shape[2:]
    sizes = window_sizes(size, layer.kernel, layer.stride, layer.pads, ceil=layer.ceil_mode)
    if sizes != shape[2:]:
        raise NotCovered(f"{called(node)}: an average over windows that no pooling has")
    walk.meant.update((each, reader.meant[each]) for each in node.input if each in reader.meant)
    return arranged(walk.add(node, layer, [source], shape), walk.places_of(held), shape)


#: Layers that may have a bias.
_BIASED = (Attention, Conv, Linear)


def _taken_in(walk: Walk, name: str, scale: Array, shift: Array, biased: bool) -> bool:
    """Let the layer before do it, if it can; whether it did.

    Args:
        biased: whether the shift is a bias, even if it is zeros.
    """
    made = walk.made[name]
    layer, weights = made.layer, dict(made.weights)
    moves = bool((scale == 1).all())
    apart = isinstance(layer, Conv) and layer.groups == layer.out_channels == made.shape[1]
    if isinstance(layer, Attention):
        weights["output_weight"] = weights["output_weight"] * scale[:, None]
        if layer.bias or biased or shift.any():
            none = np.zeros_like(shift)
            biases = {f"{each}_bias": weights.get(f"{each}_bias", none) for each in ATTENTION_MAPS}
            biases["output_bias"] = biases["output_bias"] * scale + shift
            layer, weights = msgspec.structs.replace(layer, bias=True), {**weights, **biases}
        walk.change(name, layer=layer, weights=weights)
        return True
    if isinstance(layer, BatchNorm):
        weights["scale"] = weights["scale"] * scale
    elif isinstance(layer, Linear) or (apart and layer.kernel == (1, 1)):  # type: ignore[union-attr]
        weights["weight"] = weights["weight"] * scale.reshape(
            -1, *(1,) * (weights["weight"].ndim - 1)
        )
    elif not (isinstance(layer, Conv) and moves):
        return False
    bias = weights.get("bias", np.zeros_like(shift)) * scale + shift
    if isinstance(layer, (Conv, Linear)):
        if not (layer.bias or biased or bias.any()):
            walk.change(name, weights=weights)
            return True
        layer = msgspec.structs.replace(layer, bias=True)
    walk.change(name, layer=layer, weights={**weights, "bias": bias})
    return True
