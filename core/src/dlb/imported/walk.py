"""A graph walked from its input to its logits: which layer each value is of."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import onnx

from dlb.graph.blocks import Block
from dlb.graph.layout import LAYOUT, rearranged
from dlb.graph.operations import reader_of
from dlb.graph.trace import Trace, attributes_of
from dlb.imported.values import (
    Held,
    Shape,
    arranged,
    arranging,
    axes_of,
    features_of,
    positions,
)
from dlb.workload.layers import Flatten, Layer, Transpose
from dlb.workload.model import Node

__all__ = ["Joined", "Made", "Mixed", "NotCovered", "ReadAnew", "Rule", "Walk", "called"]

Array = npt.NDArray[Any]

#: Operators that may leave their first input as it was.
_MAY_COPY = {"Cast", "CastLike", "Expand", "Pad", "Slice", "Tile"}


class NotCovered(Exception):
    """Why an operator is not read, beginning with its node."""


class ReadAnew(Exception):
    """The input has to be understood in another way.

    Attributes:
        axes: of the file's input, in the order in which a layer reads them; None as before.
        index: whether it is integers that an embedding looks up.
    """

    def __init__(self, axes: tuple[int, ...] | None = None, index: bool = False) -> None:
        super().__init__()
        self.axes = axes
        self.index = index


@dataclass(frozen=True)
class Mixed:
    """An attention whose last linear map is still to come."""

    heads: int
    causal: bool


@dataclass(frozen=True)
class Joined:
    """A sequence with constant steps around it, whose table of positions is still to come."""


@dataclass(frozen=True)
class Made:
    """A layer that was read.

    Attributes:
        layer: what it is; None for the input.
        inputs: names of layers, or of the input.
        weights: its parameters and states by name, float64, in canonical layout.
        shape: of its value, [N, ...].
    """

    layer: Layer | Mixed | Joined | None
    inputs: tuple[str, ...]
    weights: Mapping[str, Array]
    shape: Shape


Rule = Callable[["Walk", onnx.NodeProto, Mapping[str, Any]], Held]


def called(node: onnx.NodeProto) -> str:
    """A node in messages."""
    return f"node '{node.name or node.output[0]}' ({node.op_type})"


class Walk:
    """What was read of a graph so far.

    Args:
        traced: the graph, run once in float64 with one input.
        rules: by operator.
        opset: that its operators are of.
        axes: of the file's input, in the order in which the model reads them.
        kind: of the model's input.

    Attributes:
        made: the layers by name, the input first.
        meant: constants of the file that are read as what was meant, not as they are rounded, by name.
    """

    def __init__(
        self,
        traced: Trace,
        rules: Mapping[str, Rule],
        opset: int,
        axes: tuple[int, ...],
        kind: Literal["real", "index"],
    ) -> None:
        self.trace = traced
        self.rules = rules
        self.opset = opset
        self.axes = axes
        self.kind = kind
        self.made: dict[str, Made] = {}
        self.meant: dict[str, float | Array] = {}
        self._held: dict[str, Held] = {}
        self._unread: dict[str, str] = {}
        self._was: dict[str, Made] = {}
        self._flat: dict[str, str] = {}
        self._laid: dict[tuple[str, Shape, bytes], str] = {}
        self._reads = Counter(
            name
            for node in traced.nodes
            if not traced.live.isdisjoint(node.output)
            for name in node.input
        )
        self._reads.update(traced.outputs)
        given = traced.inputs[0]
        shape = tuple(traced.values[given].shape[axis] for axis in axes)
        self.input = self.new(given, None, (), {}, shape)
        places = positions(shape).transpose(np.argsort(axes))
        self._held[given] = arranged(self.input, places, shape)

    def read(self, logits: str, *, any_output: bool = False) -> str:
        """Read every node; the layer that gives the logits.

        Args:
            any_output: take any value for logits that a layer computes, flattened if it is a map.

        Raises:
            NotCovered: what they are made of cannot be described.
            ReadAnew: the input has another meaning.
        """
        for node in self.trace.nodes:
            outputs = [name for name in node.output if name in self.trace.live]
            if not outputs:
                continue
            try:
                if not node.output[0]:
                    raise NotCovered(f"{called(node)}: without its first output")
                held = self._read(node)
            except NotCovered as reason:
                # What it works on may be what is not covered; but parts of a block never are.
                unread = [] if node.output[0] in self.blocks else node.input[:1]
                told = next((self._unread[name] for name in unread if name in self._unread), reason)
                self._unread.update(dict.fromkeys(outputs, str(told)))
                continue
            self._held[node.output[0]] = held
            self._was[node.output[0]] = self.made[held.layer]
            for place, name in enumerate(node.output[1:], start=2):
                self._unread[name] = f"{called(node)}: its output {place} is not covered"
        last = self.of(logits)
        shape = self.made[last.layer].shape
        if any_output:
            return self._whole(last, logits)
        if len(shape) == 4 and shape[2:] == (1, 1):
            last = self._flattened(last, positions((shape[0], shape[1])), "logits")
            return last.layer
        if len(shape) not in (2, 3) or last.layer == self.input:
            raise NotCovered(
                f"'{logits}' holds {list(self.trace.values[logits].shape)} numbers, which are no "
                "logits [N, classes] or [N, T, classes]"
            )
        places = self.places(logits)
        if places.ndim == len(shape) and features_of(places, shape, flat=False) is None:
            last = self.laid_out(logits)
            places, shape = self.places_of(last), self.made[last.layer].shape
        if places.shape[-1] != shape[-1]:
            places = places.reshape(shape)
        found = features_of(places, shape, flat=False)
        if found is None or not np.array_equal(found[1], np.arange(shape[-1])):
            raise NotCovered(f"'{logits}': the classes are in another order than the layer's")
        return last.layer

    def _whole(self, last: Held, name: str) -> str:
        """The layer that gives every number of a value, flattened if it is a map."""
        shape = self.made[last.layer].shape
        if last.layer == self.input:
            raise NotCovered(f"'{name}' is the input, at most in another order: no layer is read")
        if len(shape) > 4:
            raise NotCovered(f"'{name}': {list(shape)} is neither a map, a sequence nor features")
        if not np.array_equal(np.sort(self.places(name), axis=None), np.arange(math.prod(shape))):
            raise NotCovered(
                f"'{name}' has some of the numbers of layer '{last.layer}', not each once"
            )
        if len(shape) == 4:
            return self._flattened(last, positions(shape[:2]), "logits").layer
        return last.layer

    def _read(self, node: onnx.NodeProto) -> Held:
        copied = self._copied(node)
        if copied is not None:
            return copied
        block = self.blocks.get(node.output[0])
        rule = self.rules.get(node.op_type if block is None else block.kind)
        if rule is None:
            raise NotCovered(f"{called(node)}: no layer of dlb is this operator")
        return rule(self, node, attributes_of(node))

    def _copied(self, node: onnx.NodeProto) -> Held | None:
        """The value of a node that computes nothing."""
        if not node.input:
            return None
        first, value = node.input[0], self.trace.values[node.output[0]]
        if node.op_type in LAYOUT and first in self.trace.live:
            held, places = self.of(first), self.places(first)
            if node.op_type == "Transpose":
                places = places.transpose(attributes_of(node).get("perm"))
            return arranged(held.layer, places.reshape(value.shape), self.made[held.layer].shape)
        order = rearranged(self.trace, node)
        if order is not None:
            held, places = self.of(first), self.places(first)
            shape = self.made[held.layer].shape
            sample = math.prod(shape[1:])
            if np.array_equal(places[order].ravel() // sample, places // sample):
                return arranged(held.layer, places[order], shape)
        if value.dtype.kind in "iu" or node.op_type in _MAY_COPY:
            # Arithmetic on indices that leaves every index as it was; casts of indices to numbers.
            for name in dict.fromkeys((first, *self.trace.inputs)):
                before = self.trace.values.get(name)
                if name in self._held and before is not None and np.array_equal(value, before):
                    return self._held[name]
        return None

    def of(self, name: str) -> Held:
        """What a value is.

        Raises:
            NotCovered: it is a constant, or made by what is not covered.
        """
        if name in self._unread:
            raise NotCovered(self._unread[name])
        if name not in self._held:
            raise NotCovered(f"'{name}' is a constant where a layer's value is needed")
        return self._held[name]

    @cached_property
    def blocks(self) -> dict[str, Block]:
        """Layers that are written out as several operators, by the name of their last value."""
        return reader_of(self.trace).blocks

    def was(self, name: str) -> Made:
        """The layer that a value is of, before later operators were taken into it."""
        self.of(name)
        return self._was[name]

    def undo(self, name: str) -> None:
        """Let the layer of a value be what it was before later operators were taken into it: they are
        part of another layer."""
        if name in self._was:
            self.made[self.of(name).layer] = self._was[name]

    def places(self, name: str) -> Array:
        """The positions of a value's numbers, in its shape."""
        places = self.of(name).places
        return positions(self.trace.values[name].shape) if places is None else places

    def shape(self, held: Held) -> Shape:
        """Of the canonical value [N, ...] of the layer that a value is of."""
        return self.made[held.layer].shape

    def elementwise(self, name: str) -> Held:
        """What a value is, as an operator reads it that takes every number by itself: a map that
        was flattened is one."""
        held = self.of(name)
        shape, places = self.shape(held), self.places(name)
        if places.ndim == 2 and len(shape) > 2 and features_of(places, shape, flat=True):
            return self._flattened(held, places, name)
        return held

    def features(self, node: onnx.NodeProto, name: str) -> tuple[str, Array, Array]:
        """The layer that a matrix multiplies, and what rows and features a value has of it, as
        :func:`~dlb.imported.values.features_of`."""
        held = self.elementwise(name)
        shape = self.shape(held)
        places = self.places(name) if held.places is None else held.places
        found = features_of(places, shape, flat=False) if len(shape) in (2, 3) else None
        if found is None:
            # Of a map, channels last, the rows of all its places are one sequence.
            held = self.laid_out(name, rows=places.ndim == 4)
            places, shape = self.places_of(held), self.shape(held)
            found = features_of(places, shape, flat=False) if len(shape) in (2, 3) else None
        if found is None:
            raise NotCovered(
                f"{called(node)}: reads {list(self.trace.values[name].shape)} of layer "
                f"'{held.layer}' {list(shape)} in an order that no flatten gives"
            )
        return held.layer, *found

    def as_map(self, node: onnx.NodeProto, name: str, inside: Shape | None = None) -> Held:
        """What a value is, if it is a map [N, C, H, W].

        Args:
            inside: the map's shape, if only the operator's order of axes tells it.

        Raises:
            ReadAnew: it is the input with its axes in another order.
        """
        held = self.of(name)
        shape, places = self.shape(held), self.places(name)
        axes = axes_of(places, shape)
        if inside is not None and axes is not None and len(axes) == 4:
            turned = [
                tuple(axes[k] for k in order)
                for order in ((0, 1, 2, 3), (0, 3, 1, 2))
                if tuple(places.shape[k] for k in order) == inside
            ]
            axes = min(turned, default=None)
        if axes is None and inside is None and places.ndim == 4:
            held = self.laid_out(name)
            if held.places is None:
                return held
        if len(shape) != 4 or axes is None:
            by = self.trace.producers.get(name)
            raise NotCovered(
                f"{called(by or node)}: {list(self.trace.values[name].shape)} of the numbers of "
                f"layer '{held.layer}' {list(shape)}, in an order that no layer gives"
            )
        if axes != (0, 1, 2, 3):
            if held.layer == self.input and axes[0] == 0:
                raise ReadAnew(axes=tuple(self.axes[axis] for axis in axes))
            laid = self.laid_out(name)
            if inside is None and laid.places is None:
                return laid
            raise NotCovered(f"{called(node)}: reads a map whose axes are in another order")
        return Held(held.layer)

    def places_of(self, held: Held) -> Array:
        """Positions, in the shape of its layer's value where it is arranged as that is."""
        return positions(self.shape(held)) if held.places is None else held.places

    def laid_out(self, name: str, axes: Sequence[int] | None = None, *, rows: bool = False) -> Held:
        """A value as layers arrange it that reshape and transpose each sample, if they can.

        Args:
            axes: of the value, in the order in which a layer reads it.
            rows: all axes between the batch and the last as one.

        Returns:
            of a layer whose own value is the file's; what the value was where none can.
        """
        held, places = self.of(name), self.places(name)
        places = places if axes is None else places.transpose(axes)
        if rows:
            places = places.reshape(len(places), -1, places.shape[-1])
        key = (held.layer, places.shape, places.tobytes())
        if key not in self._laid:
            layers = arranging(places, self.shape(held))
            if layers is None or not layers:
                return held
            names = self._arrangers(name)
            layer = held.layer
            for each in layers:
                kind = "Transpose" if isinstance(each, Transpose) else "Reshape"
                shape = self.made[layer].shape
                shape = (
                    (shape[0], *(shape[axis] for axis in each.axes))
                    if isinstance(each, Transpose)
                    else (shape[0], *each.shape)
                )
                wanted = names[kind].pop(0) if names[kind] else f"{layer}_{kind}"
                layer = self.new(wanted, each, (layer,), {}, shape)
            self._laid[key] = layer
        return Held(self._laid[key])

    def _arrangers(self, name: str) -> dict[str, list[str]]:
        """Names of the nodes that arranged a value, in order."""
        found: dict[str, list[str]] = {"Transpose": [], "Reshape": []}
        layer = self.of(name).layer
        while name in self.trace.producers:
            node = self.trace.producers[name]
            if node.op_type not in LAYOUT or self.of(node.input[0]).layer != layer:
                break
            kind = "Transpose" if node.op_type == "Transpose" else "Reshape"
            found[kind].insert(0, node.name or node.output[0])
            name = node.input[0]
        return found

    def alone(self, name: str) -> bool:
        """Whether nothing else reads the numbers of a value's layer."""
        layer = self.of(name).layer
        while self._reads[name] == 1:
            node = self.trace.producers.get(name)
            if node is None or node.op_type not in LAYOUT or self.of(node.input[0]).layer != layer:
                return node is not None
            name = node.input[0]
        return False

    def add(
        self,
        node: onnx.NodeProto,
        layer: Layer,
        inputs: Sequence[str],
        shape: Shape,
        weights: Mapping[str, Array] | None = None,
    ) -> str:
        """A layer called after its node; its name."""
        return self.new(node.name or node.output[0], layer, tuple(inputs), weights or {}, shape)

    def new(
        self,
        wanted: str,
        layer: Layer | Mixed | Joined | None,
        inputs: tuple[str, ...],
        weights: Mapping[str, Array],
        shape: Shape,
    ) -> str:
        """A layer by a name made valid: letters, digits and underscores, whatever their case."""
        base = re.sub(r"[^A-Za-z0-9]+", "_", wanted).strip("_") or "layer"
        base = base if base[0].isalpha() else f"n{base}"
        # The loss has names of its own, and frameworks count those that are alike.
        taken = {"labels", "loss", *(name.lower() for name in self.made)}
        name, number = base, 2
        while name.lower() in taken:
            name, number = f"{base}_{number}", number + 1
        self.made[name] = Made(layer, inputs, weights, shape)
        return name

    def change(self, name: str, **changes: Any) -> None:
        """Change a layer that was read."""
        self.made[name] = replace(self.made[name], **changes)

    def _flattened(self, held: Held, places: Array, name: str) -> Held:
        """A flatten layer after the layer of a value, one for all who read it so."""
        if held.layer not in self._flat:
            shape = self.made[held.layer].shape
            whole = (shape[0], int(np.prod(shape[1:])))
            node = self.trace.producers.get(name)
            wanted = (node.name or node.output[0]) if node else f"{held.layer}_flatten"
            self._flat[held.layer] = self.new(wanted, Flatten(), (held.layer,), {}, whole)
        flat = self._flat[held.layer]
        return arranged(flat, places, self.made[flat].shape)

    def nodes(self, last: str) -> tuple[tuple[Node, ...], dict[str, Array]]:
        """The layers that lead to one, in order, and their weights by ``layer.parameter``."""
        kept, waiting = set(), [last]
        while waiting:
            name = waiting.pop()
            if name not in kept:
                kept.add(name)
                waiting += self.made[name].inputs
        nodes, weights = [], {}
        for name, made in self.made.items():
            if name not in kept or made.layer is None:
                continue
            if isinstance(made.layer, Mixed):
                raise NotCovered(f"'{name}': attention without a linear map of its own behind it")
            if isinstance(made.layer, Joined):
                raise NotCovered(
                    f"'{made.inputs[0]}' (Concat): joins constants to a sequence; only where a table "
                    "is added to all of it, as with a class token, are they learned as part of that"
                )
            nodes.append(Node(name=name, layer=made.layer, inputs=made.inputs))
            weights.update({f"{name}.{key}": each for key, each in made.weights.items()})
        return tuple(nodes), weights
