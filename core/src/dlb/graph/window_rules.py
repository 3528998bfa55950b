"""Reading convolutions and poolings: what their windows mean, whatever way they are written."""

from __future__ import annotations

from dataclasses import replace

import onnx

from dlb.graph.layout import Padding, padding_before
from dlb.graph.reader import Attributes, Operation, Reader, other
from dlb.graph.windows import Window, window_of

__all__ = ["conv", "pool"]


def _effective(window: Window) -> Attributes:
    """What of a window's attributes means something.

    Padding past the last element that is read is none, whether it was declared, or came from
    rounding the output size up; and a single window has no stride.
    """
    return {
        "kernel": window.kernel,
        "stride": tuple(1 if n == 1 else s for n, s in zip(window.output, window.stride)),
        "pads": (*window.before, *window.reach),
        "dilation": tuple(1 if k == 1 else d for k, d in zip(window.kernel, window.dilation)),
    }


def _padded(reader: Reader, node: onnx.NodeProto, given: Attributes) -> tuple[Window, Padding]:
    """The windows of a node, with what was padded before it taken in."""
    weight = reader.trace.constant(node, 1)
    kernel = tuple(given["kernel_shape"]) if weight is None else weight.shape[2:]
    size = reader.trace.values[node.input[0]].shape[2:]
    window = window_of(lambda name, default: given.get(name, default), size, kernel)
    found = padding_before(reader.trace, node.input[0])
    own = any(window.before) or any(window.after)
    zero_is_least = reader.source[found.value] >= 0 and reader.found[
        reader.source[found.value]
    ].kind in ("Relu", "Sigmoid")
    fitting = {
        "Conv": found.number == 0,
        "AveragePool": found.number == 0 and (given.get("count_include_pad", 0) or not own),
        "MaxPool": found.number < -3e38 or (found.number == 0 and zero_is_least),
    }
    if not found.before or not fitting[node.op_type]:
        return window, Padding(node.input[0])
    inside = tuple(n - b - a for n, b, a in zip(size, found.before, found.after))
    return replace(
        window,
        size=inside,
        before=tuple(x + y for x, y in zip(window.before, found.before)),
        after=tuple(x + y for x, y in zip(window.after, found.after)),
    ), found


def conv(
    reader: Reader, node: onnx.NodeProto, given: Attributes, place: int, output: str
) -> Operation | int:
    weight, bias = reader.trace.constant(node, 1), reader.trace.constant(node, 2)
    if weight is None:
        return other(reader, node, given, place, output)
    window, padding = _padded(reader, node, given)
    attributes = {
        "weight": weight.shape,
        **_effective(window),
        "groups": given.get("group", 1),
        "bias": bias is not None,
    }
    parameters = weight.size + (0 if bias is None else bias.size)
    return reader.make(node, "Conv", attributes, [padding.value], parameters)


def pool(
    reader: Reader, node: onnx.NodeProto, given: Attributes, place: int, output: str
) -> Operation:
    window, padding = _padded(reader, node, given)
    attributes = _effective(window)
    if node.op_type == "AveragePool":
        none = not any(attributes["pads"])
        if none and window.kernel == window.size:
            return reader.make(node, "GlobalAveragePool", {}, [padding.value])
        counted = bool(given.get("count_include_pad", 0)) or bool(padding.before)
        attributes["count_include_pad"] = counted and not none
        beyond = tuple(max(0, r - a) for r, a in zip(window.reach, window.after))
        if counted and any(beyond):
            attributes["not counted"] = beyond
    return reader.make(node, node.op_type, attributes, [padding.value])
