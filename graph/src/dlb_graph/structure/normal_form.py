"""Layers of a graph as operations whose attributes are those that affect what is computed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import onnx

from dlb_graph import layers as L
from dlb_graph.layers.decimals import six_digits
from dlb_graph.layers.functions import FUNCTIONS
from dlb_graph.layers.numbers import Array
from dlb_graph.layers.transposed import Places, places_of
from dlb_graph.layers.windows import Window, window_of
from dlb_graph.reading.layers import ImportedLayer, PendingConcat
from dlb_graph.reading.views import Shape
from dlb_graph.structure.graph_reader import GraphReader, Opaque, read_graph
from dlb_graph.structure.operation import Attributes, Operation
from dlb_graph.truth.layout import Padding
from dlb_graph.truth.merged_windows import (
    counted_padding,
    effective_attributes,
    idle_axes,
    padding_attributes,
    without_axes,
)
from dlb_graph.truth.recognition import constant_operand
from dlb_graph.truth.trace import Trace, trace
from dlb_worker.masks import kept_places

__all__ = ["operations", "operations_of"]

#: Layers that only arrange numbers, or are the identity in inference.
_ARRANGING = (L.Flatten, L.Reshape, L.Transpose, L.Dropout)
_SELECTING = (L.Select, L.Slice, L.Gather)
_ARITHMETIC = ("Add", "Div", "Mul", "Sub", "Sum")


def operations(model: onnx.ModelProto) -> list[Operation]:
    """What a model computes, in an order in which each operation follows its inputs.

    Raises:
        UnsupportedError: the model cannot be run.
    """
    return operations_of(trace(model))


def operations_of(traced: Trace, *, depthwise: bool = True) -> list[Operation]:
    """What a model computes, from its trace; see :func:`operations`.

    Args:
        depthwise: whether a convolution that scales each channel by itself is one; else it is arithmetic, in
            the place of which the importer writes it.
    """
    if not traced.inputs:
        return []
    reader, outputs = read_graph(traced)
    return _NormalForm(reader, depthwise=depthwise).read(outputs)


class _NormalForm:
    """Turns the layers of a graph into operations, by a rule for each kind of layer."""

    def __init__(self, reader: GraphReader, *, depthwise: bool) -> None:
        self.reader = reader
        self.depthwise = depthwise
        self.operations: list[Operation] = []
        self.tables: list[Operation] = []
        #: For each layer the index of its operation; -1, -2, ... are the graph's inputs.
        self.source: dict[str, int] = {}
        #: Of convolutions and poolings, by the index of the operation: the windows, the layer, what they
        #: read, and whether padding before was merged.
        self.windows: dict[int, tuple[Window, str, str, bool]] = {}

    def read(self, outputs: list[str]) -> list[Operation]:
        inputs = [self.reader.view(name).layer for name in self.reader.trace.inputs]
        self.source = {name: -1 - place for place, name in enumerate(inputs)}
        for name, layer in self.reader.layers.items():
            if name not in self.source:
                self.source[name] = self._read(name, layer)
        return _needed(self.operations, [self.source[name] for name in outputs])

    def _read(self, name: str, imported: ImportedLayer) -> int:
        layer = imported.layer
        if isinstance(layer, _ARRANGING):
            return self.source[imported.inputs[0]]
        if isinstance(layer, PendingConcat):
            layer = L.PositionEmbedding()
        rule = _RULES.get(type(layer), _by_attributes)
        operation = rule(self, name, replace(imported, layer=layer))
        return operation if isinstance(operation, int) else self.append(operation, imported.shape)

    def append(self, operation: Operation, shape: Shape) -> int:
        operation.attributes["elements"] = math.prod(shape[1:])
        self.operations.append(operation)
        return len(self.operations) - 1

    def make(
        self,
        name: str,
        kind: str,
        attributes: Attributes,
        sources: tuple[int, ...] | None = None,
        parameters: int = 0,
    ) -> Operation:
        """An operation for a layer, which reads the layer's inputs unless ``sources`` has others."""
        if sources is None:
            sources = tuple(self.source[read] for read in self.reader.layers[name].inputs)
        return Operation(self.reader.layers[name].source, kind, attributes, sources, parameters)

    def previous(self, name: str) -> Operation | None:
        source = self.source[name]
        return self.operations[source] if source >= 0 else None

    def before_repeats(self, source: int) -> int:
        """The operation before those that only repeat its value."""
        while source >= 0 and _repeats(self.operations[source]):
            (source,) = self.operations[source].inputs
        return source

    def shape(self, name: str) -> Shape:
        return self.reader.layers[name].shape

    def _is_made_up(self, name: str) -> bool:
        """Whether a layer's bias is one number written out, which no training can change."""
        node, producers = self.reader.layers[name].node, self.reader.trace.producers
        producer = None if node is None or len(node.input) < 3 else producers.get(node.input[2])
        if producer is None or producer.op_type != "Expand":
            return False
        number = producers.get(producer.input[0])
        while number is not None and number.op_type in ("Cast", "CastLike"):
            number = producers.get(number.input[0])
        return number is not None and number.op_type == "Constant"

    def with_bias(self, operation: Operation, name: str, bias: Array | None) -> Operation:
        if bias is None or (not bias.any() and self._is_made_up(name)):
            return operation
        return replace(
            operation,
            attributes={**operation.attributes, "bias": True},
            parameters=operation.parameters + bias.size,
            bias_name=f"{operation.name}.bias",
            nonzero_bias=bool(bias.any()),
        )


