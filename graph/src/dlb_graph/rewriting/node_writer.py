"""Writes nodes in the place of one: for operators that are compositions of ONNX's own."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference

from dlb_graph.truth.precision import REAL_TYPES
from dlb_graph.truth.trace import attributes_of

__all__ = [
    "OWN",
    "NodeWriter",
    "Rule",
    "opset_of",
    "prepend",
    "with_nodes",
    "write_out",
    "writer_of",
]

#: The names of ONNX's own domain.
OWN = ("", "ai.onnx")


def opset_of(model: onnx.ModelProto) -> int:
    """The operator set of ONNX's own domain; 0 if the model names none."""
    return max((entry.version for entry in model.opset_import if entry.domain in OWN), default=0)


def _shapes_of(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    """The sizes of values, 0 for one that is open, as far as they are declared or follow."""
    graph = shape_inference.infer_shapes(model).graph
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.HasField("shape"):
            dims = value.type.tensor_type.shape.dim
            shapes[value.name] = tuple(dim.dim_value for dim in dims)
    return shapes


class NodeWriter:
    """Writes the nodes that replace one.

    Attributes:
        node: which is replaced.
        nodes, constants: in its place.
        attributes: of the node.
        shapes: the sizes of values, by name, where they are known; 0 for one that is open.
        element: the type of the model's real numbers.
    """

    def __init__(
        self, model: onnx.ModelProto, node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...]]
    ) -> None:
        self.node, self.shapes = node, shapes
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.attributes: Mapping[str, Any] = attributes_of(node)
        self.opset = opset_of(model)
        self._graph = model.graph
        real = [value.type.tensor_type.elem_type for value in model.graph.input]
        real += [tensor.data_type for tensor in model.graph.initializer]
        kind = next((element for element in real if element in REAL_TYPES), TensorProto.FLOAT)
        self.element = kind
        self._kind = helper.tensor_dtype_to_np_dtype(kind)

    def input(self, place: int) -> str:
        """The name of an input; empty where it is left out."""
        return self.node.input[place] if place < len(self.node.input) else ""

    def rank(self, name: str) -> int | None:
        """How many axes a value has, if that is known."""
        shape = self.shapes.get(name)
        return None if shape is None else len(shape)

    def uses(self, place: int) -> bool:
        """Whether an output has a name."""
        return place < len(self.node.output) and bool(self.node.output[place])

    def constant(self, place: int) -> Any:
        """An input's numbers, if the graph holds them, as an initialiser or a Constant; else None."""
        node = self.producer(place)
        if node is not None and node.op_type == "Constant" and node.attribute[0].name == "value":
            return numpy_helper.to_array(node.attribute[0].t)
        stored = (t for t in self._graph.initializer if t.name == self.input(place))
        return next(map(numpy_helper.to_array, stored), None)

    def producer(self, place: int) -> onnx.NodeProto | None:
        """The node that computes an input."""
        return next((n for n in self._graph.node if self.input(place) in n.output), None)

    def tensor(self, values: Any, kind: Any = None) -> str:
        """A constant: real numbers in the model's type, unless another is named."""
        name = f"{self.node.output[0]}/held/{len(self.constants)}"
        array = np.asarray(values, kind or self._kind)
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def shape(self, *sizes: int) -> str:
        """The sizes of a Reshape."""
        return self.tensor(sizes, np.int64)

    def add(self, operator: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """Add a node; returns its output."""
        name = output or f"{self.node.output[0]}/{len(self.nodes)}"
        self.add_all(operator, inputs, [name], **attributes)
        return name

    def add_all(
        self, operator: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any
    ) -> None:
        """Add a node with these outputs: the first has the name of the node that is replaced."""
        number = len(self.nodes)
        name = f"{self.node.name}/{number}" if number and self.node.name else self.node.name
        self.nodes.append(helper.make_node(operator, inputs, outputs, name, **attributes))

    def inner(self) -> NodeWriter:
        """A writer of a body: its nodes may read what this one wrote."""
        inner = copy(self)
        inner.node, inner.nodes = onnx.NodeProto(), []
        inner.node.output.append(f"{self.node.output[0]}/{len(self.nodes)}/body")
        return inner

    def body(self, inputs: Sequence[str], outputs: Sequence[str]) -> onnx.GraphProto:
        """The nodes as the body of a Loop or a Scan, of real numbers."""
        first, last = (
            [helper.make_tensor_value_info(name, self.element, None) for name in names]
            for names in (inputs, outputs)
        )
        return helper.make_graph(self.nodes, "body", first, last)

    def end(self, name: str, place: int = 0) -> bool:
        """Let a value be an output of the node."""
        self.add("Identity", name, output=self.node.output[place])
        return True

    def reduced(self, operator: str, name: str) -> str:
        """What an operator of the kind of ReduceMean makes of the last axis, which is kept."""
        if self.opset < 18:
            return self.add(operator, name, axes=[-1], keepdims=1)
        return self.add(operator, name, self.tensor([-1], np.int64), keepdims=1)

    def mean(self, name: str) -> str:
        """The mean along the last axis, which is kept."""
        return self.reduced("ReduceMean", name)

    def parts(self, name: str, count: int) -> list[str]:
        """A value in equal parts along its last axis."""
        names = [f"{self.node.output[0]}/{len(self.nodes)}/{place}" for place in range(count)]
        split: dict[str, Any] = {"num_outputs": count} if self.opset >= 18 else {}
        self.add_all("Split", [name], names, axis=-1, **split)
        return names

    def cut(self, name: str, place: int, size: int) -> tuple[str, str]:
        """The first numbers of a value's last axis, and those from ``place`` on, of ``size``."""
        last = self.tensor([-1], np.int64)
        ends = [self.tensor([end], np.int64) for end in (0, place, size)]
        first, second = (self.add("Slice", name, a, b, last) for a, b in itertools.pairwise(ends))
        return first, second

    def place(self, name: str, index: int) -> str:
        """One place of a value's first axis, which is then gone."""
        return self.add("Gather", name, self.tensor(index, np.int64), axis=0)

    def raised(self, name: str, axis: int = 0) -> str:
        """A value with one more axis of size 1."""
        if self.opset < 13:
            return self.add("Unsqueeze", name, axes=[axis])
        return self.add("Unsqueeze", name, self.tensor([axis], np.int64))

    def joined(self, names: Sequence[str], axis: int) -> str:
        """Values one after the other along an axis; a single one as it is."""
        return names[0] if len(names) == 1 else self.add("Concat", *names, axis=axis)

    def turned(self, name: str) -> str | None:
        """A value with its last two axes swapped; None if it is not known how many it has."""
        rank = self.rank(name)
        if rank is None or rank < 2:
            return None
        return self.add("Transpose", name, perm=[*range(rank - 2), rank - 1, rank - 2])

    def sum(self, *names: str) -> str:
        """The sum of values, those that are left out aside."""
        first, *more = filter(None, names)
        for name in more:
            first = self.add("Add", first, name)
        return first

    def activated(self, name: str, numbers: Sequence[float]) -> str | None:
        """What the attribute ``activation`` names of a value; None if it is none of ONNX Runtime's."""
        operator = self.attributes.get("activation", "")
        if operator in ("", "Relu", "Sigmoid", "Tanh"):
            return self.add(operator, name) if operator else name
        if operator == "LeakyRelu":
            return self.add(operator, name, alpha=numbers[0] if numbers else 0.01)
        if operator == "HardSigmoid" and len(numbers) > 1:
            return self.add(operator, name, alpha=numbers[0], beta=numbers[1])
        if operator == "Clip" and len(numbers) > 1 and self.opset >= 11:
            return self.add(operator, name, *map(self.tensor, numbers[:2]))
        return None

    def gelu(self, name: str) -> str:
        inner = self.add("Erf", self.add("Div", name, self.tensor(math.sqrt(2))))
        share = self.add("Mul", self.add("Add", inner, self.tensor(1.0)), self.tensor(0.5))
        return self.add("Mul", name, share)

    def fast_gelu(self, name: str) -> str:
        """By a hyperbolic tangent (Hendrycks and Gimpel, arXiv:1606.08415)."""
        cube = self.add("Mul", self.add("Mul", name, name), name)
        inner = self.add("Add", name, self.add("Mul", cube, self.tensor(0.044715)))
        wave = self.add("Tanh", self.add("Mul", inner, self.tensor(math.sqrt(2 / math.pi))))
        share = self.add("Mul", self.add("Add", wave, self.tensor(1.0)), self.tensor(0.5))
        return self.add("Mul", name, share)

    def normalised(
        self, name: str, scale: str, shift: str, *, centred: bool, epsilon: float
    ) -> str:
        """A value over its last axis, less its mean if ``centred``, with a root-mean-square of 1, scaled."""
        rest = self.add("Sub", name, self.mean(name)) if centred else name
        variance = self.mean(self.add("Mul", rest, rest))
        root = self.add("Sqrt", self.add("Add", variance, self.tensor(epsilon)))
        scaled = self.add("Mul", self.add("Div", rest, root), scale)
        return self.sum(scaled, shift)

    def heads(self, name: str, count: int) -> str:
        """[N, T, features] as [N, heads, T, features of one]."""
        sizes = self.tensor([0, 0, count, -1], np.int64)
        return self.add("Transpose", self.add("Reshape", name, sizes), perm=[0, 2, 1, 3])

    def attention(self, values: Sequence[str], added: str) -> bool:
        """Scaled dot products of three values [N, T, features], with something added before the softmax."""
        count, scale = self.attributes["num_heads"], self.attributes.get("scale", 0.0)
        query, key, value = (self.heads(name, count) for name in values)
        turned = self.add("Transpose", key, perm=[0, 1, 3, 2])
        scores = self.add("MatMul", query, turned)
        if scale:
            scores = self.add("Mul", scores, self.tensor(scale))
        else:
            size = self.add("Shape", query)
            last = self.add("Gather", size, self.tensor(3, np.int64))
            number = self.add("Cast", last, to=self.element)
            scores = self.add("Div", scores, self.add("Sqrt", number))
        shares = self.add("Softmax", self.sum(scores, added), axis=-1)
        mixed = self.add("Transpose", self.add("MatMul", shares, value), perm=[0, 2, 1, 3])
        return self.end(self.add("Reshape", mixed, self.tensor([0, 0, -1], np.int64)))


def writer_of(model: onnx.ModelProto, name: str) -> NodeWriter:
    """Writes nodes that compute a value of which no node is yet."""
    return NodeWriter(model, helper.make_node("", [], [name]), {})


def prepend(graph: onnx.GraphProto, *writers: NodeWriter) -> None:
    """Put what was written before all other nodes of a graph, in place."""
    nodes = [node for writer in writers for node in writer.nodes] + list(graph.node)
    del graph.node[:]
    graph.node.extend(nodes)
    for writer in writers:
        graph.initializer.extend(writer.constants)


#: Writes the nodes in the place of one; returns whether it did.
Rule = Callable[[NodeWriter], bool]


def write_out(
    model: onnx.ModelProto, rule_of: Callable[[onnx.NodeProto], Rule | None]
) -> onnx.ModelProto | None:
    """The model with nodes written out by rules, those too that rules write; None if no rule writes any.

    A node stays if its rule does not fit it: an input or an attribute is missing, or of another type.

    Args:
        rule_of: the rule of a node; None if it stays.
    """
    written = model
    while any(map(rule_of, written.graph.node)):
        shapes, changed = _shapes_of(written), False
        nodes, constants = list[onnx.NodeProto](), list[onnx.TensorProto]()
        for node in written.graph.node:
            rule = rule_of(node)
            writer = NodeWriter(written, node, shapes) if rule else None
            if rule is None or writer is None or not _fits(rule, writer):
                nodes.append(node)
                continue
            changed = True
            nodes += writer.nodes
            constants += writer.constants
        if not changed:
            break
        written = with_nodes(written, nodes, constants)
    return None if written is model else written


def _fits(rule: Rule, writer: NodeWriter) -> bool:
    try:
        return rule(writer)
    except (ArithmeticError, IndexError, KeyError, TypeError, ValueError):
        return False


def with_nodes(
    model: onnx.ModelProto,
    nodes: Iterable[onnx.NodeProto],
    constants: Iterable[onnx.TensorProto] = (),
) -> onnx.ModelProto:
    """A copy of the model with other nodes, and with more constants."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    del result.graph.node[:]
    result.graph.node.extend(nodes)
    result.graph.initializer.extend(constants)
    return result
