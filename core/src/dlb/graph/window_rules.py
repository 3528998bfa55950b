"""Reading convolutions and poolings: what their windows mean, whatever way they are written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product

import numpy as np
import numpy.typing as npt
import onnx

from dlb.graph.layout import Padding, padding_before, selected_indices
from dlb.graph.reader import Attributes, Operation, Reader, generic_operation
from dlb.graph.trace import Trace, attributes_of
from dlb.graph.windows import Window, window_of

__all__ = ["RescaledPool", "conv", "first_windows", "pool", "rescaled_pool"]

Sizes = tuple[int, ...]
#: Poolings of a whole map, as those that they are.
_KINDS = {
    "GlobalAveragePool": "AveragePool",
    "ReduceMean": "AveragePool",
    "GlobalMaxPool": "MaxPool",
}


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


def first_windows(trace: Trace, name: str) -> tuple[onnx.NodeProto, Sizes] | None:
    """The convolution or pooling that gives a value, and how many of its windows are in it on each
    axis: all, or the first, where what is padded for others' sake is cut off; or None."""
    node = trace.producers.get(name)
    while node is not None and node.op_type == "Slice":
        taken, shape = selected_indices(trace, node), trace.values[node.input[0]].shape
        if taken is None or any(
            list(places) != list(range(len(places) if axis > 1 else shape[axis]))
            for axis, places in taken.items()
        ):
            return None
        node = trace.producers.get(node.input[0])
    if node is None or node.op_type not in ("Conv", "MaxPool", "AveragePool"):
        return None
    return node, trace.values[name].shape[2:]


def _padded(
    reader: Reader, node: onnx.NodeProto, given: Attributes, sizes: Sizes | None
) -> tuple[Window, Padding]:
    """The windows of a node, with all that was padded before it taken in."""
    return _paddings(reader, node, given, sizes)[-1]


def _paddings(
    reader: Reader, node: onnx.NodeProto, given: Attributes, sizes: Sizes | None
) -> list[tuple[Window, Padding]]:
    """The windows of a node as they are, and with each padding before them taken in, one more each.

    Args:
        sizes: how many of the windows count on each axis; all if None.
    """
    weight = reader.trace.constant(node, 1) if node.op_type == "Conv" else None
    kernel = tuple(given["kernel_shape"]) if weight is None else weight.shape[2:]
    size = reader.trace.values[node.input[0]].shape[2:]
    window = window_of(lambda name, default: given.get(name, default), size, kernel)
    window = replace(window, output=sizes or window.output)
    own = any(window.before) or any(window.after)
    taken = [(window, Padding(node.input[0]))]
    while True:
        found = padding_before(reader.trace, taken[-1][1].value)
        zero_is_least = _zero_is_least(reader, found.value)
        fitting = {
            "Conv": found.number == 0,
            "AveragePool": found.number == 0 and (given.get("count_include_pad", 0) or not own),
            "MaxPool": found.number < -3e38 or (found.number == 0 and zero_is_least),
        }
        if not found.before or not fitting[_KINDS.get(node.op_type, node.op_type)]:
            return taken
        window = taken[-1][0]
        inside = tuple(n - b - a for n, b, a in zip(window.size, found.before, found.after))
        whole = replace(
            window,
            size=inside,
            before=tuple(x + y for x, y in zip(window.before, found.before)),
            after=tuple(x + y for x, y in zip(window.after, found.after)),
        )
        taken.append((whole, found))


def _zero_is_least(reader: Reader, name: str) -> bool:
    """Whether no number of a value can be below 0."""
    if reader.source[name] < 0:
        return False
    found = reader.operations[reader.source[name]]
    return found.kind in ("Relu", "Sigmoid", "HardSigmoid") or found.attributes.get("low") == 0.0


def conv(
    reader: Reader,
    node: onnx.NodeProto,
    given: Attributes,
    place: int,
    output: str,
    sizes: Sizes | None = None,
) -> Operation | int:
    weight, bias = reader.trace.constant(node, 1), reader.trace.constant(node, 2)
    if weight is None:
        return generic_operation(reader, node, given, place, output)
    window, padding = _padded(reader, node, given, sizes)
    attributes = {
        "weight": weight.shape,
        **_effective(window),
        "groups": given.get("group", 1),
        "bias": False,
    }
    made = reader.make(node, "Conv", attributes, [padding.value], weight.size)
    return made if bias is None else reader.with_bias(made, node.input[2])