def _needed(graph: list[Operation], outputs: list[int]) -> list[Operation]:
    needed, waiting = set[int](), list(outputs)
    while waiting:
        index = waiting.pop()
        if index >= 0 and index not in needed:
            needed.add(index)
            waiting += graph[index].inputs
    order = {old: new for new, old in enumerate(sorted(needed))}
    return [
        replace(graph[old], inputs=tuple(order.get(k, k) for k in graph[old].inputs))
        for old in sorted(needed)
    ]


def _padded(form: _NormalForm, name: str, window: Window, layer: Any) -> tuple[Window, str, bool]:
    """The windows of a layer with all padding before it merged, what they then read, and whether any was."""
    own, merged = any(window.before) or any(window.after), False
    while True:
        before = form.reader.layers[name]
        while isinstance(before.layer, L.Dropout):
            (name,) = before.inputs
            before = form.reader.layers[name]
        pad, axes = before.layer, len(window.kernel)
        if not isinstance(pad, L.Pad) or len(before.shape) != axes + 2:
            return window, name, merged
        low, high = pad.pads[: axes + 1], pad.pads[axes + 1 :]
        inside = form.previous(before.inputs[0])
        nonnegative = inside is not None and (
            inside.kind in ("Relu", "Sigmoid", "HardSigmoid") or inside.attributes.get("low") == 0.0
        )
        mergeable: dict[Any, bool] = {
            L.Conv: pad.value == 0,
            L.AveragePool: pad.value == 0
            and (bool(getattr(layer, "count_include_pad", False)) or not own),
            L.MaxPool: pad.value < -3e38 or (pad.value == 0 and nonnegative),
        }
        if low[0] or high[0] or not mergeable[type(layer)]:
            return window, name, merged
        (name,), merged = before.inputs, True
        window = window.with_padding(low[1:], high[1:])


def _windowed(form: _NormalForm, name: str, imported: ImportedLayer) -> Operation:
    layer: Any = imported.layer
    (read,) = imported.inputs
    window, read, merged = _padded(
        form,
        read,
        window_of(layer.onnx_attributes().get, form.shape(read)[2:], layer.kernel),
        layer,
    )
    form.windows[len(form.operations)] = (window, name, read, merged)
    return _of_window(form, name, imported, window, read, merged)


