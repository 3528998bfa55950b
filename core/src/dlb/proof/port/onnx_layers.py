"""The layers of an ONNX graph: nodes with the weights that they read, in canonical layout.

Roles and layouts are those in which adapters report the layers of frameworks, so that both can be matched.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from dlb.graph.trace import attributes_of

__all__ = ["GraphNodes", "NodeLayer", "Place", "layer_of", "node_name"]

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


def _in_shape(whole: Array, array: Array) -> Array:
    return array.reshape(whole.shape)


@dataclass(frozen=True)
class Place:
    """Where a graph keeps a parameter.

    Attributes:
        constant: name of the constant.
        read: the parameter in canonical layout, from the constant.
        write: the constant with the parameter in it, from the constant and the parameter.
        part: which part of the constant it is; "" for all of it.
    """

    constant: str
    read: Callable[[Array], Array] = _as_it_is
    write: Callable[[Array, Array], Array] = _in_shape
    part: str = ""


@dataclass(frozen=True)
class NodeLayer:
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
    roles: Mapping[str, Place] = field(default_factory=dict)
    output: str = ""
    canonical: Callable[[Array], Array] = _as_it_is


class GraphNodes:
    """The nodes of a graph, with the constants and the readers of every value."""

    def __init__(self, model: onnx.ModelProto, constants: Mapping[str, Array]) -> None:
        self.constants = constants
        self.outputs = {value.name for value in model.graph.output}
        self.readers: dict[str, list[onnx.NodeProto]] = defaultdict(list)
        for node in model.graph.node:
            for name in dict.fromkeys(node.input):
                self.readers[name].append(node)

    def constant(self, node: onnx.NodeProto, index: int) -> Array | None:
        """A constant of real numbers that a node reads; None if the input is missing or no constant."""
        name = node.input[index] if index < len(node.input) else ""
        array = self.constants.get(name)
        return array if array is not None and array.dtype.kind == "f" else None

    def only_reader(self, name: str) -> onnx.NodeProto | None:
        """The only node that reads a value; None if there are others, or the value is an output."""
        readers = self.readers[name]
        return readers[0] if len(readers) == 1 and name not in self.outputs else None


def layer_of(nodes: GraphNodes, node: onnx.NodeProto) -> NodeLayer:
    """The layer that begins with a node. Its parameters have no roles if its kind is not known."""
    rule = _RULES.get(node.op_type)
    layer = rule(nodes, node) if rule is not None else None
    layer = layer or NodeLayer("", (node,), _without_roles(nodes, node))
    output = next((name for name in layer.nodes[-1].output if name), "")
    return replace(layer, output=layer.output or output)


def node_name(node: onnx.NodeProto) -> str:
    return node.name or next((name for name in node.output if name), node.op_type)


def _without_roles(nodes: GraphNodes, node: onnx.NodeProto) -> dict[str, Place]:
    if node.op_type in _SETTINGS:
        return {}
    return {
        name: Place(name)
        for place, name in enumerate(node.input)
        if name and nodes.constant(node, place) is not None
    }


def _places(node: onnx.NodeProto, **inputs: int) -> dict[str, Place]:
    """Places of parameters that are inputs of a node as they are, by role."""
    return {
        role: Place(node.input[place])
        for role, place in inputs.items()
        if place < len(node.input) and node.input[place]
    }


def _vectors(node: onnx.NodeProto, **inputs: int) -> dict[str, Place]:
    """The same of parameters with one number for each channel, whatever axes of size 1 they have."""
    return {role: _vector(place.constant) for role, place in _places(node, **inputs).items()}


def _vector(constant: str) -> Place:
    return Place(constant, np.ravel)


def _added(
    nodes: GraphNodes,
    output: str,
    size: int,
    operator: str = "Add",
    trailing: int = 0,
    reshaped: bool = True,
) -> tuple[tuple[onnx.NodeProto, ...], str] | None:
    """The nodes up to the sum of a value and a constant with one number for each channel, and the constant.

    Args:
        trailing: axes after the channels'.
        reshaped: whether the value may have another shape before.
    """
    passed = []
    node = nodes.only_reader(output)
    while reshaped and node is not None and node.op_type in _RESHAPES and node.input[0] == output:
        passed.append(node)
        output = node.output[0]
        node = nodes.only_reader(output)
    if node is None or node.op_type != operator or len(node.input) != 2:
        return None
    place = 1 - list(node.input).index(output)
    array = nodes.constant(node, place)
    if array is None or array.size != size or array.ndim < 1 + trailing:
        return None
    if array.shape[array.ndim - 1 - trailing] != size:
        return None
    return (*passed, node), node.input[place]


def _conv(nodes: GraphNodes, node: onnx.NodeProto) -> NodeLayer | None:
    weight = nodes.constant(node, 1)
    biased = len(node.input) > 2 and bool(node.input[2])
    if weight is None or (biased and nodes.constant(node, 2) is None):
        return None
    kind = "conv" if node.op_type == "Conv" else "conv_transpose"
    layer = NodeLayer(kind, (node,), _places(node, weight=1, bias=2))
    if "bias" in layer.roles:
        return layer
    groups = attributes_of(node).get("group", 1)
    channels = weight.shape[0] if kind == "conv" else weight.shape[1] * groups
    added = _added(nodes, node.output[0], channels, trailing=weight.ndim - 2, reshaped=False)
    return layer if added is None else _with_bias(layer, *added)


def _with_bias(layer: NodeLayer, after: tuple[onnx.NodeProto, ...], bias: str) -> NodeLayer:
    roles = {**layer.roles, "bias": _vector(bias)}
    return replace(layer, nodes=(*layer.nodes, *after), roles=roles)


def _transposed(constant: str) -> Place:
    return Place(constant, np.transpose, lambda whole, array: array.T)


def _linear(nodes: GraphNodes, node: onnx.NodeProto) -> NodeLayer | None:
    """A product with a constant matrix on the right, and the bias that is added."""
    weight, attributes = nodes.constant(node, 1), attributes_of(node)
    scaled = any(attributes.get(name, 1.0) != 1.0 for name in ("alpha", "beta"))
    if weight is None or weight.ndim != 2 or scaled or attributes.get("transA", 0):
        return None
    as_written = bool(attributes.get("transB", 0))
    outputs = weight.shape[0 if as_written else 1]
    roles = {"weight": Place(node.input[1]) if as_written else _transposed(node.input[1])}
    layer = NodeLayer("linear", (node,), roles)
    bias = nodes.constant(node, 2)
    if bias is not None and bias.size == outputs:
        return _with_bias(layer, (), node.input[2])
    if len(node.input) > 2 and node.input[2]:
        return None
    added = _added(nodes, node.output[0], outputs)
    return layer if added is None else _with_bias(layer, *added)


def _batch_norm(nodes: GraphNodes, node: onnx.NodeProto) -> NodeLayer | None:
    roles = _places(node, scale=1, bias=2, mean=3, variance=4)
    return NodeLayer("batch_norm", (node,), roles) if _constant(nodes, roles) else None


def _layer_norm(nodes: GraphNodes, node: onnx.NodeProto) -> NodeLayer | None:
    roles = _places(node, scale=1, bias=2)
    return NodeLayer("layer_norm", (node,), roles) if _constant(nodes, roles) else None


def _rms_norm(nodes: GraphNodes, node: onnx.NodeProto) -> NodeLayer | None:
    roles = _places(node, scale=1)
    return NodeLayer("rms_norm", (node,), roles) if _constant(nodes, roles) else None


def _group_norm(nodes: GraphNodes, node: onnx.NodeProto) -> NodeLayer | None:
    roles = _places(node, scale=1, bias=2)
    return NodeLayer("group_norm", (node,), roles) if _constant(nodes, roles) else None


def _instance_norm(nodes: GraphNodes, node: onnx.NodeProto) -> NodeLayer | None:
    """A group normalisation is written as one of instances, and then a scale and a bias for each channel."""
    scale, bias = nodes.constant(node, 1), nodes.constant(node, 2)
    plain = scale is not None and bias is not None and (scale == 1).all() and not bias.any()
    reader = nodes.only_reader(node.output[0])
    while plain and reader is not None and reader.op_type in _RESHAPES:
        reader = nodes.only_reader(reader.output[0])
    if not plain or reader is None or reader.op_type != "Mul":
        return None
    found = [array for place in (0, 1) if (array := nodes.constant(reader, place)) is not None]
    if len(found) != 1 or found[0].ndim < 2 or found[0].size == 1:
        return None
    size, trailing = found[0].size, found[0].ndim - 1 - int(np.argmax(found[0].shape))
    scaled = _added(nodes, node.output[0], size, "Mul", trailing)
    if scaled is None:
        return None
    added = _added(nodes, scaled[0][-1].output[0], size, "Add", trailing, reshaped=False)
    layer = NodeLayer("group_norm", (node, *scaled[0]), {"scale": _vector(scaled[1])})
    return layer if added is None else _with_bias(layer, *added)


def _constant(nodes: GraphNodes, roles: Mapping[str, Place]) -> bool:
    return bool(roles) and all(place.constant in nodes.constants for place in roles.values())


def _prelu(nodes: GraphNodes, node: onnx.NodeProto) -> NodeLayer | None:
    slope = nodes.constant(node, 1)
    if slope is None or slope.size != max(slope.shape, default=1):
        return None
    return NodeLayer("prelu", (node,), _vectors(node, slope=1))


def _embedding(nodes: GraphNodes, node: onnx.NodeProto) -> NodeLayer | None:
    table = nodes.constant(node, 0)
    if table is None or table.ndim != 2 or attributes_of(node).get("axis", 0):
        return None
    return NodeLayer("embedding", (node,), _places(node, weight=0))


def _recurrent(nodes: GraphNodes, node: onnx.NodeProto) -> NodeLayer | None:
    """An LSTM, a GRU or an RNN: parameters of each direction, gates in ONNX's order."""
    weight, recurrent = nodes.constant(node, 1), nodes.constant(node, 2)
    attributes = attributes_of(node)
    if weight is None or recurrent is None or (len(node.input) > 7 and node.input[7]):
        return None
    backward = [attributes.get("direction", "forward") == "reverse"]
    backward = [False, True] if len(weight) == 2 else backward
    after = bool(attributes.get("linear_before_reset", 0))
    roles: dict[str, Place] = {}
    for direction, is_backward in enumerate(backward):
        start = "backward " * is_backward
        roles[f"{start}input_weight"] = _direction(node.input[1], direction)
        roles[f"{start}recurrent_weight"] = _direction(node.input[2], direction)
        if nodes.constant(node, 3) is not None:
            summed = not (node.op_type == "GRU" and after)
            roles[f"{start}bias"] = _biases(node.input[3], direction, summed)
    output = next((name for name in node.output if name), "")
    sequence = bool(node.output[0])
    batch_first = bool(attributes.get("layout", 0))

    def canonical(array: Array) -> Array:
        """[T, N, F] or [T, directions, N, F] as [N, T, F], and a last state [directions, N, F] as [N, F]."""
        if not batch_first and array.ndim == 4:
            array = array.transpose(2, 0, 1, 3)
        elif not batch_first and array.ndim == 3:
            array = array.swapaxes(0, 1)
        if array.ndim == 4 or (not sequence and array.shape[1:-1] == (len(backward),)):
            return array.reshape(*array.shape[:-2], -1)
        return array

    kind = node.op_type.lower()
    return NodeLayer(kind, (node,), roles, output, canonical)


