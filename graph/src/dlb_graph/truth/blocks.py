"""Layers that exporters decompose into several operators, recognised by their results.

A normalisation can be written in many ways, and each version of an exporter has its own. The way
does not matter: dlb runs the operators between two values on random numbers, and compares the
results with the layer's formula. The operators are analytic, so that agreement there means
agreement everywhere (:mod:`dlb_graph.comparing.analytic`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import permutations, product

import numpy as np
import onnx

from dlb_graph.layers import special_functions
from dlb_graph.layers.decimals import decimal, is_sixth, six_digits
from dlb_graph.layers.numbers import Array
from dlb_graph.truth.block_search import (
    LONGEST,
    NEAR,
    candidates,
    is_near,
    nominal_constants,
    real_constants,
    run_nodes,
)
from dlb_graph.truth.elementwise_blocks import DECOMPOSED_OPERATORS
from dlb_graph.truth.layout import LAYOUT
from dlb_graph.truth.linear_parts import part_of_linear
from dlb_graph.truth.recognised import Block, Recognised
from dlb_graph.truth.trace import Trace

__all__ = [
    "BLOCK_OPERATORS",
    "MEANS",
    "NORM_OPERATORS",
    "attention",
    "contains_layer",
    "exact_weights",
    "fit_affine",
    "gelu",
    "hard_sigmoid",
    "layer_normalization",
]


_ELEMENTWISE = {"Add", "Cast", "Div", "Exp", "Mul", "Neg", "Pow", "Sub", "Sum"}
_GELU_OPERATORS = LAYOUT | _ELEMENTWISE | {"Erf", "Tanh"}
_BOUNDS = ("Clip", "Max", "Min", "Relu")
_HARD_SIGMOID_OPERATORS = LAYOUT | {"Add", "Cast", "Div", "Mul", "Sum", *_BOUNDS}
_HARD_KINDS = ("HardSigmoid", "HardSwish")
#: Operators of which a normalisation has one.
MEANS = ("ReduceMean", "GlobalAveragePool")
NORM_OPERATORS = LAYOUT | _ELEMENTWISE | {"Expand", "Reciprocal", "Sqrt", *MEANS}
_ATTENTION_OPERATORS = LAYOUT | _ELEMENTWISE | {
    "Einsum", "Expand", "IsNaN", "MatMul", "Max", "Reciprocal", "ReduceMax", "ReduceSum", "Softmax",
    "Where",
}  # fmt: skip
#: Every operator that may be part of a block.
BLOCK_OPERATORS = (
    _GELU_OPERATORS
    | _HARD_SIGMOID_OPERATORS
    | NORM_OPERATORS
    | _ATTENTION_OPERATORS
    | DECOMPOSED_OPERATORS
)
#: Enough random numbers to have many in every piece of a hard sigmoid.
_SAMPLES = 64
#: Constants in GELU's formulas.
_GELU_CONSTANTS = (
    *(math.sqrt(2), math.sqrt(0.5), math.sqrt(2 / math.pi), 0.044715, math.sqrt(8 / math.pi)),
    *(0.044715 * math.sqrt(2 / math.pi), math.sqrt(math.pi / 2)),
)
#: Powers of a head's size that may scale scores, or queries and keys.
_POWERS = (0.5, -0.5, 0.25, -0.25)


def gelu(known: Recognised, end: onnx.NodeProto) -> Block | None:
    """The GELU that ends in a node, or None."""
    trace = known.trace
    for start, nodes in candidates(trace, end, _GELU_OPERATORS, ("Erf", "Tanh")):
        x, of_x = _gelu_of_noise(trace.values[start].shape)
        output = run_nodes(trace, nodes, {start: x}, end.output[0])
        nominal_values = nominal_constants(trace, nodes, _GELU_CONSTANTS)
        for approximate, expected in of_x.items():
            attributes = {"approximate": approximate}
            for index_map in _index_maps(x.shape, output.shape):
                if is_near(output.ravel(), expected[index_map.ravel()]):
                    return Block(
                        "Gelu",
                        attributes,
                        (start,),
                        nominal_values=nominal_values,
                        index_map=index_map,
                    )
            scale = _per_channel(output, expected.reshape(output.shape))
            # Only if a constant scales it: GELU(x) + GELU(x) is scaled by two as well.
            if scale is not None and any(
                constant.size == scale.size for constant in real_constants(trace, nodes).values()
            ):
                return Block(
                    "Gelu",
                    attributes,
                    (start,),
                    nominal_values=nominal_values,
                    weights={"scale": scale},
                )
    return None


@lru_cache(maxsize=2)
def _gelu_of_noise(shape: tuple[int, ...]) -> tuple[Array, Mapping[str, Array]]:
    """Noise, and both GELUs of it in a row: the layers of a network have few shapes, and erf takes its time."""
    x = 2 * np.random.default_rng(0).standard_normal(shape)
    return x, {kind: special_functions.gelu(x.ravel(), kind) for kind in ("none", "tanh")}


def hard_sigmoid(known: Recognised, end: onnx.NodeProto) -> Block | None:
    """The hard sigmoid, or its product with its input, that ends in a node, or None.

    A sequence of sums, products and bounds, each with one number, is a straight line between two
    bounds. Two such functions are equal if they agree between the bounds and beyond each of them.
    """
    trace = known.trace
    random = np.random.default_rng(0)
    for start, nodes in candidates(trace, end, _HARD_SIGMOID_OPERATORS, _BOUNDS):
        kind = _hard_kind(trace, start, nodes)
        inner_blocks = (known.blocks.get(name) for node in nodes for name in node.output)
        # A hard sigmoid among the nodes is a layer already, and the rest is another layer.
        if kind is None or any(
            block is not None and block.kind in _HARD_KINDS for block in inner_blocks
        ):
            continue
        constants = real_constants(trace, nodes).values()
        if any((constant != constant.flat[:1]).any() for constant in constants):
            continue
        # A slope of 0.1666667 is none of a sixth, though it is near.
        slopes = (float(constant.flat[0]) for constant in constants if constant.size)
        if any(abs(slope - 1 / 6) < 1e-5 and not is_sixth(slope) for slope in slopes):
            continue
        input_value = trace.values[start]
        draws = [
            4 * random.standard_normal(input_value.shape)
            for _ in range(-(-_SAMPLES // input_value.size))
        ]
        outputs = [run_nodes(trace, nodes, {start: x}, end.output[0]).ravel() for x in draws]
        x = np.concatenate([draw.ravel() for draw in draws])
        expected = np.clip(x / 6 + 0.5, 0.0, 1.0)
        if is_near(np.concatenate(outputs), expected if kind == "HardSigmoid" else x * expected):
            intermediates = tuple(name for node in nodes if node is not end for name in node.output)
            return Block(
                kind,
                {},
                (start,),
                nominal_values=nominal_constants(trace, nodes, (1 / 6,)),
                intermediates=intermediates,
            )
    return None


def _hard_kind(trace: Trace, start: str, nodes: list[onnx.NodeProto]) -> str | None:
    """The layer that nodes may be: ``HardSigmoid``, ``HardSwish`` or None.

    Each node must read one value. One may be the product of a value and the nodes' input; no bound
    may follow it.
    """
    two_inputs = [index for index, node in enumerate(nodes) if len(trace.live_inputs(node)) > 1]
    bounds = sum(2 if node.op_type == "Clip" else node.op_type in _BOUNDS for node in nodes)
    if (
        not any(node.op_type in ("Add", "Sum") for node in nodes)
        or bounds < 2
        or len(two_inputs) > 1
    ):
        return None
    if not two_inputs:
        return "HardSigmoid"
    product, *after = nodes[two_inputs[0] :]
    if product.op_type != "Mul" or start not in product.input:
        return None
    return None if any(node.op_type in _BOUNDS for node in after) else "HardSwish"


def _index_maps(shape: tuple[int, ...], output_shape: tuple[int, ...]) -> Iterator[Array]:
    """Positions of a value's numbers in another shape: reshaped, and with its axes transposed."""
    positions = np.arange(math.prod(shape)).reshape(shape)
    yield positions.reshape(output_shape)
    for axes in permutations(range(len(shape))):
        if axes != tuple(range(len(shape))) and tuple(shape[axis] for axis in axes) == output_shape:
            yield positions.transpose(axes)