def _global_average(form: _NormalForm, name: str, imported: ImportedLayer) -> Operation:
    """A pooling of a whole map, with the zeros that may pad it, or the mean of a sequence."""
    size = form.shape(imported.inputs[0])[2:]
    node, values = imported.node, form.reader.trace.values
    if node is not None and values[node.input[0]].ndim == 3:
        return form.make(name, "ReduceMean", {"of": math.prod(size)})
    pooling = L.AveragePool(kernel=size, stride=size)
    return _windowed(form, name, replace(imported, layer=pooling))


def _of_window(
    form: _NormalForm, name: str, imported: ImportedLayer, window: Window, read: str, merged: bool
) -> Operation:
    layer: Any = imported.layer
    attributes = effective_attributes(window)
    if isinstance(layer, L.Conv):
        weight, node = imported.weights["weight"], imported.node
        arithmetic = node is not None and node.op_type in _ARITHMETIC
        scales = layer.groups == len(weight) == weight.size and not any(attributes["pads"])
        if arithmetic or (scales and not form.depthwise and set(attributes["stride"]) == {1}):
            return _affine(form, name, imported, form.source[read])
        attributes = {"weight": weight.shape, **attributes, "groups": layer.groups, "bias": False}
        attributes = without_axes(attributes, idle_axes(window))
        operation = form.make(name, "Conv", attributes, (form.source[read],), weight.size)
        return form.with_bias(operation, name, imported.weights.get("bias"))
    if isinstance(layer, L.AveragePool):
        if not any(attributes["pads"]) and window.kernel == window.size:
            return form.make(name, "GlobalAveragePool", {}, (form.source[read],))
        padding = Padding(read, (0,) if merged else ())
        raw = {"count_include_pad": layer.count_include_pad}
        attributes |= padding_attributes(window, *counted_padding(window, padding, raw))
    attributes = without_axes(attributes, idle_axes(window))
    return form.make(name, type(layer).__name__, attributes, (form.source[read],))


def _affine(form: _NormalForm, name: str, imported: ImportedLayer, source: int) -> Operation:
    """Arithmetic with a number for each channel."""
    weight, bias = imported.weights["weight"], imported.weights.get("bias")
    scaled = bool((weight != 1).any()) or bias is None
    operation = _channels(form, name, len(weight), scaled, source)
    if not scaled or bias is None:
        return operation
    return _channels(form, name, len(weight), False, form.append(operation, imported.shape))


def _conv_transpose(form: _NormalForm, name: str, imported: ImportedLayer) -> Operation:
    layer: Any = imported.layer
    weight, (read,) = imported.weights["weight"], imported.inputs
    size = form.shape(read)[2:]
    places = places_of(layer.onnx_attributes().get, size, weight.shape[2:])
    weight, places = _without_gaps(weight, places)
    pad = form.reader.layers[read]
    if (
        isinstance(pad.layer, L.Pad)
        and pad.layer.value == 0
        and not any(pad.layer.pads[:: len(size) + 1])
    ):
        # A padded zero covers more, and adds nothing.
        (read,), half = pad.inputs, len(pad.layer.pads) // 2
        low, high = pad.layer.pads[1:half], pad.layer.pads[half + 1 :]
        places = replace(
            places,
            size=form.shape(read)[2:],
            before=tuple(x - b * s for x, b, s in zip(places.before, low, places.stride)),
            after=tuple(x - a * s for x, a, s in zip(places.after, high, places.stride)),
        )
    attributes = {
        "weight": (weight.shape[1] * places.groups, weight.shape[0], *weight.shape[2:]),
        "stride": tuple(1 if n == 1 else s for n, s in zip(places.size, places.stride)),
        "left out": (*places.before, *places.after),
        "dilation": tuple(1 if k == 1 else d for k, d in zip(places.kernel, places.dilation)),
        "groups": places.groups,
        "bias": False,
    }
    idle = {
        axis
        for axis, count in enumerate(places.size)
        if count == places.kernel[axis] == 1 and places.before[axis] == places.after[axis] == 0
    }
    attributes = without_axes(attributes, idle)
    operation = form.make(name, "ConvTranspose", attributes, (form.source[read],), weight.size)
    return form.with_bias(operation, name, imported.weights.get("bias"))


