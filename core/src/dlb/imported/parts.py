"""Reading Pad, Slice, Split and Gather: what is put around a value, which of its places are taken."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from dlb.graph.decimals import decimal
from dlb.graph.layout import padding_of, places_taken
from dlb.graph.parts import features_taken
from dlb.graph.trace import Trace
from dlb.imported.values import Held, Shape, arranged, axes_of, positions
from dlb.imported.walk import Made, NotCovered, Walk, called
from dlb.workload import layers as L
from dlb.workload.model import Input, Model, Node
from dlb.workload.shapes import infer_shapes, places_along

__all__ = ["made_by", "pad", "part", "with_slices"]

Array = npt.NDArray[Any]
Given = Mapping[str, Any]


def pad(walk: Walk, node: onnx.NodeProto, given: Given) -> Held:
    """Constants around a value. Where a convolution or a pooling reads it, they become its own."""
    found = padding_of(walk.trace, node)
    if found is None or not math.isfinite(found[1]):
        raise NotCovered(f"{called(node)}: only a finite constant put around a value is covered")
    pads, number = found
    held, order, shape = _whole(walk, node)
    rank = len(shape)
    before, after = ({order[k]: pads[k + side] for k in range(rank)} for side in (0, rank))
    if before[0] or after[0]:
        raise NotCovered(f"{called(node)}: pads the batch")
    axes = range(1, rank)
    layer = L.Pad(
        pads=(*(before[axis] for axis in axes), *(after[axis] for axis in axes)),
        value=decimal(number),
    )
    made_shape = tuple(before[k] + size + after[k] for k, size in enumerate(shape))
    made = walk.add(node, layer, [held.layer], made_shape)
    return arranged(made, positions(made_shape).transpose(order), made_shape)


def part(walk: Walk, node: onnx.NodeProto, given: Given) -> Held:
    """Places of a value along its axes."""
    taken = places_taken(walk.trace, node)
    if taken is None:
        raise NotCovered(f"{called(node)}: places that depend on the input")
    given_shape, shown = (walk.trace.values[each].shape for each in (node.input[0], node.output[0]))
    found = _of_linear(walk, node, taken)
    if found is not None:
        held, features, inside = found
        made, made_shape = _taken(walk, node, held.layer, walk.shape(held), {2: features})
        return arranged(made, inside.reshape(shown), made_shape)
    rows = _rows(walk, node.input[0])
    held, order, shape = _whole(walk, node) if rows is None else (rows, (0, 2), walk.shape(rows))
    cuts = {
        order[axis]: places
        for axis, places in taken.items()
        if list(places) != list(range(given_shape[axis]))
    }
    made, made_shape = _taken(walk, node, held.layer, shape, cuts)
    if rows is not None:
        return arranged(made, positions(made_shape).reshape(shown), made_shape)
    selected = set(cuts) if len(made_shape) < len(shape) else set()
    kept = [axis for axis in order if axis not in selected]
    places = positions(made_shape).transpose([sorted(kept).index(axis) for axis in kept])
    return arranged(made, places.reshape(shown), made_shape)


def _taken(
    walk: Walk, node: onnx.NodeProto, made: str, shape: Shape, cuts: Mapping[int, Sequence[int]]
) -> tuple[str, Shape]:
    """The last of the layers that take places along the axes of a layer's value, and its shape."""
    if 0 in cuts:
        raise NotCovered(f"{called(node)}: takes a part of the batch")
    for layer in _layers(cuts, shape):
        shape = _shape(layer, shape)
        made = walk.add(node, layer, [made], shape)
    return made, shape


def _rows(walk: Walk, name: str) -> Held | None:
    """The sequences [N, T, features] whose rows [N * T, features] a value is, or None."""
    held = walk.elementwise(name)
    shape, places = walk.shape(held), walk.places_of(held)
    if len(shape) != 3 or places.shape != (shape[0] * shape[1], shape[2]):
        return None
    return held if np.array_equal(places, positions(shape).reshape(places.shape)) else None


def _of_linear(
    walk: Walk, node: onnx.NodeProto, taken: Mapping[int, Sequence[int]]
) -> tuple[Held, Sequence[int], Array] | None:
    """Features of sequences that a linear layer makes, taken of every row once they were arranged
    in more axes or others, as heads are.

    Returns:
        the layer, the features, and of each number taken where it lies in [N, T, features taken].
    """
    held = walk.elementwise(node.input[0])
    shape, places = walk.shape(held), walk.places_of(held)
    linear = isinstance(walk.made[held.layer].layer, L.Linear)
    if not linear or len(shape) != 3 or places.ndim == 2 or axes_of(places, shape) is not None:
        return None
    for axis, indices in taken.items():
        places = places.take(list(indices), axis)
    found = features_taken(places, math.prod(shape), shape[2])
    if found is None or len(found[0]) in (0, shape[2]):
        return None
    features, inside = found
    return held, _range(features), inside


