"""Operators that ONNX Runtime adds to ONNX's, written out in ONNX's own.

Its optimiser joins operators into one of ``com.microsoft``, or into one that ONNX has in later operator sets
alone. Their meaning: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference

from dlb.graph.precision import REAL_TYPES
from dlb.graph.trace import attributes_of

__all__ = ["with_onnx_operators"]

_CONTRIBUTED = "com.microsoft"
_OWN = ("", "ai.onnx")


def with_onnx_operators(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with ONNX Runtime's own operators written out; itself if it has none that can be.

    An operator that is no composition of ONNX's, and one with inputs that are not supported, stays.
    """
    if not any(_rule(node, model) for node in model.graph.node):
        return model
    result = onnx.ModelProto()
    result.CopyFrom(model)
    before = -1
    while before != len(result.graph.node):
        before = len(result.graph.node)
        ranks = _ranks(result)
        nodes: list[onnx.NodeProto] = []
        for node in result.graph.node:
            rule = _rule(node, result)
            writer = _Writer(result, node, ranks)
            if rule is None or not _written(rule, writer):
                nodes.append(node)
                continue
            nodes += writer.nodes
            result.graph.initializer.extend(writer.constants)
        copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
        del result.graph.node[:]
        result.graph.node.extend(copies)
    return result


def _written(rule: Callable[[_Writer], bool], writer: _Writer) -> bool:
    """Whether a rule has written out a node: not if an input or an attribute is missing or of another type."""
    try:
        return rule(writer)
    except (IndexError, KeyError, TypeError, ValueError):
        return False


def _opset(model: onnx.ModelProto) -> int:
    return max((entry.version for entry in model.opset_import if entry.domain in _OWN), default=0)


def _rule(node: onnx.NodeProto, model: onnx.ModelProto) -> Callable[[_Writer], bool] | None:
    if node.domain == _CONTRIBUTED:
        return _RULES.get(node.op_type)
    if node.domain in _OWN:
        since, rule = _LATER.get(node.op_type, (0, None))
        return rule if rule and _opset(model) < since else None
    return None