def _without_gaps(weight: Array, places: Places) -> tuple[Array, Places]:
    """A filter whose taps have zeros between them is a dilated one without these."""
    if set(places.dilation) != {1}:
        return weight, places
    dilation = [1] * len(places.kernel)
    for axis, size in enumerate(weight.shape[2:], start=2):
        for gap in range(size - 1, 1, -1):
            taps = (slice(None),) * axis + (slice(None, None, gap),)
            between = np.delete(weight, np.arange(0, size, gap), axis)
            if (size - 1) % gap == 0 and weight[taps].any() and not between.any():
                weight, dilation[axis - 2] = weight[taps], gap
                break
    return weight, replace(places, kernel=weight.shape[2:], dilation=tuple(dilation))


def _linear(form: _NormalForm, name: str, imported: ImportedLayer) -> Operation:
    weight = imported.weights["weight"]
    operation = form.make(
        name, "Linear", {"weight": weight.shape, "bias": False}, parameters=weight.size
    )
    shared = (table for table in form.tables if _is_shared(table, weight))
    matrix_name = next((table.matrix_name for table in shared), name)
    operation = replace(operation, matrix=weight, matrix_name=matrix_name)
    return form.with_bias(operation, name, imported.weights.get("bias"))


def _is_shared(table: Operation, weight: Array) -> bool:
    """Whether a matrix is a table; equal numbers may be so without being shared."""
    assert table.matrix is not None
    return (
        table.matrix.shape == weight.shape
        and np.array_equal(table.matrix, weight)
        and bool((weight != weight.flat[0]).any())
    )


def _embedding(form: _NormalForm, name: str, imported: ImportedLayer) -> Operation:
    table = imported.weights["weight"]
    operation = form.make(name, "Embedding", {"table": table.shape}, parameters=table.size)
    form.tables.append(replace(operation, matrix=table, matrix_name=name))
    return form.tables[-1]


def _attention(form: _NormalForm, name: str, imported: ImportedLayer) -> Operation:
    """Four linear maps, and what lies between them."""
    layer: Any = imported.layer
    shape, (read,) = imported.shape, imported.inputs
    of_node = imported.source
    parts: list[int] = []
    for role in L.ATTENTION_MAPS:
        weight, bias = imported.weights[f"{role}_weight"], imported.weights.get(f"{role}_bias")
        operation = Operation(
            f"{of_node}/{role}",
            "Linear",
            {"weight": weight.shape, "bias": bias is not None},
            (form.source[read],),
            weight.size + (0 if bias is None else bias.size),
            matrix=weight,
            bias_name=f"{of_node}.{role}_bias",
            nonzero_bias=bias is None or bool(bias.any()),
        )
        if role == "output":
            attributes = {"heads": layer.heads, "causal": layer.causal}
            mixed = form.make(name, "Attention", attributes, tuple(parts))
            return replace(operation, inputs=(form.append(mixed, shape),))
        parts.append(form.append(operation, shape))
    raise AssertionError("the output map is the last")


def _limit(
    form: _NormalForm, name: str, imported: ImportedLayer, low: float, high: float
) -> Operation | int:
    """A value limited to bounds; those that it already has are left out."""
    (read,) = imported.inputs
    previous = form.previous(read)
    inputs: tuple[int, ...] = (form.source[read],)
    inner = None
    if previous is not None and previous.kind == "Relu":
        inner = (0.0, math.inf)
    elif previous is not None and previous.kind == "Clip":
        inner = previous.attributes["low"], previous.attributes["high"]
    if inner is not None and previous is not None:
        low, high = (min(max(bound, low), high) for bound in inner)
        inputs = previous.inputs
    if (low, high) == inner:
        return form.source[read]
    relu = (low, high) == (0.0, math.inf)
    bounds = {} if relu else {"low": six_digits(low), "high": six_digits(high)}
    return form.make(name, "Relu" if relu else "Clip", bounds, inputs)