def _range(places: Array) -> Sequence[int]:
    """Places that go up, as a range where they are one."""
    first, last = int(places[0]), int(places[-1])
    step = int(places[1]) - first if len(places) > 1 else 1
    whole = range(first, last + 1, step)
    found: list[int] = places.tolist()
    return whole if list(whole) == found else found


def with_slices(traced: Trace) -> Trace:
    """The graph with a Slice for each part that a Split makes of a value: a layer has one value."""
    nodes = tuple(made for node in traced.nodes for made in _slices(traced, node))
    producers = {name: node for node in nodes for name in node.output if name}
    return replace(traced, nodes=nodes, producers=producers)


def _slices(traced: Trace, node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    if node.op_type != "Split" or not traced.live.isdisjoint(node.input[1:]):
        yield node
        return
    for place, name in enumerate(node.output):
        for axis, places in (places_taken(traced, node, place) or {}).items():
            assert isinstance(places, range)
            made = helper.make_node("Slice", node.input[:1], [name])
            made.name = f"{node.name}_{place}" if node.name else name
            for key, value in (("axes", axis), ("starts", places.start), ("ends", places.stop)):
                made.attribute.append(helper.make_attribute(key, [value]))
            yield made


def made_by(walk: Walk, name: str) -> Made:
    """The layer that a value is of; of some features of a linear layer, the one that makes them
    alone: queries, keys and values may come of one matrix."""
    made = walk.was(name)
    if not isinstance(made.layer, L.Slice | L.Gather):
        return made
    whole = walk.made[made.inputs[0]]
    if not isinstance(whole.layer, L.Linear) or made.shape[:-1] != whole.shape[:-1]:
        return made
    if isinstance(made.layer, L.Slice):
        features = list(places_along(made.layer, whole.shape[1:])[-1])
    elif made.layer.axis == len(whole.shape) - 1:
        features = list(made.layer.indices)
    else:
        return made
    weights = {role: array[features] for role, array in whole.weights.items()}
    return Made(whole.layer, whole.inputs, weights, made.shape)


def _whole(walk: Walk, node: onnx.NodeProto) -> tuple[Held, tuple[int, ...], Shape]:
    """What a node reads, the layer's axis that each of its axes is, and the layer's shape."""
    held = walk.elementwise(node.input[0])
    shape, places = walk.shape(held), walk.places_of(held)
    order = axes_of(places, shape)
    if order is None:
        held = walk.laid_out(node.input[0])
        shape, places = walk.shape(held), walk.places_of(held)
        order = axes_of(places, shape)
    if order is None or len(shape) not in (2, 3, 4):
        raise NotCovered(
            f"{called(node)}: reads {list(places.shape)} of layer '{held.layer}' {list(shape)} in "
            "an order that no layer gives"
        )
    return held, order, shape


def _layers(cuts: Mapping[int, Sequence[int]], shape: Shape) -> list[L.Layer]:
    """One place of a sequence is selected; what goes up is sliced, and all else gathered."""
    if len(cuts) == 1 and len(shape) == 3:
        ((axis, places),) = cuts.items()
        if len(places) == 1:
            return [L.Select(axis=axis, index=places[0])]
    sliced = {
        axis: each for axis, each in cuts.items() if isinstance(each, range) and each.step > 0
    }
    found: list[L.Layer] = []
    if sliced:
        whole = [sliced.get(axis, range(size)) for axis, size in enumerate(shape)][1:]
        steps = tuple(each.step for each in whole)
        found.append(
            L.Slice(
                starts=tuple(each.start for each in whole),
                ends=tuple(each.stop for each in whole),
                steps=() if {each.step for each in whole} == {1} else steps,
            )
        )
    rest = [axis for axis in cuts if axis not in sliced]
    return [*found, *(L.Gather(axis=axis, indices=tuple(cuts[axis])) for axis in rest)]


def _shape(layer: L.Layer, shape: Shape) -> Shape:
    one = Model(input=Input(shape=shape[1:]), nodes=(Node(name="one", layer=layer),))
    return (shape[0], *infer_shapes(one)["one"])