def _ranks(model: onnx.ModelProto) -> dict[str, int]:
    """How many axes values have, as far as that is declared or follows."""
    graph = shape_inference.infer_shapes(model).graph
    ranks = {tensor.name: len(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.HasField("shape"):
            ranks[value.name] = len(value.type.tensor_type.shape.dim)
    return ranks


class _Writer:
    """Writes the nodes that replace one.

    Attributes:
        node: which is replaced.
        nodes, constants: in its place.
        attributes: of the node.
        ranks: how many axes values have, by name, where that is known.
    """

    def __init__(
        self, model: onnx.ModelProto, node: onnx.NodeProto, ranks: Mapping[str, int]
    ) -> None:
        self.node, self.ranks = node, ranks
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.attributes: Mapping[str, Any] = attributes_of(node)
        self.opset = _opset(model)
        real = [value.type.tensor_type.elem_type for value in model.graph.input]
        real += [tensor.data_type for tensor in model.graph.initializer]
        kind = next((each for each in real if each in REAL_TYPES), TensorProto.FLOAT)
        self._kind = helper.tensor_dtype_to_np_dtype(kind)

    def input(self, place: int) -> str:
        """The name of an input; empty where it is left out."""
        return self.node.input[place] if place < len(self.node.input) else ""

    def uses(self, place: int) -> bool:
        """Whether an output has a name."""
        return place < len(self.node.output) and bool(self.node.output[place])

    def held(self, values: Any, kind: Any = None) -> str:
        """A constant: real numbers in the model's type, unless another is named."""
        name = f"{self.node.output[0]}/held/{len(self.constants)}"
        array = np.asarray(values, kind or self._kind)
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def add(self, operator: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """Add a node; returns its output."""
        name = output or f"{self.node.output[0]}/{len(self.nodes)}"
        self._write(operator, inputs, [name], attributes)
        return name

    def _write(
        self,
        operator: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        attributes: Mapping[str, Any],
    ) -> None:
        """Add a node: the first has the name of the node that is replaced."""
        number = len(self.nodes)
        name = f"{self.node.name}/{number}" if number and self.node.name else self.node.name
        self.nodes.append(helper.make_node(operator, inputs, outputs, name, **attributes))

    def end(self, name: str, place: int = 0) -> bool:
        """Let a value be an output of the node."""
        self.add("Identity", name, output=self.node.output[place])
        return True

    def mean(self, name: str) -> str:
        """The mean along the last axis, which is kept."""
        if self.opset < 18:
            return self.add("ReduceMean", name, axes=[-1], keepdims=1)
        return self.add("ReduceMean", name, self.held([-1], np.int64), keepdims=1)

    def parts(self, name: str, count: int) -> list[str]:
        """A value in equal parts along its last axis."""
        names = [f"{self.node.output[0]}/{len(self.nodes)}/{place}" for place in range(count)]
        split: dict[str, Any] = {"num_outputs": count} if self.opset >= 18 else {}
        self._write("Split", [name], names, {"axis": -1, **split})
        return names

    def turned(self, name: str) -> str | None:
        """A value with its last two axes swapped; None if it is not known how many it has."""
        rank = self.ranks.get(name)
        if rank is None or rank < 2:
            return None
        return self.add("Transpose", name, perm=[*range(rank - 2), rank - 1, rank - 2])

    def sum(self, *names: str) -> str:
        """The sum of values, those that are left out aside."""
        first, *others = filter(None, names)
        for other in others:
            first = self.add("Add", first, other)
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
            return self.add(operator, name, *map(self.held, numbers[:2]))
        return None

    def gelu(self, name: str) -> str:
        inner = self.add("Erf", self.add("Div", name, self.held(math.sqrt(2))))
        share = self.add("Mul", self.add("Add", inner, self.held(1.0)), self.held(0.5))
        return self.add("Mul", name, share)

    def fast_gelu(self, name: str) -> str:
        """By a hyperbolic tangent (Hendrycks and Gimpel, arXiv:1606.08415)."""
        cube = self.add("Mul", self.add("Mul", name, name), name)
        inner = self.add("Add", name, self.add("Mul", cube, self.held(0.044715)))
        wave = self.add("Tanh", self.add("Mul", inner, self.held(math.sqrt(2 / math.pi))))
        share = self.add("Mul", self.add("Add", wave, self.held(1.0)), self.held(0.5))
        return self.add("Mul", name, share)

    def normalised(
        self, name: str, scale: str, shift: str, *, centred: bool, epsilon: float
    ) -> str:
        """A value over its last axis, less its mean if ``centred``, with a root-mean-square of 1, scaled."""
        rest = self.add("Sub", name, self.mean(name)) if centred else name
        variance = self.mean(self.add("Mul", rest, rest))
        root = self.add("Sqrt", self.add("Add", variance, self.held(epsilon)))
        scaled = self.add("Mul", self.add("Div", rest, root), scale)
        return self.sum(scaled, shift)

    def heads(self, name: str, count: int) -> str:
        """[N, T, features] as [N, heads, T, features of one]."""
        sizes = self.held([0, 0, count, -1], np.int64)
        return self.add("Transpose", self.add("Reshape", name, sizes), perm=[0, 2, 1, 3])

    def attention(self, values: Sequence[str], added: str) -> bool:
        """Scaled dot products of three values [N, T, features], with something added before the softmax."""
        count, scale = self.attributes["num_heads"], self.attributes.get("scale", 0.0)
        query, key, value = (self.heads(name, count) for name in values)
        turned = self.add("Transpose", key, perm=[0, 1, 3, 2])
        scores = self.add("MatMul", query, turned)
        if scale:
            scores = self.add("Mul", scores, self.held(scale))
        else:
            size = self.add("Shape", query)
            last = self.add("Gather", size, self.held(3, np.int64))
            number = self.add("Cast", last, to=helper.np_dtype_to_tensor_dtype(self._kind))
            scores = self.add("Div", scores, self.add("Sqrt", number))
        shares = self.add("Softmax", self.sum(scores, added), axis=-1)
        mixed = self.add("Transpose", self.add("MatMul", shares, value), perm=[0, 2, 1, 3])
        return self.end(self.add("Reshape", mixed, self.held([0, 0, -1], np.int64)))


def _fused_conv(write: _Writer) -> bool:
    own = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    kept = {name: value for name, value in write.attributes.items() if name in own}
    value = write.add("Conv", *filter(None, (write.input(place) for place in range(3))), **kept)
    last = write.activated(
        write.sum(value, write.input(3)), write.attributes.get("activation_params", ())
    )
    return last is not None and write.end(last)


def _fused_gemm(write: _Writer) -> bool:
    kept = {name: value for name, value in write.attributes.items() if "activation" not in name}
    value = write.add("Gemm", *filter(None, write.node.input), **kept)
    names = ("activation_alpha", "activation_beta")
    numbers = [write.attributes[name] for name in names if name in write.attributes]
    last = write.activated(value, numbers)
    return last is not None and write.end(last)


def _fused_matmul(write: _Writer) -> bool:
    given = write.attributes
    if given.get("transBatchA", 0) or given.get("transBatchB", 0):
        return False
    read = [
        write.turned(name) if given.get(key, 0) else name
        for name, key in zip(write.node.input, ("transA", "transB"))
    ]
    if None in read:
        return False
    value = write.add("MatMul", *filter(None, read))
    if given.get("alpha", 1.0) != 1.0:
        value = write.add("Mul", value, write.held(given["alpha"]))
    return write.end(value)


def _gelu(write: _Writer) -> bool:
    return write.end(write.gelu(write.sum(*write.node.input)))


def _fast_gelu(write: _Writer) -> bool:
    return write.end(write.fast_gelu(write.sum(*write.node.input)))


def _quick_gelu(write: _Writer) -> bool:
    (name,) = write.node.input
    alpha = write.attributes.get("alpha", 1.702)
    inner = name if alpha == 1.0 else write.add("Mul", name, write.held(alpha))
    return write.end(write.add("Mul", name, write.add("Sigmoid", inner)))


def _skip_norm(write: _Writer, *, centred: bool) -> bool:
    if write.uses(1) or write.uses(2):
        return False
    shift, bias = (write.input(3), write.input(4)) if centred else ("", write.input(3))
    value = write.sum(write.input(0), write.input(1), bias)
    epsilon = write.attributes.get("epsilon", 1e-12)
    if write.uses(3):
        write.end(value, 3)
    return write.end(
        write.normalised(value, write.input(2), shift, centred=centred, epsilon=epsilon)
    )


def _norm(write: _Writer, *, centred: bool) -> bool:
    axis, rank = write.attributes.get("axis", -1), write.ranks.get(write.input(0))
    if write.uses(1) or write.uses(2) or (axis != -1 and (rank is None or axis != rank - 1)):
        return False
    value = write.normalised(
        write.input(0),
        write.input(1),
        write.input(2),
        centred=centred,
        epsilon=write.attributes.get("epsilon", 1e-5),
    )
    return write.end(value)


def _embedding_norm(write: _Writer) -> bool:
    tokens, segments, words, places, kinds = (write.input(place) for place in range(5))
    if write.uses(1):  # the lengths of the mask
        return False
    looked_up = [write.add("Gather", words, tokens)]
    if write.input(8):
        looked_up.append(write.add("Gather", places, write.input(8)))
    else:
        one = write.held([1], np.int64)
        shape = write.add("Shape", tokens)
        steps = write.add("Slice", shape, one, write.held([2], np.int64))
        looked_up.append(write.add("Slice", places, write.held([0], np.int64), steps))
    if segments:
        looked_up.append(write.add("Gather", kinds, segments))
    value = write.sum(*looked_up)
    if write.uses(2):
        write.end(value, 2)
    epsilon = write.attributes.get("epsilon", 1e-12)
    return write.end(
        write.normalised(value, write.input(5), write.input(6), centred=True, epsilon=epsilon)
    )


def _attention(write: _Writer) -> bool:
    given = write.attributes
    sizes = given.get("qkv_hidden_sizes", [])
    others = (write.input(3), write.input(4), write.input(6))  # a mask, and states of earlier steps
    if any(others) or write.uses(1) or len(set(sizes)) > 1:
        return False
    if given.get("unidirectional", 0) or given.get("do_rotary", 0):
        return False
    value = write.sum(write.add("MatMul", write.input(0), write.input(1)), write.input(2))
    return write.attention(write.parts(value, 3), write.input(5))


def _heads_attention(write: _Writer) -> bool:
    values, bias, added = [write.input(place) for place in range(3)], write.input(3), write.input(5)
    others = [write.input(place) for place in (4, *range(6, 10))]
    if any(others) or any(map(write.uses, (1, 2, 3))) or write.attributes.get("unidirectional", 0):
        return False
    if not all(values) or any(write.ranks.get(name) != 3 for name in values):
        return False
    if bias:
        values = [write.add("Add", name, part) for name, part in zip(values, write.parts(bias, 3))]
    return write.attention(values, added)


_RULES: dict[str, Callable[[_Writer], bool]] = {
    "Attention": _attention,
    "BiasGelu": _gelu,
    "EmbedLayerNormalization": _embedding_norm,
    "FastGelu": _fast_gelu,
    "FusedConv": _fused_conv,
    "FusedGemm": _fused_gemm,
    "FusedMatMul": _fused_matmul,
    "Gelu": _gelu,
    "MultiHeadAttention": _heads_attention,
    "QuickGelu": _quick_gelu,
    "SkipLayerNormalization": lambda write: _skip_norm(write, centred=True),
    "SkipSimplifiedLayerNormalization": lambda write: _skip_norm(write, centred=False),
    "TransposeMatMul": _fused_matmul,
}
#: ONNX's own names, with the operator set that has them; a larger number than any for those that none has.
_LATER: dict[str, tuple[int, Callable[[_Writer], bool] | None]] = {
    "LayerNormalization": (17, lambda write: _norm(write, centred=True)),
    "SimplifiedLayerNormalization": (2**31, lambda write: _norm(write, centred=False)),
}