def _elementwise(form: _NormalForm, name: str, imported: ImportedLayer) -> Operation | int:
    layer: Any = imported.layer
    numbers = {key: six_digits(number) for key, number in layer.numbers.items()}
    if layer.function == "clip":
        bounds = numbers.get("min", -math.inf), numbers.get("max", math.inf)
        return _limit(form, name, imported, *bounds)
    if layer.function == "affine":
        return _line(form, name, imported, numbers["alpha"], numbers["beta"])
    if layer.function == "pow":
        return form.make(name, "Pow", {"by": numbers["alpha"]})
    return form.make(name, FUNCTIONS[layer.function].operator or layer.function, numbers)


def _line(
    form: _NormalForm, name: str, imported: ImportedLayer, scale: float, shift: float
) -> Operation | int:
    (read,) = imported.inputs
    source = form.source[read]
    # One number may be that of a single channel.
    channel = 1 in form.shape(read)[1:]
    steps = [("Scale", scale)] * (scale != 1) + [("Shift", shift)] * (shift != 0)
    for place, (kind, number) in enumerate(steps):
        attributes: Attributes = {"by": number}
        previous = form.operations[source] if source >= 0 else None
        if channel:
            operation = _channels(form, name, 1, kind == "Scale", source)
        elif (
            previous is not None
            and (kind, previous.kind) == ("Scale", "ReduceSum")
            and math.isclose(number * previous.attributes["of"], 1, rel_tol=1e-5)
        ):
            operation = replace(previous, kind="ReduceMean")
        else:
            operation = form.make(name, kind, attributes, (source,))
        if place == len(steps) - 1:
            return operation
        source = form.append(operation, imported.shape)
    return source


def _channels(form: _NormalForm, name: str, size: int, scaled: bool, source: int) -> Operation:
    """A scale or a shift of channels, or of other numbers; both are a batch normalisation without epsilon."""
    previous = form.operations[source] if source >= 0 else None
    attributes: Attributes = {"channels": size, "scaled": scaled}
    operation = form.make(name, "Affine", attributes, (source,), size)
    if previous is None or previous.kind != "Affine" or previous.attributes["channels"] != size:
        return operation
    if scaled or not previous.attributes["scaled"]:
        return replace(previous, attributes=attributes)
    return replace(
        previous,
        kind="BatchNormalization",
        attributes={"channels": size, "epsilon": None},
        parameters=2 * size,
    )


def _scale_or_shift(form: _NormalForm, name: str, imported: ImportedLayer) -> Operation:
    (numbers,), (read,) = imported.weights.values(), imported.inputs
    scaled = isinstance(imported.layer, L.Scale)
    if (
        not scaled
        and numbers.ndim == 2
        and numbers.shape == imported.shape[1:]
        and 1 not in numbers.shape
    ):
        return _position_embedding(form, name, imported)
    return _channels(form, name, numbers.size, scaled, form.source[read])


def _position_embedding(form: _NormalForm, name: str, imported: ImportedLayer) -> Operation:
    """A table that is added to every sequence; one of a single feature, or of equal rows, is a shift."""
    table, node = tuple(sorted(imported.shape[1:])), imported.node
    size = math.prod(table)
    if node is not None and node.op_type in _ARITHMETIC:
        index = 1 if node.input[0] in form.reader.trace.live else 0
        size = constant_operand(form.reader.trace, node, index).size
    if size != math.prod(table) or 1 in table:
        return _channels(form, name, size, False, form.source[imported.inputs[0]])
    return form.make(name, "PositionEmbedding", {"table": table}, parameters=size)


