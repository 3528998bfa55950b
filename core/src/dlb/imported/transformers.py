"""The layers of transformers, whether a file has them as one operator or written out.

Those that are written out were recognised by the numbers that they give
(:mod:`dlb.graph.blocks`); here is what they mean as layers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from dlb.graph.blocks import Block
from dlb.graph.decimals import decimal
from dlb.imported.parts import made_by
from dlb.imported.values import Held, arranged, positions
from dlb.imported.walk import Joined, Mixed, NotCovered, Walk, called
from dlb.workload import layers as L

__all__ = [
    "attention",
    "gelu",
    "joined",
    "last_map",
    "layer_norm",
    "position_embedding",
    "reduce_mean",
]

Array = npt.NDArray[Any]
Given = Mapping[str, Any]


def gelu(walk: Walk, node: onnx.NodeProto, given: Given) -> Held:
    block = walk.blocks.get(node.output[0])
    if block is not None and block.weights:
        raise NotCovered(
            f"{called(node)}: a GELU that is multiplied by another number each channel"
        )
    start = node.input[0] if block is None else _start(walk, block)
    kind = given.get("approximate", "none") if block is None else block.attributes["approximate"]
    held = walk.elementwise(start)
    shape = walk.shape(held)
    made = walk.add(node, L.GELU(approximate=kind), [held.layer], shape)
    places = walk.places_of(held)
    places = places if block is None or block.places is None else places.ravel()[block.places]
    return arranged(made, places.reshape(walk.trace.values[node.output[0]].shape), shape)


def layer_norm(walk: Walk, node: onnx.NodeProto, given: Given) -> Held:
    """Over the last axis, of [N, features] or [N, T, features]."""
    block = walk.blocks.get(node.output[0])
    if block is None:
        start = node.input[0]
        scale, bias = walk.trace.constant(node, 1), walk.trace.constant(node, 2)
        rank = walk.trace.values[start].ndim
        if scale is None or (bias is None and len(node.input) > 2 and node.input[2]):
            raise NotCovered(f"{called(node)}: a scale or a bias that depends on the input")
        if given.get("axis", -1) % rank != rank - 1:
            raise NotCovered(f"{called(node)}: over more than the last axis")
        features = walk.trace.values[start].shape[-1]
        found = {"scale": scale, "bias": np.zeros(features) if bias is None else bias}
        found = {name: np.broadcast_to(each, (features,)) for name, each in found.items()}
        epsilon = decimal(given.get("epsilon", 1e-5))
    else:
        start, found = _start(walk, block), dict(block.weights)
        epsilon = block.attributes["epsilon"]
    source, rows, order = walk.features(node, start)
    shape = walk.made[source].shape
    weights = {}
    for name, each in found.items():
        weights[name] = np.empty(len(order))
        weights[name][order] = each
    made = walk.add(node, L.LayerNorm(epsilon=epsilon), [source], shape, weights)
    places = (rows[:, None] * len(order) + order).reshape(walk.trace.values[node.output[0]].shape)
    if block is None or block.table is None:
        return arranged(made, places, shape)
    whole = np.empty(math.prod(shape))
    whole[places.ravel()] = np.broadcast_to(block.table, places.shape).ravel()
    weights = {"weight": whole.reshape(shape)[0]}
    return arranged(walk.add(node, L.PositionEmbedding(), [made], shape, weights), places, shape)


def _start(walk: Walk, block: Block) -> str:
    """The value that a block reads, whose numbers its own have the order of; constants are as meant."""
    (start,) = block.starts
    walk.of(start)
    walk.meant.update(block.meant)
    return start


def attention(walk: Walk, node: onnx.NodeProto, given: Given) -> Held:
    """What the heads give: three linear maps of one value, and no last one yet."""
    block = walk.blocks.get(node.output[0])
    if block is None:
        raise NotCovered(f"{called(node)}: no layer of dlb is this operator")
    maps = [made_by(walk, name) for name in block.starts]
    sizes = {made.shape for made in maps}
    laid = all(
        np.array_equal(places, block.parts.get(name, positions(places.shape)))
        for name, places in ((name, walk.places(name)) for name in block.starts)
    )
    shape = maps[0].shape
    if any(not isinstance(made.layer, L.Linear) for made in maps) or len(shape) != 3 or not laid:
        raise NotCovered(f"{called(node)}: attention to what three linear maps do not give")
    (source, *others) = {made.inputs[0] for made in maps}
    if others or sizes != {walk.made[source].shape}:
        raise NotCovered(
            f"{called(node)}: attention whose queries, keys and values are not of one value, or "
            "of another size than it"
        )
    weights = {}
    biased = any("bias" in made.weights for made in maps)
    for name, made in zip(L.ATTENTION_MAPS, maps):
        weights[f"{name}_weight"] = made.weights["weight"]
        if biased:
            weights[f"{name}_bias"] = made.weights.get("bias", np.zeros(shape[2]))
    walk.meant.update(block.meant)
    layer = Mixed(block.attributes["heads"], block.attributes["causal"])
    return Held(
        walk.new(node.name or node.output[0], layer, (source,), weights, shape), block.places
    )


def last_map(
    walk: Walk, node: onnx.NodeProto, name: str, weight: Array, bias: Array | None
) -> None:
    """Make an attention whole by the linear map of what its heads give, ``weight`` [out, in]."""
    made = walk.made[name]
    assert isinstance(made.layer, Mixed)
    if weight.shape != (made.shape[2], made.shape[2]):
        raise NotCovered(f"{called(node)}: an attention that gives another size than it reads")
    weights = dict(made.weights)
    biased = bias is not None or "query_bias" in weights
    if biased:
        none = np.zeros(made.shape[2])
        for each in L.ATTENTION_MAPS[:3]:
            weights.setdefault(f"{each}_bias", none)
        weights["output_bias"] = none if bias is None else bias
    weights["output_weight"] = weight
    ordered = [f"{each}_{what}" for what in ("weight", "bias") for each in L.ATTENTION_MAPS]
    walk.change(
        name,
        layer=L.Attention(heads=made.layer.heads, causal=made.layer.causal, bias=biased),
        weights={each: weights[each] for each in ordered if each in weights},
    )


def position_embedding(walk: Walk, node: onnx.NodeProto, name: str, constant: Array) -> Held | None:
    """A table that is added to every sequence, or None if it is none; of two, their sum."""
    value = walk.trace.values[name]
    whole = np.broadcast_to(constant, value.shape)
    if node.op_type not in ("Add", "Sum") or value.ndim != 3 or not (whole == whole[:1]).all():
        return None
    held = walk.of(name) if len(walk.shape(walk.of(name))) == 3 else walk.laid_out(name)
    shape = walk.shape(held)
    places = walk.places_of(held)
    if len(shape) != 3 or places.shape != value.shape:
        return None
    flat = np.empty(value.size)
    flat[places.ravel()] = whole.ravel()
    table = flat.reshape(shape)
    if not (table == table[:1]).all():
        return None
    source, weight = walk.made[held.layer], table[0]
    if isinstance(source.layer, (Joined, L.PositionEmbedding)) and walk.alone(name):
        weight = weight + source.weights["weight"]
        made = walk.add(node, L.PositionEmbedding(), source.inputs, shape, {"weight": weight})
    else:
        made = walk.add(node, L.PositionEmbedding(), [held.layer], shape, {"weight": weight})
    return arranged(made, places, shape)


def joined(walk: Walk, node: onnx.NodeProto, given: Given) -> Held:
    """A sequence between constant steps, the same for every sample, as a class token is: zeros are
    put around it, and the constants are part of the table that was added to it or is added next."""
    value = walk.trace.values[node.output[0]]
    live = [name for name in node.input if name in walk.trace.live]
    if len(live) != 1 or value.ndim != 3 or given["axis"] % 3 != 1:
        raise NotCovered(
            f"{called(node)}: joins constants to a value; only steps of a sequence are covered"
        )
    held = walk.of(live[0]) if walk.of(live[0]).places is None else walk.laid_out(live[0])
    if held.places is not None or len(walk.shape(held)) != 3:
        raise NotCovered(f"{called(node)}: joins constants to a value that is no sequence")
    sizes = [walk.trace.values[name].shape[1] for name in node.input]
    place = list(node.input).index(live[0])
    before, after = sum(sizes[:place]), sum(sizes[place + 1 :])
    table = value.copy()
    table[:, before : before + sizes[place]] = 0.0
    if not (table == table[:1]).all():
        raise NotCovered(f"{called(node)}: joins another constant to each sample")
    source = walk.made[held.layer]
    layer: L.PositionEmbedding | Joined = Joined()
    inputs: tuple[str, ...] = (held.layer,)
    if isinstance(source.layer, L.PositionEmbedding) and walk.alone(live[0]):
        layer, inputs = source.layer, source.inputs
        table[:, before : before + sizes[place]] = source.weights["weight"]
    padded = walk.add(node, L.Pad(pads=(before, 0, after, 0)), inputs, value.shape)
    return Held(walk.new(padded, layer, (padded,), {"weight": table[0]}, value.shape))


def reduce_mean(walk: Walk, node: onnx.NodeProto, axes: tuple[int, ...]) -> Held | None:
    """The mean of a sequence over time or over features, or None if it is another."""
    name = node.input[0]
    value, result = (walk.trace.values[each] for each in (name, node.output[0]))
    if value.ndim != 3 or len(axes) != 1 or not axes[0]:
        return None
    held = walk.of(name) if walk.of(name).places is None else walk.laid_out(name)
    shape = walk.shape(held)
    if len(shape) != 3 or held.places is not None:
        return None
    kept = (shape[0], shape[3 - axes[0]])
    made = walk.add(node, L.ReduceMean(axis=axes[0]), [held.layer], kept)
    return arranged(made, positions(kept).reshape(result.shape), kept)