def pool(
    reader: Reader,
    node: onnx.NodeProto,
    given: Attributes,
    place: int,
    output: str,
    sizes: Sizes | None = None,
) -> Operation:
    kind = _KINDS.get(node.op_type, node.op_type)
    window, padding = _padded(reader, node, given, sizes)
    attributes = _effective(window)
    if kind == "AveragePool":
        if not any(attributes["pads"]) and window.kernel == window.size:
            return reader.make(node, "GlobalAveragePool", {}, [padding.value])
        attributes |= _meaning(window, *_counted(window, padding, given))
    return reader.make(node, kind, attributes, [padding.value])


@dataclass(frozen=True)
class RescaledPool:
    """An average pooling whose output is multiplied by a constant.

    Attributes:
        meaning: the attributes of the pooling that both are together.
        value: the one that its windows lie in.
        scale: by what each window is multiplied for that, [*output]: a file keeps it rounded.
        channels: by what it is multiplied still, [C]; None if by nothing.
    """

    meaning: Attributes
    value: str
    scale: npt.NDArray[np.floating]
    channels: npt.NDArray[np.floating] | None


def rescaled_pool(
    reader: Reader,
    node: onnx.NodeProto,
    scale: npt.NDArray[np.floating],
    sizes: Sizes | None = None,
) -> RescaledPool | None:
    """What an AveragePool node means whose output is multiplied by ``scale``, or None.

    Frameworks that cannot leave pads on one side, or what rounding up adds, out of the mean divide
    by the whole kernel, and scale each window by how much of it counts. Exporters take the scale of
    a batch normalisation after it into that.

    Args:
        sizes: how many of the windows count on each axis; all if None.
    """
    given = attributes_of(node)
    channels = reader.trace.values[node.output[0]].shape[1]
    for window, padding in reversed(_paddings(reader, node, given, sizes)):
        own = _divisors(window, *_counted(window, padding, given))
        if scale.shape[-own.ndim :] != own.shape or set(window.dilation) != {1}:
            continue
        rows = scale.reshape(-1, own.size)
        if len(rows) not in (1, channels):
            continue
        for counted, beyond in _countings(window):
            divisors = _divisors(window, counted, beyond)
            left = rows * (divisors / own).ravel()
            if np.allclose(left, 1, rtol=1e-5):
                factors = None
            elif len(rows) == channels and _alike(left) and not _alike(rows):
                factors = left[:, 0]
            else:
                continue
            meaning = _effective(window) | _meaning(window, counted, beyond)
            return RescaledPool(meaning, padding.value, own / divisors, factors)
    return None


def _countings(window: Window) -> Iterator[tuple[bool, tuple[int, ...]]]:
    """What of the padding may count in a mean: nothing; or all, but for so much at the end."""
    yield False, (0,) * len(window.kernel)
    for beyond in product(*(range(reach + 1) for reach in window.reach)):
        yield True, beyond


def _alike(rows: npt.NDArray[np.floating]) -> bool:
    """Whether each row is one number throughout."""
    return np.allclose(rows, rows[:, :1], rtol=1e-5)


def _counted(window: Window, padding: Padding, given: Attributes) -> tuple[bool, tuple[int, ...]]:
    """Whether padding counts in an average, and how much of it at the end does not even so.

    What rounding up adds past the padding asked for is never counted.
    """
    counted = bool(given.get("count_include_pad", 0)) or bool(padding.before)
    return counted, tuple(max(0, r - a) for r, a in zip(window.reach, window.after))


def _meaning(window: Window, counted: bool, beyond: tuple[int, ...]) -> Attributes:
    counted = counted and (any(window.before) or window.reach != beyond)
    uncounted = {"not counted": beyond} if counted and any(beyond) else {}
    return {"count_include_pad": counted, **uncounted}


def _divisors(window: Window, counted: bool, beyond: tuple[int, ...]) -> npt.NDArray[np.integer]:
    """How many elements the sum of each window is divided by, in the shape of the output."""
    counts = []
    for axis, outputs in enumerate(window.output):
        start = np.arange(outputs) * window.stride[axis]
        first, last = window.before[axis], window.before[axis] + window.size[axis]
        if counted:
            first, last = 0, last + window.reach[axis] - beyond[axis]
        stop = np.minimum(start + window.kernel[axis], last)
        counts.append(stop - np.maximum(start, first))
    return reduce(np.multiply.outer, counts)