def _resize(form: _NormalForm, name: str, imported: ImportedLayer) -> Operation | int:
    layer: Any = imported.layer
    (read,) = imported.inputs
    shape, source = form.shape(read), form.source[read]
    sizes = list(shape)
    for axis, taps in layer.taps(shape[1:]):
        weight = (len(taps.indices), taps.size)
        sizes[axis] = weight[0]
        attributes = {"weight": weight, "bias": False}
        operation = form.make(name, "Linear", attributes, (source,), math.prod(weight))
        source = form.append(operation, tuple(sizes))
    return source


def _reduce(form: _NormalForm, name: str, imported: ImportedLayer) -> Operation:
    layer: Any = imported.layer
    shape = form.shape(imported.inputs[0])
    axes = (layer.axis,) if isinstance(layer, L.ReduceMean) else layer.axes
    function = getattr(layer, "function", "mean")
    places = set(range(2, len(shape)))
    if len(shape) in (4, 5) and len(axes) == len(places) and function == "mean":
        return form.make(name, "GlobalAveragePool", {})
    if len(shape) in (4, 5) and set(axes) == places and function == "max":
        whole = L.MaxPool(kernel=shape[2:], stride=shape[2:])
        return _windowed(form, name, replace(imported, layer=whole))
    kind = f"Reduce{function.title()}"
    count = math.prod(shape[axis] for axis in axes)
    return form.make(name, kind, {"of": count})


def _top_k(form: _NormalForm, name: str, imported: ImportedLayer) -> Operation:
    layer: Any = imported.layer
    of = form.shape(imported.inputs[0])[layer.axis]
    operation = form.make(name, "TopK", {"k": layer.k, "largest": layer.largest, "of": of})
    previous = form.previous(imported.inputs[0])
    if previous is not None and previous.kind == "Neg":
        operation.attributes["largest"] = not layer.largest
        return replace(operation, inputs=previous.inputs)
    return operation


def _gather_elements(form: _NormalForm, name: str, imported: ImportedLayer) -> Operation:
    layer: Any = imported.layer
    of = form.shape(imported.inputs[0])[layer.axis]
    operation = form.make(name, "GatherElements", {"of": of})
    data, indices = operation.inputs
    while indices >= 0 and _keeps_indices(form.operations[indices], of):
        (indices,) = form.operations[indices].inputs
    return replace(operation, inputs=(data, indices))


def _where(form: _NormalForm, name: str, imported: ImportedLayer) -> Operation:
    """It repeats what has fewer places, as exporters that repeat it before write out."""
    sources = tuple(form.before_repeats(form.source[read]) for read in imported.inputs)
    return replace(_by_attributes(form, name, imported), inputs=sources)


def _keeps_indices(operation: Operation, size: int) -> bool:
    """Whether an operation limits indices to those of an axis, or repeats them."""
    if operation.kind == "Clip":
        bounds = operation.attributes
        return bool(bounds["low"] <= 0 and bounds["high"] == size - 1)
    return _repeats(operation)


def _repeats(operation: Operation) -> bool:
    """Whether an operation only repeats what has one place along an axis."""
    return operation.kind == "Slice" and all(
        before == 1 and not any(indices) for before, indices in operation.attributes["indices"]
    )


def _concat(form: _NormalForm, name: str, imported: ImportedLayer) -> Operation:
    layer: Any = imported.layer
    sizes: list[int] = []
    inputs: list[int] = []
    for read in imported.inputs:
        if _is_concatenated(form, read, layer.axis):
            previous = form.operations[form.source[read]]
            sizes += previous.attributes["sizes"]
            inputs += previous.inputs
            continue
        sizes.append(form.shape(read)[layer.axis])
        inputs.append(form.source[read])
    return form.make(name, "Concat", {"sizes": tuple(sizes)}, tuple(inputs))


