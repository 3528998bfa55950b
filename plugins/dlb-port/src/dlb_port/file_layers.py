"""The layers of an ONNX graph with the constants behind their weights, to match them with those of frameworks.

:mod:`dlb_graph.truth.weights` knows which operators are layers. Each is here as the file has it: with its
order of features, and with the bias that is added after it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from dlb_graph.truth.recognised import Block, Recognised
from dlb_graph.truth.trace import attributes_of
from dlb_graph.truth.weights import KINDS, WeightPlace, directions, weight_places

__all__ = ["FileLayer", "layers_of"]

Array = npt.NDArray[Any]

#: Operators that only change the shape of a value.
_RESHAPES = ("Flatten", "Reshape", "Squeeze", "Unsqueeze")
#: Inputs that are settings of an operator, not numbers that it computes with.
_SETTINGS = {
    "Clip", "ConstantOfShape", "Dropout", "Max", "Min", "OneHot", "Pad", "Range", "Resize", "Slice", "Split",
    "Tile", "TopK", "Upsample",
}  # fmt: skip


def _as_it_is(array: Array) -> Array:
    return array


@dataclass(frozen=True)
class FileLayer:
    """One node, or several that are one layer.

    Attributes:
        kind: the layer kind; "" if it is not known.
        nodes: the first one reads the layer's input, and the last one computes its output.
        roles: places of the parameters by role, or by the constant's name if the kind is not known.
        output: name of the output.
        canonical: a value that the layer reads or returns, in canonical layout.
    """

    kind: str
    nodes: tuple[onnx.NodeProto, ...]
    roles: Mapping[str, WeightPlace]
    output: str
    canonical: Callable[[Array], Array] = _as_it_is


def layers_of(
    model: onnx.ModelProto, constants: Mapping[str, Array], known: Recognised | None, live: set[str]
) -> list[FileLayer]:
    """The layers of a graph in the order in which they end.

    Args:
        constants: what nodes read and no input decides.
        known: what is recognised in the graph.
        live: names of the values that depend on inputs.
    """
    graph = _Graph(model, constants)
    layers = list(_normalisations(graph, known.blocks if known is not None else {}))
    taken = {id(node) for layer in layers for node in layer.nodes}
    for node in graph.nodes:
        layer = _layer_of(graph, node) if id(node) not in taken else None
        if layer is not None and (layer.roles or not live.isdisjoint(node.output)):
            layers.append(layer)
            taken |= {id(inner) for inner in layer.nodes}
    ends = {id(node): place for place, node in enumerate(graph.nodes)}
    return sorted(layers, key=lambda layer: ends[id(layer.nodes[-1])])


class _Graph:
    """The nodes of a graph, with the constants and the readers of every value."""

    def __init__(self, model: onnx.ModelProto, constants: Mapping[str, Array]) -> None:
        self.nodes, self.constants = list(model.graph.node), constants
        self.outputs = {value.name for value in model.graph.output}
        self.readers: dict[str, list[onnx.NodeProto]] = defaultdict(list)
        for node in self.nodes:
            for name in dict.fromkeys(node.input):
                self.readers[name].append(node)

    def is_number(self, name: str) -> bool:
        """Whether a value is a constant of real numbers."""
        return name in self.constants and self.constants[name].dtype.kind == "f"

    def constants_of(self, node: onnx.NodeProto) -> list[str]:
        """The constants of real numbers that a node reads, by name."""
        return list(filter(self.is_number, node.input))

    def only_reader(self, name: str) -> onnx.NodeProto | None:
        """The only node that reads a value; None if there are others, or the value is an output."""
        readers = self.readers[name]
        return readers[0] if len(readers) == 1 and name not in self.outputs else None


def _layer_of(graph: _Graph, node: onnx.NodeProto) -> FileLayer:
    """The layer that begins with a node. Its parameters have no roles if its kind is not known."""
    output = next((name for name in node.output if name), "")
    kind, attributes = KINDS.get(node.op_type, ""), attributes_of(node)
    places = weight_places(node, graph.is_number) or {}
    weights = {role: place.read(graph.constants[place.constant]) for role, place in places.items()}
    if not _is_layer(node, kind, attributes, weights):
        names = () if node.op_type in _SETTINGS else graph.constants_of(node)
        return FileLayer("", (node,), {name: WeightPlace(name) for name in names}, output)
    if kind in ("linear", "prelu"):
        places |= {role: _vector(x.constant) for role, x in places.items() if role != "weight"}
    layer = FileLayer(kind, (node,), places, output)
    if kind in ("gru", "lstm", "rnn"):
        return replace(layer, canonical=_samples_first(node, attributes))
    if "bias" in places or kind not in ("conv", "conv_transpose", "linear"):
        return layer
    shape, groups = weights["weight"].shape, attributes.get("group", 1)
    channels = shape[1] * groups if kind == "conv_transpose" else shape[0]
    return _with_bias(graph, layer, channels, len(shape) - 2)


def _vector(constant: str) -> WeightPlace:
    """A parameter with one number for each channel, whatever axes of size 1 its constant has."""
    return WeightPlace(constant, np.ravel)


def _is_layer(
    node: onnx.NodeProto, kind: str, attributes: Mapping[str, Any], weights: Mapping[str, Array]
) -> bool:
    """Whether an operator with these weights computes what the layers of frameworks do."""
    if kind == "linear" and weights:
        scaled = any(attributes.get(name, 1.0) != 1.0 for name in ("alpha", "beta"))
        weight, bias = weights["weight"], weights.get("bias")
        plain = weight.ndim == 2 and not scaled and not attributes.get("transA", 0)
        return plain and (bias is None or bias.size == len(weight))
    if kind == "prelu" and weights:
        return weights["slope"].size == max(weights["slope"].shape, default=1)
    if kind == "embedding" and weights:
        return weights["weight"].ndim == 2 and not attributes.get("axis", 0)
    # The input 7 of a recurrent operator is peepholes.
    return bool(kind and weights) and not any(node.input[7:])


def _with_bias(graph: _Graph, layer: FileLayer, size: int, trailing: int) -> FileLayer:
    """A layer with the sum of its value and a constant with one number for each channel, if that follows.

    Args:
        trailing: axes after the channels'. The value of one without any may have another shape before.
    """
    passed, output = [], layer.output
    node = graph.only_reader(output)
    while not trailing and node is not None and node.op_type in _RESHAPES:
        if node.input[0] != output:
            return layer
        passed.append(node)
        output = node.output[0]
        node = graph.only_reader(output)
    if node is None or node.op_type != "Add":
        return layer
    name = node.input[1 - list(node.input).index(output)]
    shape = graph.constants[name].shape if graph.is_number(name) else ()
    if math.prod(shape) != size or shape[: len(shape) - trailing][-1:] != (size,):
        return layer
    roles = {**layer.roles, "bias": _vector(name)}
    nodes = (*layer.nodes, *passed, node)
    return replace(layer, nodes=nodes, roles=roles, output=node.output[0])


def _samples_first(node: onnx.NodeProto, attributes: Mapping[str, Any]) -> Callable[[Array], Array]:
    """How a value of a recurrent operator becomes canonical."""
    sequence, batch_first = bool(node.output[0]), bool(attributes.get("layout", 0))
    count = len(directions(attributes))

    def canonical(array: Array) -> Array:
        """[T, N, F] or [T, directions, N, F] as [N, T, F], and a last state [directions, N, F] as [N, F]."""
        if not batch_first and array.ndim == 4:
            array = array.transpose(2, 0, 1, 3)
        elif not batch_first and array.ndim == 3:
            array = array.swapaxes(0, 1)
        if array.ndim == 4 or (not sequence and array.shape[1:-1] == (count,)):
            return array.reshape(*array.shape[:-2], -1)
        return array

    return canonical


def _normalisations(graph: _Graph, blocks: dict[str, Block]) -> Iterator[FileLayer]:
    """Normalisations that are written out, if each of their constants is a scale or a bias."""
    producers = {name: node for node in graph.nodes for name in node.output}
    used: set[int] = set()
    # The sum with the bias comes after the product with the scale, which is a normalisation by itself.
    for end, block in reversed(blocks.items()):
        if not block.sources or block.table is not None:
            continue
        inner, waiting = dict[int, onnx.NodeProto](), [end]
        while waiting:
            name = waiting.pop()
            node = producers.get(name)
            if name not in block.inputs and node is not None and id(node) not in inner:
                inner[id(node)] = node
                waiting += node.input
        size = block.weights["scale"].size
        # One of instances has ones and zeros for its groups.
        read = (x for x in inner.values() if x.op_type != "InstanceNormalization")
        names = {name for node in read for name in graph.constants_of(node)}
        vectors = {name for name in names if graph.constants[name].size == size > 1}
        roles = {role: _vector(name) for role, name in block.sources.items() if name in vectors}
        if not roles or not used.isdisjoint(inner) or len(vectors) != len(roles):
            continue
        used |= {*inner}
        nodes = tuple(node for node in graph.nodes if id(node) in inner)
        yield FileLayer(KINDS[block.kind], nodes, roles, end)
