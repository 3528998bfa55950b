"""Reads transposed convolutions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import onnx

from dlb.graph.transposed import places_of
from dlb.imported.importer import Importer
from dlb.imported.layers import unsupported
from dlb.imported.views import ValueView
from dlb.workload import layers as L

__all__ = ["conv_transpose", "crop"]


def conv_transpose(
    importer: Importer, node: onnx.NodeProto, attributes: Mapping[str, Any]
) -> ValueView:
    """With ``auto_pad`` and ``output_shape`` resolved.

    What is added at the end and what is left out there cancel each other.
    """
    weight, bias = importer.trace.constant(node, 1), importer.trace.constant(node, 2)
    if weight is None or (bias is None and len(node.input) > 2 and node.input[2]):
        raise unsupported(node, "its filter or bias depends on the input")
    if weight.ndim != 4:
        raise unsupported(
            node, f"has {weight.ndim - 2} spatial axes; dlb's transposed convolution has 2"
        )
    view = importer.as_map(node, node.input[0])
    size, kernel = importer.shape(view)[2:], tuple(weight.shape[2:])
    places = places_of(lambda name, default: attributes.get(name, default), size, kernel)
    added = tuple(max(0, -after) for after in places.after)
    if min(places.before) < 0 or any(m >= step for m, step in zip(added, places.stride)):
        raise unsupported(
            node,
            f"adds {list(added)} to the output, which must be less than the stride "
            f"{list(places.stride)}, or adds at its start",
        )
    layer = L.ConvTranspose(
        out_channels=weight.shape[1] * places.groups,
        kernel=_pair(kernel),
        stride=_pair(places.stride),
        pads=(*_pair(places.before), *_pair(tuple(max(0, after) for after in places.after))),
        output_padding=_pair(added),
        dilation=_pair(places.dilation),
        groups=places.groups,
        bias=bias is not None,
    )
    weights = {"weight": weight} if bias is None else {"weight": weight, "bias": bias}
    shape = importer.value_shape(node.output[0])
    return ValueView(importer.add(node, layer, [view.layer], shape, weights))


def crop(importer: Importer, value: str, name: str, cuts: Mapping[int, Sequence[int]]) -> bool:
    """Let a transposed convolution leave out what is cut off its map, if nothing else reads that.

    Args:
        value: the value that is cut.
        name: of its layer.
        cuts: the indices that are kept, by axis of the layer's value.

    Returns:
        whether it does.
    """
    imported = importer.layers[name]
    layer, shape = imported.layer, list(imported.shape)
    if not isinstance(layer, L.ConvTranspose) or not importer.has_one_reader(value):
        return False
    if any(
        axis < 2 or list(kept) != list(range(kept[0], kept[-1] + 1)) for axis, kept in cuts.items()
    ):
        return False
    before, after = list(layer.pads[:2]), list(layer.pads[2:])
    for axis in (0, 1):
        kept = cuts.get(axis + 2, range(shape[axis + 2]))
        before[axis] += int(kept[0])
        after[axis] += shape[axis + 2] - 1 - int(kept[-1]) - layer.output_padding[axis]
        shape[axis + 2] = len(kept)
    changed = msgspec.structs.replace(
        layer,
        pads=(*before, *(max(0, left_out) for left_out in after)),
        output_padding=_pair([max(0, -left_out) for left_out in after]),
    )
    importer.change(name, layer=changed, shape=tuple(shape))
    return True


def _pair(numbers: Sequence[int]) -> tuple[int, int]:
    first, second = (int(number) for number in numbers)
    return first, second
