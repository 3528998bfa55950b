"""Reads a graph from its input to its logits: the layer that each value comes from."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import onnx

from dlb_graph.layers import (
    Embedding,
    Flatten,
    Gather,
    Layer,
    PositionEmbedding,
    Reshape,
    Select,
    Slice,
    Transpose,
)
from dlb_graph.layers.numbers import Array
from dlb_graph.reading.layers import (
    BlockMisread,
    ImportedLayer,
    InputMisread,
    PendingAttention,
    PendingConcat,
    UnsupportedNode,
    unsupported,
)
from dlb_graph.reading.views import (
    Shape,
    ValueView,
    axes_of,
    features_of,
    layout_layers,
    positions,
    rows_by_sample,
    view_of,
)
from dlb_graph.truth.block_search import run_nodes
from dlb_graph.truth.copies import copied_value, moves_numbers
from dlb_graph.truth.layout import LAYOUT, REPEATING, SELECTING, gather_permutation
from dlb_graph.truth.lookups import between_lookups
from dlb_graph.truth.operators import ACTIVATIONS
from dlb_graph.truth.recognised import Block, Recognised
from dlb_graph.truth.trace import attributes_of
from dlb_graph.truth.weights import weight_places
from dlb_graph.workload.model import Node

__all__ = ["Attributes", "Importer", "Rule"]


#: Operators that select numbers, and layers that select or reorder them.
_PICKING = ("Gather", "Slice", *SELECTING, *REPEATING)
_PARTS = (Flatten, Gather, Reshape, Select, Slice, Transpose)
#: Of a node, as written.
Attributes = Mapping[str, Any]
Rule = Callable[["Importer", onnx.NodeProto, Attributes], ValueView]


class Importer:
    """Reads the nodes of a graph as layers.

    Args:
        recognised: in the graph, run once in float64 with one input.
        rules: the rule for each operator.
        opset: the graph's operator set.
        axes: of the file's input, in the order in which the model reads them.
        kind: of the model's input.
        unread: outputs of blocks that are read operator by operator.

    Attributes:
        layers: the layers by name, the input first.
        nominal_values: exact values, by name, of constants that the file keeps rounded.
        nominal_of: the same of those that belong to one layer, by its name.
    """

    #: What a rule raises about a node that it cannot read.
    refusals: tuple[type[Exception], ...] = (UnsupportedNode,)

    def __init__(
        self,
        recognised: Recognised,
        rules: Mapping[str, Rule],
        opset: int,
        axes: tuple[int, ...],
        kind: Literal["real", "index"],
        unread: frozenset[str] = frozenset(),
    ) -> None:
        trace = recognised.trace
        self.recognised, self.trace = recognised, trace
        self.rules = rules
        self.opset = opset
        self.axes = axes
        self.kind = kind
        #: Layers that the file decomposes into several operators, by the name of their output.
        self.blocks: dict[str, Block] = {
            name: block for name, block in recognised.blocks.items() if name not in unread
        }
        self.layers: dict[str, ImportedLayer] = {}
        # The loss reserves two names, and frameworks ignore case or number equal names.
        self._used_names = {"labels", "loss"}
        self.nominal_values: dict[str, float | Array] = {}
        self.nominal_of: dict[str, dict[str, float]] = {}
        #: Values of indices that nothing reads but what selects by them.
        self.of_lookups = between_lookups(trace)
        self._views: dict[str, ValueView] = {}
        self._unsupported: dict[str, str] = {}
        self._before_fusion: dict[str, ImportedLayer] = {}
        self._flatten_layers: dict[str, str] = {}
        self._materialised: dict[tuple[str, Shape, bytes], str] = {}
        self._read_counts = Counter(
            name
            for node in trace.nodes
            if not trace.live.isdisjoint(node.output)
            for name in node.input
        )
        self._read_counts.update(trace.outputs)
        input_name = trace.inputs[0]
        shape = tuple(trace.values[input_name].shape[axis] for axis in axes)
        self.input = self.add_named(input_name, None, (), {}, shape)
        index_map = positions(shape).transpose(np.argsort(axes))
        self._views[input_name] = view_of(self.input, index_map, shape)

    def read(self, output: str, *, moved: bool = False) -> tuple[ValueView, bool]:
        """Read every node, and find the layer that computes the output.

        Args:
            moved: whether a layer is made of an output that is the input, perhaps reordered.

        Returns:
            the output as a view of the last layer's whole value, and whether that value is logits in the
            output's order: [N, classes] or [N, T, classes]. A map is flattened.

        Raises:
            UnsupportedNode: the output depends on an operator that cannot be read.
            InputMisread: the input must be read in another way.
        """
        self.read_nodes()
        last = self.view(output)
        if last.layer == self.input and moved and self.kind == "real":
            layer = Reshape(shape=self.shape(last)[1:])
            name = self.add_named(f"{output}_moved", layer, (last.layer,), {}, self.shape(last))
            last = view_of(name, self.index_map(output), self.shape(last))
            self._views[output] = last
        if last.layer == self.input:
            raise UnsupportedNode(
                f"output '{output}' is the input, perhaps reordered: the file has no layer"
            )
        logits = self._logits(last, output)
        return (self._whole_value(last, output), False) if logits is None else (logits, True)

    def read_nodes(self) -> None:
        """Read every node.

        Raises:
            InputMisread: the input must be read in another way.
        """
        for node in self.trace.nodes:
            live_outputs = [name for name in node.output if name in self.trace.live]
            if not live_outputs:
                continue
            try:
                if not node.output[0] and node.op_type not in ACTIVATIONS:
                    raise unsupported(node, "its first output is left out")
                view = self._read(node)
            except self.refusals as reason:
                self._refuse(node, live_outputs, reason)
                continue
            self._views[node.output[0]] = view
            self._before_fusion[node.output[0]] = self.layers[view.layer]
            for number, name in enumerate(node.output[1:], start=2):
                if name not in self._views and name in live_outputs:
                    what = f"its output {number} is not supported"
                    self._refuse(node, [name], unsupported(node, what))

    def _refuse(self, node: onnx.NodeProto, outputs: Sequence[str], reason: Exception) -> None:
        """Keep why outputs of a node cannot be read.

        Report the node before it, if that is the cause. A block's own nodes are not read alone.
        """
        unread = [] if node.output[0] in self.blocks else node.input[:1]
        causes = (self._unsupported[name] for name in unread if name in self._unsupported)
        self._unsupported.update(dict.fromkeys(outputs, next(causes, str(reason))))

    def _logits(self, last: ValueView, name: str) -> ValueView | None:
        """A value as a view of logits; None if it is none."""
        shape, index_map = self.layers[last.layer].shape, self.index_map(name)
        if len(shape) in (4, 5) and set(shape[2:]) == {1}:
            layer = self._flattened(last, positions(shape[:2]), "logits").layer
            return view_of(layer, index_map, self.layers[layer].shape)
        if len(shape) not in (2, 3) or not index_map.ndim or index_map.size != math.prod(shape):
            return None
        if index_map.ndim == len(shape) and features_of(index_map, shape, flat=False) is None:
            last = self.materialise_layout(name)
            index_map, shape = self.index_map_of(last), self.layers[last.layer].shape
        rows = index_map.reshape(shape) if index_map.shape[-1] != shape[-1] else index_map
        features = features_of(rows, shape, flat=False)
        if features is None or not np.array_equal(features[1], np.arange(shape[-1])):
            return None
        return view_of(last.layer, index_map, shape)

    def _whole_value(self, last: ValueView, name: str) -> ValueView:
        """A view of the layer that computes a whole value, flattened if it is a map."""
        shape, index_map = self.layers[last.layer].shape, self.index_map(name)
        if not np.array_equal(np.sort(index_map, axis=None), np.arange(math.prod(shape))):
            raise UnsupportedNode(
                f"output '{name}' must have every number of layer '{last.layer}' once"
            )
        if len(shape) > 3:
            layer = self._flattened(last, positions(shape[:2]), "logits").layer
            return view_of(layer, index_map, self.layers[layer].shape)
        return last

    def _read(self, node: onnx.NodeProto) -> ValueView:
        view = self._passed_through(node)
        if view is not None:
            return view
        block = self.blocks.get(node.output[0])
        kinds = [node.op_type] if block is None else [block.kind, node.op_type]
        reasons = []
        for rule in [self.rules[kind] for kind in kinds if kind in self.rules]:
            try:
                return rule(self, node, attributes_of(node))
            except UnsupportedNode as reason:
                reasons.append(reason)
        raise reasons[0] if reasons else unsupported(node, "dlb has no layer for this operator")

    def also(self, name: str, view: ValueView) -> None:
        """Keep the view of an output other than the first of the node that a rule reads."""
        self._views[name] = view
        self._before_fusion[name] = self.layers[view.layer]

    def raised(self, name: str, rank: int) -> str:
        """The name of a value with axes of size 1 before its own, as it is next to one with more."""
        value = self.trace.values[name]
        return self.reshaped(name, (1,) * (rank - value.ndim) + value.shape)

    def reshaped(self, name: str, shape: Shape) -> str:
        """The name of a value in another shape."""
        value = self.trace.values[name]
        if value.shape == shape:
            return name
        raised = f"{name}/{'x'.join(map(str, shape))}"
        if raised not in self._views:
            self.trace.values[raised] = value.reshape(shape)
            self.also(raised, ValueView(self.view(name).layer, self.index_map(name).reshape(shape)))
        return raised

    def _passed_through(self, node: onnx.NodeProto) -> ValueView | None:
        """The view of a node's output if the node only moves or copies numbers, else None."""
        if not node.input or not node.output[0]:
            return None
        source, value = node.input[0], self.trace.values[node.output[0]]
        if moves_numbers(self.trace, node):
            view, index_map = self.view(source), self.index_map(source)
            if node.op_type == "Transpose":
                index_map = index_map.transpose(attributes_of(node).get("perm"))
            return view_of(
                view.layer, index_map.reshape(value.shape), self.layers[view.layer].shape
            )
        permutation = gather_permutation(self.trace, node)
        if permutation is not None:
            view, index_map = self.view(source), self.index_map(source)
            shape = self.layers[view.layer].shape
            sample = math.prod(shape[1:])
            if np.array_equal(index_map[permutation].ravel() // sample, index_map // sample):
                return view_of(view.layer, index_map[permutation], shape)
        if self._is_of_indices(node):
            inputs = {name: self.trace.values[name] for name in node.input if name}
            inputs[source] = self.index_map(source)
            places = run_nodes(self.trace, [node], inputs, node.output[0])
            return ValueView(self.input, places.astype(np.int64))
        # A dropout is a layer, although it copies numbers here.
        copied = (
            None if node.op_type == "Dropout" else copied_value(self.trace, node, node.output[0])
        )
        return None if copied is None else self.view(copied)

    def view(self, name: str) -> ValueView:
        """The view of a value.

        Raises:
            UnsupportedNode: the value is a constant, or depends on an operator that cannot be read.
        """
        if name in self._unsupported:
            raise UnsupportedNode(self._unsupported[name])
        if name not in self._views:
            raise UnsupportedNode(f"'{name}' is a constant, where a layer's value is needed")
        return self._views[name]

    def _is_of_indices(self, node: onnx.NodeProto) -> bool:
        """Whether a node selects integers of the input in constant places."""
        view = self._views.get(node.input[0])
        selects = node.op_type in _PICKING and self.trace.live.isdisjoint(node.input[1:])
        return selects and self.kind == "index" and view is not None and view.layer == self.input

    def is_part_of_input(self, layer: str) -> bool:
        """Whether a layer's numbers are the input's, selected or reordered."""
        while layer != self.input and isinstance(self.layers[layer].layer, _PARTS):
            (layer,) = self.layers[layer].inputs
        return layer == self.input

    def before_fusion(self, name: str) -> ImportedLayer:
        """The layer of a value, as it was before later operators were fused into it."""
        self.view(name)
        return self._before_fusion[name]

    def revert_fusion(self, name: str) -> None:
        """Restore the layer of a value to what it was before later operators were fused into it.

        A rule calls this when those operators turn out to be part of another layer.
        """
        if name in self._before_fusion:
            self.layers[self.view(name).layer] = self._before_fusion[name]

    def index_map(self, name: str) -> Array:
        """The index map of a value, int64 in the value's shape."""
        index_map = self.view(name).index_map
        return positions(self.value_shape(name)) if index_map is None else index_map

    def shape(self, view: ValueView) -> Shape:
        """The canonical shape [N, ...] of the layer that a view belongs to."""
        return self.layers[view.layer].shape

    def weights(self, node: onnx.NodeProto) -> dict[str, Array]:
        """The weights of an operator that is a layer; see :func:`~dlb_graph.truth.weights.weight_places`.

        Raises:
            UnsupportedNode: one depends on the input.
        """
        places = weight_places(node, lambda name: name not in self.trace.live)
        if places is None:
            raise unsupported(node, "its weights depend on the input")
        values = self.trace.values
        return {role: place.read(values[place.constant]) for role, place in places.items()}

    def value_shape(self, name: str) -> Shape:
        """The shape of a value of the file."""
        return self.trace.values[name].shape

    def elementwise(self, name: str) -> ValueView:
        """The view of a value for an elementwise operator. A flattened map gets a flatten layer."""
        view = self.view(name)
        shape, index_map = self.shape(view), view.index_map
        if index_map is None:
            return view
        if index_map.ndim == 2 and len(shape) > 2 and features_of(index_map, shape, flat=True):
            return self._flattened(view, index_map, name)
        return view

    def features(self, node: onnx.NodeProto, name: str) -> tuple[str, Array, Array]:
        """The layer that a matrix multiplies, with the rows and features that are read.

        Returns:
            the layer's name, and the arrays of :func:`~dlb_graph.reading.views.features_of`.

        Raises:
            UnsupportedNode: no flatten produces this order of the numbers.
        """
        view = self.elementwise(name)
        shape = self.shape(view)
        index_map = self.index_map_of(view)
        selected = features_of(index_map, shape, flat=False) if len(shape) in (2, 3) else None
        if selected is None:
            # Such as a map with channels last: its pixels are the steps of one sequence.
            view, rows = self._rows(name)
            shape = self.shape(view)
            if rows is not None:
                selected = rows, np.arange(shape[-1])
        if selected is None:
            raise unsupported(
                node,
                f"reads {list(self.value_shape(name))} of layer '{view.layer}' {list(shape)} in an "
                "order that no flatten produces",
            )
        return view.layer, *selected

    def _rows(self, name: str) -> tuple[ValueView, Array | None]:
        """A sequence of all rows that a sample has of a value's last axis, and where each row of the value is.

        The rows are None if no layers produce such a sequence.
        """
        view, index_map = self.view(name), self.index_map(name)
        batch, *sample = self.shape(view)
        features = index_map.shape[-1] if index_map.ndim else 0
        if not features or math.prod(sample) % features:
            return view, None
        rows = index_map.reshape(-1, features)
        order = rows_by_sample(rows[:, 0] // math.prod(sample), batch)
        if order is None or len(rows) * features != batch * math.prod(sample):
            return view, None
        arranged = rows[order].reshape(batch, -1, features)
        if arranged.shape[1] == 1 and index_map.ndim == 2:
            arranged = arranged[:, 0]
        view = self.materialise(name, arranged)
        if view.index_map is not None or self.shape(view) != arranged.shape:
            return view, None
        return view, np.argsort(order)

    def as_map(self, node: onnx.NodeProto, name: str, map_shape: Shape | None = None) -> ValueView:
        """The view of a value that is a feature map [N, C, H, W] or [N, C, D, H, W].

        Args:
            map_shape: the map's shape, if only the operator's order of axes shows it.

        Raises:
            InputMisread: the value is the input with its axes in another order.
            UnsupportedNode: the value is no map, or no layer produces its order.
        """
        view = self.view(name)
        shape, rank = self.shape(view), len(self.shape(view))
        if view.index_map is None and rank in (4, 5) and map_shape in (None, shape):
            return view
        index_map = self.index_map(name)
        axes = axes_of(index_map, shape)
        if map_shape is not None and axes is not None and rank in (4, 5):
            orders = [
                tuple(axes[k] for k in order)
                for order in (tuple(range(rank)), (0, rank - 1, *range(1, rank - 1)))
                if tuple(index_map.shape[k] for k in order) == map_shape
            ]
            axes = min(orders, default=None)
        if axes is None and map_shape in (None, index_map.shape) and index_map.ndim in (4, 5):
            view = self.materialise_layout(name)
            if view.index_map is None:
                return view
        if rank not in (4, 5) or axes is None:
            producer = self.trace.producers.get(name)
            raise unsupported(
                producer or node,
                f"{list(self.value_shape(name))} has the numbers of layer '{view.layer}' "
                f"{list(shape)} in an order that no layer produces",
            )
        if axes != tuple(range(rank)):
            if view.layer == self.input and axes[0] == 0:
                raise InputMisread(axes=tuple(self.axes[axis] for axis in axes))
            materialised = self.materialise_layout(name)
            if map_shape is None and materialised.index_map is None:
                return materialised
            raise unsupported(node, "reads a map whose axes are in an unsupported order")
        return ValueView(view.layer)

    def index_map_of(self, view: ValueView) -> Array:
        """The index map of a view; for a view without one, in the layer's canonical shape."""
        return positions(self.shape(view)) if view.index_map is None else view.index_map

    def materialise_layout(
        self,
        name: str,
        axes: Sequence[int] | None = None,
        *,
        rows: bool = False,
        width: bool = False,
    ) -> ValueView:
        """Add the reshape and transpose layers whose output has a value's layout.

        Args:
            axes: of the value, in the order in which a layer reads it.
            rows: merge all axes between the batch and the last.
            width: add a last axis of size 1.

        Returns:
            the view of the last added layer; the value's own view if no such layers exist.
        """
        index_map = self.index_map(name)
        index_map = index_map if axes is None else index_map.transpose(axes)
        if rows:
            index_map = index_map.reshape(len(index_map), -1, index_map.shape[-1])
        if width:
            index_map = index_map[..., None]
        return self.materialise(name, index_map)

    def materialise(self, name: str, index_map: Array) -> ValueView:
        """The same for any order of the numbers of a value's layer: the value only names the layers."""
        view = self.view(name)
        key = (view.layer, index_map.shape, index_map.tobytes())
        if key not in self._materialised:
            layers = layout_layers(index_map, self.shape(view))
            if layers is None:
                layers = self._layers_through(name, index_map)
            if layers is None:
                return view
            names = self._layout_names(name)
            layer = view.layer
            for layout_layer in layers:
                operator = "Transpose" if isinstance(layout_layer, Transpose) else "Reshape"
                shape = self.layers[layer].shape
                shape = (
                    (shape[0], *(shape[axis] for axis in layout_layer.axes))
                    if isinstance(layout_layer, Transpose)
                    else (shape[0], *layout_layer.shape)
                )
                layer_name = names[operator].pop(0) if names[operator] else f"{layer}_{operator}"
                layer = self.add_named(layer_name, layout_layer, (layer,), {}, shape)
            self._materialised[key] = layer
        return ValueView(self._materialised[key])

    def _layers_through(self, name: str, index_map: Array) -> list[Reshape | Transpose] | None:
        """Layers to an order through that of an earlier value: windows of one size, then of another."""
        view = self.view(name)
        shape = self.shape(view)
        while name in self.trace.producers:
            node = self.trace.producers[name]
            if node.op_type not in LAYOUT or self.view(node.input[0]).layer != view.layer:
                return None
            name = node.input[0]
            between = self.index_map(name)
            first = layout_layers(between, shape)
            if first is None:
                continue
            places = np.empty(between.size, np.int64)
            places[between.ravel()] = np.arange(between.size)
            second = layout_layers(places[index_map], between.shape)
            if second is not None:
                return [*first, *second]
        return None

    def _layout_names(self, name: str) -> dict[str, list[str]]:
        """Names of the layout nodes behind a value, in order, for each kind of layer."""
        names: dict[str, list[str]] = {"Transpose": [], "Reshape": []}
        layer = self.view(name).layer
        while name in self.trace.producers:
            node = self.trace.producers[name]
            if node.op_type not in LAYOUT or self.view(node.input[0]).layer != layer:
                break
            kind = "Transpose" if node.op_type == "Transpose" else "Reshape"
            names[kind].insert(0, node.name or node.output[0])
            name = node.input[0]
        return names

    def has_one_reader(self, name: str) -> bool:
        """Whether only one node reads the numbers of a value's layer."""
        layer = self.view(name).layer
        while self._read_counts[name] == 1:
            node = self.trace.producers.get(name)
            if node is None:
                return False
            if node.op_type not in LAYOUT or self.view(node.input[0]).layer != layer:
                return True
            name = node.input[0]
        return False

    def is_rounded(self, name: str) -> bool:
        """Whether only operators that round read a value, in bounds or not: a number before is of a formula."""
        readers = [node for node in self.trace.nodes if name in node.input]
        return bool(readers) and all(
            node.op_type in ("Ceil", "Floor", "Round", "Sign")
            or (node.op_type == "Clip" and self.is_rounded(node.output[0]))
            for node in readers
        )

    def add(
        self,
        node: onnx.NodeProto,
        layer: Layer,
        inputs: Sequence[str],
        shape: Shape,
        weights: Mapping[str, Array] | None = None,
    ) -> str:
        """Add a layer named after its node, and return its name.

        Raises:
            UnsupportedNode: it reads the input's integers, which an embedding alone does.
        """
        if self.kind == "index" and self.input in inputs and not isinstance(layer, Embedding):
            raise unsupported(node, "computes with integers that look up rows of a table")
        name = node.name or node.output[0]
        return self.add_named(name, layer, tuple(inputs), weights or {}, shape, node)

    def apply(
        self,
        node: onnx.NodeProto,
        layer: Layer,
        view: ValueView,
        weights: Mapping[str, Array] | None = None,
    ) -> ValueView:
        """Add a layer whose value has the shape of what it reads, and keeps its layout."""
        name = self.add(node, layer, [view.layer], self.shape(view), weights)
        return ValueView(name, view.index_map)

    def value_of(
        self, node: onnx.NodeProto, layer: str, index_map: Array | None = None
    ) -> ValueView:
        """The view of a node's value: all numbers of a layer, in its order or at these places."""
        shape = self.layers[layer].shape
        places = positions(shape) if index_map is None else index_map
        return view_of(layer, places.reshape(self.value_shape(node.output[0])), shape)

    def add_named(
        self,
        proposed_name: str,
        layer: Layer | PendingAttention | PendingConcat | None,
        inputs: tuple[str, ...],
        weights: Mapping[str, Array],
        shape: Shape,
        node: onnx.NodeProto | None = None,
    ) -> str:
        """Add a layer, and return its name: the proposed one, made valid and unique."""
        name = self.unused_name(proposed_name)
        self.layers[name] = ImportedLayer(layer, inputs, weights, shape, proposed_name, node)
        return name

    def unused_name(self, proposed_name: str) -> str:
        """A proposed name of a layer, made valid and unique.

        A valid name has letters, digits and underscores only. Names must differ in more than case.
        """
        base = re.sub(r"[^A-Za-z0-9]+", "_", proposed_name).strip("_") or "layer"
        base = base if base[0].isalpha() else f"n{base}"
        name, number = base, 2
        while name.lower() in self._used_names:
            name, number = f"{base}_{number}", number + 1
        self._used_names.add(name.lower())
        return name

    def change(self, name: str, **changes: Any) -> None:
        """Replace fields of a layer that was read."""
        self.layers[name] = replace(self.layers[name], **changes)

    def _flattened(self, view: ValueView, index_map: Array, name: str) -> ValueView:
        """The view through a flatten layer after a view's layer. All readers share that layer."""
        if view.layer not in self._flatten_layers:
            shape = self.layers[view.layer].shape
            flat_shape = (shape[0], int(np.prod(shape[1:])))
            node = self.trace.producers.get(name)
            layer_name = (node.name or node.output[0]) if node else f"{view.layer}_flatten"
            self._flatten_layers[view.layer] = self.add_named(
                layer_name, Flatten(), (view.layer,), {}, flat_shape
            )
        flat_layer = self._flatten_layers[view.layer]
        return view_of(flat_layer, index_map, self.layers[flat_layer].shape)

    def nodes(self, last: str) -> tuple[tuple[Node, ...], dict[str, Array]]:
        """The layers that a layer depends on, in order, and their weights by ``layer.parameter``.

        Raises:
            BlockMisread: an attention among them has no output map.
        """
        needed, waiting = set(), [last]
        while waiting:
            name = waiting.pop()
            if name not in needed:
                needed.add(name)
                waiting += self.layers[name].inputs
        nodes, weights = [], {}
        for name, layer in self.layers.items():
            if name not in needed or layer.layer is None:
                continue
            if isinstance(layer.layer, PendingAttention):
                raise BlockMisread(layer.layer.output)
            # Constant steps to which no table is added are one, with zeros for all other steps.
            read = layer.layer
            if isinstance(read, PendingConcat):
                read = PositionEmbedding()
            nodes.append(Node(name=name, layer=read, inputs=layer.inputs))
            self.nominal_values.update(self.nominal_of.get(name, {}))
            weights.update({f"{name}.{key}": array for key, array in layer.weights.items()})
        return tuple(nodes), weights