def _is_concatenated(form: _NormalForm, name: str, axis: int) -> bool:
    """Whether a value is itself a concatenation along an axis, perhaps arranged, and back."""
    imported, shape = form.reader.layers[name], form.shape(name)
    while isinstance(imported.layer, _ARRANGING):
        (name,) = imported.inputs
        if isinstance(imported.layer, L.Transpose):
            if imported.shape != shape:
                return False
            axis, shape = (0, *imported.layer.axes)[axis], form.shape(name)
        imported = form.reader.layers[name]
    layer = imported.layer
    return isinstance(layer, L.Concat) and imported.shape == shape and layer.axis == axis


def _cuts(layer: Any, shape: Shape) -> dict[int, tuple[int, ...]]:
    """The indices that a layer selects, by axis of its input."""
    if isinstance(layer, L.Select):
        return {layer.axis: (layer.index % shape[layer.axis],)}
    if isinstance(layer, L.Gather):
        size = shape[layer.axis]
        return {layer.axis: tuple(index % size for index in layer.indices)}
    return {axis: tuple(places) for axis, places in enumerate(layer.places(shape[1:]), start=1)}


def _select(form: _NormalForm, name: str, imported: ImportedLayer) -> Operation | int:
    (read,) = imported.inputs
    shape = form.shape(read)
    cuts = {
        axis: indices
        for axis, indices in _cuts(imported.layer, shape).items()
        if indices != tuple(range(shape[axis]))
    }
    source = form.source[read]
    if not cuts:
        return source
    windows = form.windows.get(source)
    if windows is not None and all(
        axis > 1 and indices == tuple(range(len(indices))) for axis, indices in cuts.items()
    ):
        window, layer_name, read, merged = windows
        output = tuple(
            len(cuts.get(axis, range(size))) for axis, size in enumerate(window.output, start=2)
        )
        window = replace(window, output=output)
        layer = form.reader.layers[layer_name]
        return _of_window(form, layer_name, layer, window, read, merged)
    previous = form.operations[source] if source >= 0 else None
    last = len(shape) - 1
    if previous is not None and previous.kind == "Linear" and set(cuts) == {last}:
        rows = list(cuts[last])
        linear = form.reader.layers[read].weights if read in form.reader.layers else {}
        if sorted(set(rows)) == rows and "weight" in linear:
            bias = linear["bias"][rows] if "bias" in linear else np.zeros(0)
            weight = linear["weight"][rows]
            return replace(
                previous,
                attributes={**previous.attributes, "weight": weight.shape},
                parameters=weight.size + bias.size,
                matrix=weight,
                nonzero_bias=bool(bias.any()) if bias.size else True,
            )
    found = [(shape[axis], indices) for axis, indices in cuts.items()]
    inputs: tuple[int, ...] = (source,)
    if previous is not None and previous.kind == "Slice":
        found, inputs = [*previous.attributes["indices"], *found], previous.inputs
    return form.make(name, "Slice", {"indices": sorted(found)}, inputs)


def _recurrent(form: _NormalForm, name: str, imported: ImportedLayer) -> Operation:
    """A bias that a node leaves out is none, though the layer has zeros."""
    operation, node = _by_attributes(form, name, imported), imported.node
    biased = node is None or (len(node.input) > 3 and bool(node.input[3]))
    count = operation.parameters - (0 if biased else imported.weights["bias"].size)
    return replace(operation, attributes={**operation.attributes, "bias": biased}, parameters=count)


def _opaque(form: _NormalForm, name: str, imported: ImportedLayer) -> Operation:
    layer: Any = imported.layer
    return form.make(name, layer.operator, dict(layer.attributes))


def _attributes(layer: Any, read: Shape, value: Shape) -> Attributes:
    """The attributes of a layer without a rule of its own: fields, and what depends on shapes.

    Args:
        read, value: shapes of what the layer reads first, and of its value, with the batch.
    """
    fields = msgspec.structs.asdict(layer).items()
    attributes = {name: number for name, number in fields if name not in _UNCOUNTED}
    sizes = _SIZES.get(type(layer))
    return attributes if sizes is None else attributes | sizes(layer, read, value)


