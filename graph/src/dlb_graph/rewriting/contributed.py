"""Operators that ONNX Runtime adds to ONNX's, written out in ONNX's own.

Its optimiser joins operators into one of ``com.microsoft``, or into one that ONNX has in later operator sets
alone. Their meaning: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md.
"""

from __future__ import annotations

import numpy as np

from dlb_graph.rewriting.node_writer import NodeWriter, Rule

__all__ = ["CONTRIBUTED", "LATER", "RULES"]

#: The domain of these operators.
CONTRIBUTED = "com.microsoft"


def _fused_conv(write: NodeWriter) -> bool:
    names = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    settings = {name: value for name, value in write.attributes.items() if name in names}
    value = write.add("Conv", *filter(None, (write.input(place) for place in range(3))), **settings)
    last = write.activated(
        write.sum(value, write.input(3)), write.attributes.get("activation_params", ())
    )
    return last is not None and write.end(last)


def _fused_gemm(write: NodeWriter) -> bool:
    settings = {name: value for name, value in write.attributes.items() if "activation" not in name}
    value = write.add("Gemm", *filter(None, write.node.input), **settings)
    names = ("activation_alpha", "activation_beta")
    numbers = [write.attributes[name] for name in names if name in write.attributes]
    last = write.activated(value, numbers)
    return last is not None and write.end(last)


def _fused_matmul(write: NodeWriter) -> bool:
    attributes = write.attributes
    if attributes.get("transBatchA", 0) or attributes.get("transBatchB", 0):
        return False
    read = [
        write.turned(name) if attributes.get(key, 0) else name
        for name, key in zip(write.node.input, ("transA", "transB"))
    ]
    if None in read:
        return False
    value = write.add("MatMul", *filter(None, read))
    if attributes.get("alpha", 1.0) != 1.0:
        value = write.add("Mul", value, write.tensor(attributes["alpha"]))
    return write.end(value)


def _gelu(write: NodeWriter) -> bool:
    return write.end(write.gelu(write.sum(*write.node.input)))


def _fast_gelu(write: NodeWriter) -> bool:
    return write.end(write.fast_gelu(write.sum(*write.node.input)))


def _quick_gelu(write: NodeWriter) -> bool:
    (name,) = write.node.input
    alpha = write.attributes.get("alpha", 1.702)
    inner = name if alpha == 1.0 else write.add("Mul", name, write.tensor(alpha))
    return write.end(write.add("Mul", name, write.add("Sigmoid", inner)))


def _skip_norm(write: NodeWriter, *, centred: bool) -> bool:
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


def _norm(write: NodeWriter, *, centred: bool) -> bool:
    axis, rank = write.attributes.get("axis", -1), write.rank(write.input(0))
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


def _embedding_norm(write: NodeWriter) -> bool:
    tokens, segments, words, places, kinds = (write.input(place) for place in range(5))
    if write.uses(1):  # the lengths of the mask
        return False
    looked_up = [write.add("Gather", words, tokens)]
    if write.input(8):
        looked_up.append(write.add("Gather", places, write.input(8)))
    else:
        one = write.tensor([1], np.int64)
        shape = write.add("Shape", tokens)
        steps = write.add("Slice", shape, one, write.tensor([2], np.int64))
        looked_up.append(write.add("Slice", places, write.tensor([0], np.int64), steps))
    if segments:
        looked_up.append(write.add("Gather", kinds, segments))
    value = write.sum(*looked_up)
    if write.uses(2):
        write.end(value, 2)
    epsilon = write.attributes.get("epsilon", 1e-12)
    return write.end(
        write.normalised(value, write.input(5), write.input(6), centred=True, epsilon=epsilon)
    )


def _attention(write: NodeWriter) -> bool:
    attributes = write.attributes
    sizes = attributes.get("qkv_hidden_sizes", [])
    unread = (write.input(3), write.input(4), write.input(6))  # a mask, and states of earlier steps
    if any(unread) or write.uses(1) or len(set(sizes)) > 1:
        return False
    if attributes.get("unidirectional", 0) or attributes.get("do_rotary", 0):
        return False
    value = write.sum(write.add("MatMul", write.input(0), write.input(1)), write.input(2))
    return write.attention(write.parts(value, 3), write.input(5))


def _heads_attention(write: NodeWriter) -> bool:
    values, bias, added = [write.input(place) for place in range(3)], write.input(3), write.input(5)
    unread = [write.input(place) for place in (4, *range(6, 10))]
    if any(unread) or any(map(write.uses, (1, 2, 3))) or write.attributes.get("unidirectional", 0):
        return False
    if not all(values) or any(write.rank(name) != 3 for name in values):
        return False
    if bias:
        values = [write.add("Add", name, part) for name, part in zip(values, write.parts(bias, 3))]
    return write.attention(values, added)


RULES: dict[str, Rule] = {
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
LATER: dict[str, tuple[int, Rule | None]] = {
    "LayerNormalization": (17, lambda write: _norm(write, centred=True)),
    "SimplifiedLayerNormalization": (2**31, lambda write: _norm(write, centred=False)),
}