def _direction(constant: str, direction: int) -> Place:
    def write(whole: Array, array: Array) -> Array:
        whole = whole.copy()
        whole[direction] = array
        return whole

    return Place(constant, lambda whole: whole[direction], write, str(direction))


def _biases(constant: str, direction: int, summed: bool) -> Place:
    """The biases of both products: their sum, of which the second is zero, or one below the other."""

    def read(whole: Array) -> Array:
        both = whole[direction].reshape(2, -1)
        return np.asarray(both[0] + both[1]) if summed else both

    def write(whole: Array, array: Array) -> Array:
        whole = whole.copy()
        whole[direction] = np.ravel([array, np.zeros_like(array)] if summed else array)
        return whole

    return Place(constant, read, write, str(direction))


_RULES: dict[str, Callable[[GraphNodes, onnx.NodeProto], NodeLayer | None]] = {
    "Conv": _conv,
    "ConvTranspose": _conv,
    "Gemm": _linear,
    "MatMul": _linear,
    "BatchNormalization": _batch_norm,
    "LayerNormalization": _layer_norm,
    "RMSNormalization": _rms_norm,
    "GroupNormalization": _group_norm,
    "InstanceNormalization": _instance_norm,
    "PRelu": _prelu,
    "Gather": _embedding,
    "LSTM": _recurrent,
    "GRU": _recurrent,
    "RNN": _recurrent,
}