def _by_attributes(form: _NormalForm, name: str, imported: ImportedLayer) -> Operation:
    """An operation of a kind of its own, whose parameters are all numbers of the layer."""
    layer: Any = imported.layer
    attributes = _attributes(layer, form.shape(imported.inputs[0]), imported.shape)
    attributes = {
        key: six_digits(value) if isinstance(value, float) else value
        for key, value in attributes.items()
    }
    kind = _KINDS.get(type(layer), getattr(layer, "function", "").title() or type(layer).__name__)
    kind = f"Log{kind}" if getattr(layer, "log", False) else kind
    count = sum(array.size for array in imported.weights.values())
    return form.make(name, kind, attributes, parameters=count)


def _padding(layer: L.Pad, read: Shape, value: Shape) -> Attributes:
    axes = len(read) - 1
    pads = zip(read[1:], layer.pads[:axes], layer.pads[axes:])
    return {"pads": sorted(one for one in pads if any(one[1:])), "value": layer.value}


def _kept(layer: Any, read: Shape, value: Shape) -> Attributes:
    kept = np.broadcast_to(kept_places(layer), value[1:])
    return {"kept": int(kept.sum()), "value": layer.value}


#: Operators of layers that are not named like them.
_KINDS: dict[type, str] = {
    L.BatchNorm: "BatchNormalization",
    L.GELU: "Gelu",
    L.GroupNorm: "GroupNormalization",
    L.LayerNorm: "LayerNormalization",
    L.Mask: "Where",
    L.PReLU: "PRelu",
    L.RMSNorm: "RMSNormalization",
}
#: Fields of layers that say where, how they train, or what sizes say instead.
_UNCOUNTED = frozenset(("axis", "function", "init", "log", "momentum", "shared", "sizes"))
#: Attributes of layers that depend on shapes.
_SIZES: dict[type, Callable[[Any, Shape, Shape], Attributes]] = {
    **dict.fromkeys((L.BatchNorm, L.GroupNorm), lambda layer, read, value: {"channels": value[1]}),
    # With one feature, only the bias has an effect, whatever epsilon is.
    L.LayerNorm: lambda layer, read, value: {
        "features": value[-1],
        "epsilon": layer.epsilon if value[-1] > 1 else None,
    },
    L.RMSNorm: lambda layer, read, value: {"features": value[-1]},
    L.PReLU: lambda layer, read, value: {"slopes": 1 if layer.shared else value[1]},
    L.Mask: _kept,
    L.Softmax: lambda layer, read, value: {"of": value[layer.axis]},
    L.MatMul: lambda layer, read, value: {"of": read[-1]},
    L.Pad: _padding,
    **dict.fromkeys((L.LSTM, L.GRU, L.RNN), lambda layer, read, value: {"features": read[-1]}),
}
_RULES: dict[type, Callable[[_NormalForm, str, ImportedLayer], Operation | int]] = {
    **dict.fromkeys((L.Conv, L.MaxPool, L.AveragePool), _windowed),
    L.GlobalAveragePool: _global_average,
    L.ConvTranspose: _conv_transpose,
    L.Linear: _linear,
    L.Embedding: _embedding,
    L.Attention: _attention,
    L.ReLU: lambda form, name, imported: _limit(form, name, imported, 0.0, math.inf),
    L.ReLU6: lambda form, name, imported: _limit(form, name, imported, 0.0, 6.0),
    L.Elementwise: _elementwise,
    **dict.fromkeys((L.Scale, L.Shift), _scale_or_shift),
    L.PositionEmbedding: _position_embedding,
    L.Resize: _resize,
    **dict.fromkeys((L.Reduce, L.ReduceMean), _reduce),
    L.TopK: _top_k,
    L.GatherElements: _gather_elements,
    L.Where: _where,
    L.Concat: _concat,
    **dict.fromkeys(_SELECTING, _select),
    **dict.fromkeys((L.LSTM, L.GRU, L.RNN), _recurrent),
    Opaque: _opaque,
}
