"""What exporters fold a batch normalisation to: the numbers of the layer before it, scaled and shifted."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dlb_graph.layers.decimals import decimal
from dlb_graph.layers.numbers import Array
from dlb_graph.truth.trace import Trace, attributes_of

__all__ = ["foldings", "source_initialiser"]


def foldings(traced: Trace) -> Iterator[tuple[Array, set[str]]]:
    """The arrays that each batch normalisation may be folded to, and the names of their weights.

    With a factor ``k = scale / sqrt(variance + epsilon)`` for each channel: ``k`` itself and the
    shift ``bias - mean * k``; the weights of the layer before times ``k``, and its bias ``b`` as
    ``(b - mean) * k + bias``.
    """
    for node in traced.nodes:
        parameters = [traced.constant(node, index) for index in (1, 2, 3, 4)]
        if node.op_type != "BatchNormalization" or any(
            parameter is None for parameter in parameters
        ):
            continue
        scale, bias, mean, variance = (
            np.asarray(parameter, np.float64) for parameter in parameters
        )
        epsilon = decimal(attributes_of(node).get("epsilon", 1e-5))
        factor = scale / np.sqrt(variance + epsilon)
        names = {source_initialiser(traced, name) or name for name in node.input[1:5]}
        yield factor, names
        yield bias - mean * factor, names
        layer = traced.producers.get(node.input[0])
        layer_bias = np.zeros_like(bias)
        if layer is not None and layer.op_type == "Add":
            constants = [index for index in (0, 1) if layer.input[index] not in traced.live]
            if constants and traced.values[layer.input[constants[0]]].size == bias.size:
                name = layer.input[constants[0]]
                layer_bias = traced.values[name].ravel()
                names = names | {source_initialiser(traced, name) or name}
                layer = traced.producers.get(layer.input[1 - constants[0]])
        if layer is None or layer.op_type not in ("Conv", "ConvTranspose", "Gemm", "MatMul"):
            continue
        layer_weight, bias_constant = traced.constant(layer, 1), traced.constant(layer, 2)
        if layer_weight is None or layer_weight.ndim < 2:
            continue
        if bias_constant is not None:
            layer_bias = bias_constant.ravel()
        names = names | {
            source_initialiser(traced, name) or name for name in layer.input[1:] if name
        }
        if layer.op_type == "ConvTranspose":
            groups = attributes_of(layer).get("group", 1)
            if layer_weight.shape[1] * groups == factor.size == layer_bias.size:
                inner = (1,) * (layer_weight.ndim - 2)
                grouped = layer_weight.reshape(groups, -1, *layer_weight.shape[1:])
                folded = grouped * factor.reshape(groups, 1, -1, *inner)
                yield folded.reshape(layer_weight.shape), names
                yield (layer_bias - mean) * factor + bias, names
            continue
        outputs_last = layer.op_type == "MatMul" or (
            layer.op_type == "Gemm" and not attributes_of(layer).get("transB", 0)
        )
        if layer_weight.shape[-1 if outputs_last else 0] == factor.size == layer_bias.size:
            yield (
                layer_weight
                * (factor if outputs_last else factor.reshape(-1, *(1,) * (layer_weight.ndim - 1))),
                names,
            )
            yield (layer_bias - mean) * factor + bias, names


def source_initialiser(traced: Trace, name: str) -> str:
    """The only initialiser with several real numbers that a constant is computed from; else ""."""
    pending, sources, seen = [name], set(), set()
    while pending:
        value_name = pending.pop()
        if value_name in seen or not value_name:
            continue
        seen.add(value_name)
        node = traced.producers.get(value_name)
        if node is not None:
            pending += node.input
        elif traced.values[value_name].size > 1 and traced.values[value_name].dtype.kind == "f":
            sources.add(value_name)
    return sources.pop() if len(sources) == 1 else ""
