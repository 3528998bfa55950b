"""Attention."""

from __future__ import annotations

import math
from typing import Any

from dlb_graph.layers.base import Gradients, Graph, Layer, Pass, Shape, ShapeMismatch, check_rank
from dlb_graph.layers.initializers import Initializer
from dlb_graph.layers.linear import linear_gradients
from dlb_graph.layers.numbers import Array, np
from dlb_worker.model import ATTENTION_MAPS

__all__ = ["ATTENTION_MAPS", "Attention"]


class Attention(Layer, tag="attention", kw_only=True, frozen=True):
    """Multi-head self-attention over [N, T, features] (Vaswani et al. 2017, arXiv:1706.03762).

    Queries, keys and values are linear maps of the input. Their features are divided into ``heads``
    consecutive heads of d features. Each head computes ``softmax(Q K^T / sqrt(d)) V``. With
    ``causal``, a step attends only to itself and earlier steps. A last linear map reads the
    concatenated heads. ONNX MatMul, Reshape, Transpose, Add and Softmax.

    Parameters, as in a linear layer: ``query_weight``, ``key_weight``, ``value_weight``,
    ``output_weight`` [features, features], and with ``bias`` ``query_bias``, ``key_bias``,
    ``value_bias``, ``output_bias`` [features].
    """

    heads: int
    causal: bool = False
    bias: bool = True
    init: Initializer = "glorot_uniform"

    linear_roles = ("output_weight", "output_bias")
    input_roles = ("query_weight", "key_weight", "value_weight")
    summand = "output_bias"
    reads_input_again = True
    numbers_within = 4
    mistakes = (
        "the scale (1 / sqrt(features of a head)), the causal mask and where it begins, how "
        "features are divided into heads, the axis of the softmax, or a bias"
    )

    def output_shape(self, inputs: list[Shape]) -> Shape:
        check_rank(inputs[0], 2)
        if inputs[0][1] % self.heads:
            raise ShapeMismatch(f"heads = {self.heads} must divide {inputs[0][1]} features")
        return inputs[0]

    def parameters(self, shape: Shape) -> dict[str, Shape]:
        features = shape[-1]
        kinds = {"weight": (features, features)} | ({"bias": (features,)} if self.bias else {})
        return {f"{name}_{kind}": kinds[kind] for kind in kinds for name in ATTENTION_MAPS}

    def multiply_adds(self, inputs: list[Shape], output: Shape) -> int:
        """Its four maps, and the products of every step with every other."""
        steps, features = output
        return steps * 4 * features**2 + 2 * math.prod(output) * steps

    def input_products(self, inputs: list[Shape], output: Shape) -> int:
        return 3 * math.prod(output) * output[-1]

    def nodes(self, graph: Graph, name: str, inputs: list[str], shapes: list[Shape]) -> None:
        """[N, T, F] to three times heads [N, heads, T, d], scores [N, heads, T, T], and back."""
        steps, features = shapes[0]
        size = features // self.heads
        split = graph.initializer(f"{name}/heads", [0, steps, self.heads, size])

        def linear_map(role: str, x: str, output: str) -> str:
            weight = f"{name}.{role}_weight"
            weight = graph.node("Transpose", [weight], f"{name}/{role}/weight", perm=[1, 0])
            if not self.bias:
                return graph.node("MatMul", [x, weight], output, name=f"{name}/{role}")
            product = graph.node("MatMul", [x, weight], f"{output}/product", name=f"{name}/{role}")
            return graph.node(
                "Add", [product, f"{name}.{role}_bias"], output, name=f"{name}/{role}/add"
            )

        def split_heads(role: str, perm: list[int]) -> str:
            mapped = linear_map(role, inputs[0], f"{name}/{role}")
            heads = graph.node("Reshape", [mapped, split], f"{name}/{role}/heads")
            return graph.node("Transpose", [heads], f"{name}/{role}/head", perm=perm)

        queries, keys = split_heads("query", [0, 2, 1, 3]), split_heads("key", [0, 2, 3, 1])
        values = split_heads("value", [0, 2, 1, 3])
        products = graph.node("MatMul", [queries, keys], f"{name}/products")
        scale = graph.initializer(f"{name}/scale", 1 / math.sqrt(size))
        scores = graph.node("Mul", [products, scale], f"{name}/scores")
        if self.causal:
            future = np.triu(np.full((steps, steps), -np.inf), 1)
            mask = graph.initializer(f"{name}/mask", future)
            scores = graph.node("Add", [scores, mask], f"{name}/masked")
        probabilities = graph.node("Softmax", [scores], f"{name}/shares", axis=-1)
        attended = graph.node("MatMul", [probabilities, values], f"{name}/mixed", name=name)
        steps_first = graph.node("Transpose", [attended], f"{name}/steps", perm=[0, 2, 1, 3])
        shape = graph.initializer(f"{name}/shape", [0, steps, features])
        linear_map("output", graph.node("Reshape", [steps_first, shape], f"{name}/joined"), name)

    def gradients(self, read: Pass, cotangent: Array) -> Gradients:
        x, parameters = read.input, read.parameters

        def heads(values: Array) -> Any:
            return values.reshape(*values.shape[:2], self.heads, -1).swapaxes(1, 2)

        def joined(values: Array) -> Any:
            return values.swapaxes(1, 2).reshape(x.shape)

        def mapped(role: str) -> Any:
            product = x @ parameters[f"{role}_weight"].T
            return heads(product + parameters[f"{role}_bias"] if self.bias else product)

        query, key, value = map(mapped, ("query", "key", "value"))
        scale = x.dtype.type(1 / math.sqrt(query.shape[-1]))
        scores = query @ key.swapaxes(2, 3) * scale
        if self.causal:
            scores = np.where(np.tri(x.shape[1], dtype=bool), scores, -np.inf).astype(x.dtype)
        scores = scores - scores.max(axis=-1, keepdims=True)
        shares = np.exp(scores)
        shares /= shares.sum(axis=-1, keepdims=True)
        of_mixed, output = linear_gradients(
            joined(shares @ value), parameters["output_weight"], cotangent
        )
        of_mixed = heads(of_mixed)
        of_shares = of_mixed @ value.swapaxes(2, 3)
        of_scores = shares * (of_shares - (of_shares * shares).sum(axis=-1, keepdims=True)) * scale
        of_heads = {
            "query": of_scores @ key,
            "key": of_scores.swapaxes(2, 3) @ query,
            "value": shares.swapaxes(2, 3) @ of_mixed,
        }
        gradients = {f"output_{name}": gradient for name, gradient in output.items()}
        of_x = np.zeros_like(x)
        for role, gradient in of_heads.items():
            part, of_map = linear_gradients(x, parameters[f"{role}_weight"], joined(gradient))
            of_x += part
            gradients |= {f"{role}_{name}": array for name, array in of_map.items()}
        return (of_x,), {name: array for name, array in gradients.items() if name in parameters}
