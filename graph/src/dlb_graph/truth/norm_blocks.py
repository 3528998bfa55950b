"""Decomposed normalisations of groups and by the root mean square, recognised by their results."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
import onnx

from dlb_graph.layers.decimals import decimal, six_digits
from dlb_graph.layers.numbers import Array
from dlb_graph.layers.special_functions import normalised
from dlb_graph.truth.block_search import (
    NEAR,
    candidates,
    is_near,
    nominal_constants,
    real_constants,
    run_nodes,
)
from dlb_graph.truth.blocks import MEANS, NORM_OPERATORS, contains_layer, exact_weights, fit_affine
from dlb_graph.truth.recognised import Block, Recognised
from dlb_graph.truth.trace import Trace, attributes_of

__all__ = ["group_normalization", "rms_normalization"]


_INSTANCE = "InstanceNormalization"
#: How many batches of random numbers are compared, and fewer of more numbers than this.
_DRAWS, _NUMBERS = 4, 1 << 22
#: Whether channels come last.
_ORDERS = (False, True)


def group_normalization(known: Recognised, end: onnx.NodeProto) -> Block | None:
    """The group normalisation that ends in a node, or None.

    Its scale is one of the constants, with a number for each channel; of several that are ones, the one with
    the most numbers. Epsilon is one of the numbers that the operators read, or an attribute. Channels may
    come first or last in the input and in the output, on one axis or several: only the order of numbers
    counts. One group of features without places is a layer normalisation.
    """
    trace = known.trace
    for start, nodes in candidates(trace, end, NORM_OPERATORS | {_INSTANCE}, (*MEANS, _INSTANCE)):
        constants = real_constants(trace, nodes)
        elements = trace.elements(start)
        sizes = {c.size for c in constants.values() if c.size and elements % c.size == 0}
        choices = [
            (channels, groups, epsilon)
            for channels, groups, epsilon in product(
                sorted(sizes, reverse=True),
                _group_counts(trace, nodes),
                _epsilons(trace, nodes, constants),
            )
            if channels % groups == 0 and groups < elements
        ]
        if not choices or contains_layer(known, nodes):
            continue
        inputs, outputs = _runs(trace, start, nodes, end)
        for (channels, groups, epsilon), first, last in product(choices, _ORDERS, _ORDERS):
            places = elements // channels
            if places == 1 and (first or last):
                continue
            x = _channels_first(inputs, channels, first)
            output = _channels_first(outputs, channels, last).swapaxes(1, 2).reshape(-1, channels)
            normal = normalised(x, groups, epsilon).swapaxes(1, 2).reshape(-1, channels)
            scale, bias = fit_affine(normal, output)
            vectors = [c.ravel() for c in constants.values() if c.size == channels]
            is_constant = any(np.allclose(vector, scale, NEAR, NEAR) for vector in vectors)
            if not is_constant or not is_near(output, scale * normal + bias):
                continue
            weights, sources = exact_weights(constants, scale=scale, bias=bias)
            nominal_values = nominal_constants(trace, nodes, (epsilon, groups / elements))
            if groups == 1 and places == 1:
                attributes: dict[str, Any] = {"features": channels, "epsilon": six_digits(epsilon)}
                return Block(
                    "LayerNormalization",
                    attributes,
                    (start,),
                    nominal_values,
                    weights,
                    sources=sources,
                )
            return Block(
                "GroupNormalization",
                {"channels": channels, "groups": groups, "epsilon": six_digits(epsilon)},
                (start,),
                nominal_values,
                weights,
                index_map=_index_map(trace, end, channels, last),
                channels_last=first,
                sources=sources,
            )
    return None


def rms_normalization(known: Recognised, end: onnx.NodeProto) -> Block | None:
    """The normalisation by the root mean square over the last axis that ends in a node, or None.

    Of a layer normalisation, :func:`~dlb_graph.truth.blocks.layer_normalization` is asked first: it divides
    the value less its mean in this way.
    """
    trace = known.trace
    operators, needed = NORM_OPERATORS | {"ReduceSum"}, (*MEANS, "ReduceSum")
    for start, nodes in candidates(trace, end, operators, needed):
        if sum(node.op_type in needed for node in nodes) != 1 or contains_layer(known, nodes):
            continue
        constants, features = real_constants(trace, nodes), trace.values[start].shape[-1]
        epsilons = _epsilons(trace, nodes, constants)
        if not epsilons:
            continue
        x, output = (array.reshape(-1, features) for array in _runs(trace, start, nodes, end))
        squares = (x * x).mean(axis=1, keepdims=True)
        for epsilon in epsilons:
            normal = x / np.sqrt(squares + epsilon)
            scale = (normal * output).sum(axis=0) / (normal * normal).sum(axis=0)
            if is_near(output, scale * normal):
                weights, sources = exact_weights(constants, scale=scale)
                return Block(
                    "RMSNormalization",
                    {"features": features, "epsilon": six_digits(epsilon)},
                    (start,),
                    nominal_constants(trace, nodes, (epsilon, 1 / features)),
                    weights,
                    sources=sources,
                )
    return None


def _group_counts(trace: Trace, nodes: list[onnx.NodeProto]) -> list[int]:
    """How many numbers the statistics of a sample may be."""
    counts = {
        trace.values[node.input[1]].size
        if node.op_type == _INSTANCE
        else trace.elements(node.output[0])
        for node in nodes
        if node.op_type in (*MEANS, _INSTANCE)
    }
    return sorted(counts - {0})


def _epsilons(
    trace: Trace, nodes: list[onnx.NodeProto], constants: Mapping[str, Array]
) -> list[float]:
    numbers = {
        decimal(float(constant.ravel()[0])) for constant in constants.values() if constant.size == 1
    }
    numbers |= {
        decimal(attributes_of(node).get("epsilon", 1e-5))
        for node in nodes
        if node.op_type == _INSTANCE
    }
    return sorted(number for number in numbers if 0 < number < 1)


def _runs(
    trace: Trace, start: str, nodes: list[onnx.NodeProto], end: onnx.NodeProto
) -> tuple[Array, Array]:
    """Random inputs of nodes and their outputs, [samples, elements].

    Samples have different magnitudes, so that epsilon affects only some of them.
    """
    random = np.random.default_rng(0)
    value, elements = trace.values[start], trace.elements(start)
    draws = max(1, min(_DRAWS, _NUMBERS // value.size))
    inputs, outputs = [], []
    for magnitudes in np.logspace(-3, 1, draws * trace.batch).reshape(draws, -1, 1):
        x = random.standard_normal((trace.batch, elements)) * magnitudes
        inputs.append(x)
        output = run_nodes(trace, nodes, {start: x.reshape(value.shape)}, end.output[0])
        outputs.append(output.reshape(trace.batch, elements))
    return np.concatenate(inputs), np.concatenate(outputs)


def _channels_first(numbers: Array, channels: int, last: bool) -> Array:
    """[samples, elements], with channels first or last, as [samples, channels, places]."""
    shape = (len(numbers), -1, channels) if last else (len(numbers), channels, -1)
    ordered: Array = numbers.reshape(shape)
    return ordered.swapaxes(1, 2) if last else ordered


def _index_map(trace: Trace, end: onnx.NodeProto, channels: int, last: bool) -> Array:
    """Where each number of the output lies in [N, channels, places]."""
    value = trace.values[end.output[0]]
    positions = np.arange(value.size).reshape(trace.batch, channels, -1)
    index_map: Array = (positions.swapaxes(1, 2) if last else positions).reshape(value.shape)
    return index_map