def _per_channel(output: Array, expected: Array) -> Array | None:
    """The factor of a value's second or last axis, in the value's rank, or None if there is none."""
    for axis in {1, output.ndim - 1}:
        other_axes = tuple(other for other in range(output.ndim) if other != axis)
        scale = np.sum(output * expected, axis=other_axes) / np.sum(expected**2, axis=other_axes)
        factors = scale.reshape([-1 if other == axis else 1 for other in range(output.ndim)])
        if len(scale) > 1 and is_near(output.ravel(), (factors * expected).ravel()):
            return np.asarray(factors)
    return None


def layer_normalization(known: Recognised, end: onnx.NodeProto) -> Block | None:
    """The layer normalisation over the last axis that ends in a node, or None.

    Epsilon is one of the numbers that the operators read. Scale and bias are fitted to the output
    of many rows. Exporters add up constants: the bias may include a position table, and then
    differs at each position.
    """
    random = np.random.default_rng(0)
    trace = known.trace
    live = all(name in trace.live for name in end.input)
    for start, nodes in candidates(trace, end, NORM_OPERATORS, MEANS):
        if contains_layer(known, nodes):
            continue
        shape = trace.values[start].shape
        constants = real_constants(trace, nodes)
        numbers = {
            decimal(float(constant.ravel()[0]))
            for constant in constants.values()
            if constant.size == 1
        }
        # Rows of different magnitudes, so that epsilon affects only some of them.
        rows = [
            random.standard_normal(shape) * 10.0 ** random.uniform(-4, 1, (*shape[:-1], 1))
            for _ in range(4)
        ]
        output = np.concatenate(
            [
                run_nodes(trace, nodes, {start: x}, end.output[0]).reshape(-1, shape[-1])
                for x in rows
            ]
        )
        x = np.concatenate([row.reshape(-1, shape[-1]) for row in rows])
        for epsilon in sorted(number for number in numbers if 0 < number < 1):
            deviation = np.sqrt(x.var(axis=1, keepdims=True) + epsilon)
            normal = (x - x.mean(axis=1, keepdims=True)) / deviation
            scale, bias = fit_affine(normal, output)
            table = None
            if live and len(shape) == 3 and not is_near(output, scale * normal + bias):
                at_positions = (array.reshape(-1, *shape[1:]) for array in (normal, output))
                scales, table = fit_affine(*at_positions)
                scale, bias = scales.mean(axis=0), np.zeros(shape[-1])
            shift = bias if table is None else np.tile(table, (len(output) // len(table), 1))
            if is_near(output, scale * normal + shift):
                attributes = {"features": shape[-1], "epsilon": six_digits(epsilon)}
                weights, sources = exact_weights(constants, scale=scale, bias=bias)
                return Block(
                    "LayerNormalization",
                    attributes,
                    (start,),
                    nominal_constants(trace, nodes, (epsilon, 1 / shape[-1])),
                    weights,
                    None if table is None else exact_weights(constants, table=table)[0]["table"],
                    sources=sources,
                )
    return None


def attention(known: Recognised, end: onnx.NodeProto) -> Block | None:
    """The attention whose last matrix product is a node, or None.

    It reads queries, keys and values from linear maps or other values. Their order is found by
    comparison with the formula. Layout operators may follow the node.
    """
    trace = known.trace
    if len(trace.live_inputs(end)) != 2 or len(end.input) != 2:
        return None
    nodes = _attention_nodes(known, end)
    intermediates = {name for node in nodes for name in node.output}
    inputs = sorted({name for node in nodes for name in trace.live_inputs(node)} - intermediates)
    if not any(node.op_type in ("Softmax", "Exp") for node in nodes) or len(inputs) > 3:
        return None
    # Which rows a mask leaves empty does not depend on the input. What else is chosen may, unseen on noise.
    choices = [node for node in nodes if node.op_type == "Where" and node.input[0] in trace.live]
    tests = [trace.producers[node.input[0]] for node in choices]
    tests += [node for node in nodes if node.op_type == "IsNaN"]
    if any(
        test.op_type != "IsNaN" or trace.producers[test.input[0]].op_type != "Softmax"
        for test in tests
    ):
        return None
    random = np.random.default_rng(0)
    input_values = {name: random.standard_normal(trace.values[name].shape) for name in inputs}
    output = run_nodes(trace, nodes, input_values, end.output[0])
    linear_parts = {
        name: part.index_map for name in inputs if (part := part_of_linear(known, name)) is not None
    }
    width = _width(known, inputs[0])
    steps = output.size // trace.batch // width
    if trace.batch * steps * width != output.size or {x.size for x in input_values.values()} != {
        output.size
    }:
        return None
    reordered = {
        name: _reorder(x, linear_parts.get(name)).reshape(trace.batch, steps, width)
        for name, x in input_values.items()
    }
    product_sizes = {trace.values[name].size for name in end.input}
    heads = [n for n in range(1, width + 1) if trace.batch * n * steps * steps in product_sizes]
    orders = permutations(inputs) if len(inputs) == 3 else product(inputs, repeat=3)
    for names, count, causal in product(orders, heads, (False, True)):
        if width % count == 0:
            queries, keys, values = (reordered[name] for name in names)
            expected = _attention_output(queries, keys, values, count, causal)
            matches = [
                is_near(output.ravel(), candidate.ravel()) for candidate in _head_layouts(expected)
            ]
            layout = matches.index(True) if any(matches) else None
            if layout is not None:
                size = width // count
                positions = np.arange(output.size).reshape(trace.batch, steps, count, size)
                return Block(
                    "Attention",
                    {"heads": count, "causal": causal},
                    names,
                    nominal_values=nominal_constants(
                        trace, nodes, [size**power for power in _POWERS]
                    ),
                    index_map=_head_layouts(positions.swapaxes(1, 2))[layout].reshape(output.shape),
                    intermediates=tuple(intermediates),
                    linear_parts=linear_parts,
                )
    return None


def contains_layer(known: Recognised, nodes: list[onnx.NodeProto]) -> bool:
    """Whether nodes contain a layer that other nodes read too, or that is added to itself.

    A layer that only waits for a constant to be added does not count.
    """
    inner_names = {name for node in nodes for name in node.output}
    # With one feature, a variance is a normalisation too: it is constant.
    inner_layers = {
        name
        for name, block in known.blocks.items()
        if name in inner_names and block.attributes.get("features") != 1
    }
    return any(
        not inner_layers.isdisjoint(node.input)
        and (inner_names.isdisjoint(node.output) or len(known.trace.live_inputs(node)) > 1)
        for node in (known.trace.nodes if inner_layers else ())
    )


def _attention_nodes(known: Recognised, end: onnx.NodeProto) -> list[onnx.NodeProto]:
    """The nodes before a node, up to linear maps, with the layout operators on their outputs."""
    trace = known.trace
    names, waiting = set(end.output), [end]
    while waiting:
        for name in trace.live_inputs(waiting.pop()):
            node = trace.producers.get(name)
            if node is None or node.op_type not in _ATTENTION_OPERATORS or name in names:
                continue
            is_linear = known.linear_output(name) is not None
            # A product with one, such as the scale of heads with one feature, is the same value.
            source = known.original(name)
            is_copy = any(known.original(read) == source for read in trace.live_inputs(node))
            if node.op_type in LAYOUT or is_copy or not is_linear:
                names.add(name)
                waiting.append(node)
        if len(names) > LONGEST:
            return []
    return [node for node in trace.nodes if not names.isdisjoint(node.output)]


def _width(known: Recognised, name: str) -> int:
    """The number of features of a value [N, T, features], whatever shape it has."""
    part, linear = part_of_linear(known, name), known.linear_output(name)
    if part is not None:
        return part.output.features
    return int(known.trace.values[name].shape[-1]) if linear is None else linear.features


def _reorder(numbers: Array, index_map: Array | None) -> Array:
    """Numbers in the order of an index map; unchanged without one."""
    if index_map is None:
        return numbers
    ordered = np.empty(numbers.size)
    ordered[index_map.ravel()] = numbers.ravel()
    return ordered


def _attention_output(
    queries: Array, keys: Array, values: Array, heads: int, causal: bool
) -> Array:
    """softmax(Q K^T / sqrt(d)) V of each head, [N, heads, T, d], from three [N, T, features]."""
    batch, steps, width = queries.shape
    q, k, v = (
        array.reshape(batch, steps, heads, -1).swapaxes(1, 2) for array in (queries, keys, values)
    )
    scores = q @ k.swapaxes(2, 3) / math.sqrt(width // heads)
    if causal:
        scores = scores + np.triu(np.full((steps, steps), -np.inf), 1)
    probabilities = np.exp(scores - scores.max(axis=3, keepdims=True))
    attended: Array = probabilities / probabilities.sum(axis=3, keepdims=True) @ v
    return attended


def _head_layouts(heads: Array) -> tuple[Array, ...]:
    """The layouts in which [N, heads, T, d] may come."""
    return heads, heads.swapaxes(2, 3), heads.swapaxes(1, 2), heads.transpose(0, 3, 1, 2)


def fit_affine(normal: Array, output: Array) -> tuple[Array, Array]:
    """The scale and bias [...] that bring ``normal`` [rows, ...] closest to the output.

    The scale of constant values is 1.
    """
    input_mean, output_mean = normal.mean(axis=0), output.mean(axis=0)
    variance = ((normal - input_mean) ** 2).sum(axis=0)
    covariance = ((normal - input_mean) * (output - output_mean)).sum(axis=0)
    scale = np.divide(covariance, variance, out=np.ones_like(covariance), where=variance > 0)
    return scale, output_mean - scale * input_mean


def exact_weights(
    constants: dict[str, Array], **fitted: Array
) -> tuple[dict[str, Array], dict[str, str]]:
    """Fitted weights without rounding, each one of the constants, or ones or zeros, if close.

    Returns:
        the weights, and the name of the constant that each is, the last of equal ones; "" for ones and zeros.
    """
    sources = {}
    for role, array in fitted.items():
        plain = (("", np.ones_like(array)), ("", np.zeros_like(array)))
        for name, constant in (*reversed(constants.items()), *plain):
            exact = constant.reshape(array.shape) if constant.size == array.size else None
            if exact is not None and np.allclose(exact, array, NEAR, NEAR):
                fitted[role], sources[role] = exact, name
                break
    return fitted, sources
