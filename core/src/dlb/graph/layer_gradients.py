"""The gradients of one layer: of its inputs and its parameters, from that of its output.

Where a layer has no derivative, :doc:`/reference/workloads` says which number counts: 0 for ReLU and ReLU6 at
their bounds, and for max pooling the first of the largest elements of a window, in row-major order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from dlb.graph.elementwise import slope as function_slope
from dlb.graph.linear_gradients import linear_gradients
from dlb.graph.operators import erf, sigmoid
from dlb.graph.primitive_gradients import (
    binary_gradients,
    gather_elements_gradients,
    reduce_gradient,
    resize_gradient,
    shared_gradient,
    softmax_gradient,
    where_gradients,
)
from dlb.graph.recurrent_gradients import gru_gradients, lstm_gradients, rnn_gradients
from dlb.graph.transposed import places_of, spread_gradients
from dlb.graph.windows import Window, padded, reduced, window_of, windows
from dlb.workload import layers as L
from dlb.workload.lower import lower_layer, resize_taps
from dlb_worker.masks import kept_places

__all__ = ["Pass", "layer_gradients"]

Array = npt.NDArray[Any]
Found = tuple[tuple["Array | None", ...], dict[str, Array]]
LayerT = TypeVar("LayerT", bound=L.Layer)
#: Every sample and channel.
_EACH: tuple[Any, ...] = (slice(None), slice(None))
#: Elements of the columns of a convolution that are computed at once.
_COLUMN_ELEMENTS = 1 << 24


@dataclass(frozen=True)
class Pass:
    """What a layer read.

    Attributes:
        inputs: values of its inputs, [batch, ...].
        parameters: by role, in canonical layout.
        mask: zeros and ones [rows, ...] of a dropout; None if it is the identity.
    """

    inputs: tuple[Array, ...]
    parameters: dict[str, Array]
    mask: Array | None = None

    @property
    def input(self) -> Array:
        """The value of the only input."""
        return self.inputs[0]


Rule = Callable[[Any, Pass, Array], Found]
_RULES: dict[type, Rule] = {}


def layer_gradients(layer: L.Layer, read: Pass, cotangent: Array) -> Found:
    """Gradients of the inputs, in order (None for integers), and of the parameters by role.

    Args:
        layer: the layer's description; batch normalisation is in training mode.
        cotangent: the gradient of the layer's output.
    """
    return _RULES[type(layer)](layer, read, cotangent)


def _rule(*kinds: type) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        _RULES.update(dict.fromkeys(kinds, rule))
        return rule

    return register


def _elementwise(kind: type, slope: Callable[[Any, Array], Array]) -> None:
    """Register a layer that applies a function to each element, by the function's derivative."""
    _RULES[kind] = lambda layer, read, cotangent: ((cotangent * slope(layer, read.input),), {})


def _gelu_slope(layer: L.GELU, x: Array) -> Any:
    if layer.approximate == "tanh":
        root = math.sqrt(2 / math.pi)
        curve = np.tanh(root * (x + 0.044715 * x * x * x))
        slope = 0.5 * (1 + curve)
        return slope + 0.5 * x * (1 - curve * curve) * root * (1 + 3 * 0.044715 * x * x)
    density = np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    return (0.5 * (1 + erf(x / math.sqrt(2))) + x * density).astype(x.dtype, copy=False)


def _sigmoid_slope(layer: L.Sigmoid, x: Array) -> Any:
    """In float32 from its value alone, as frameworks do, which keep no more: what it lacks of 1 is rounded."""
    value = sigmoid(x)
    return value * (1 - value) if x.dtype == np.float32 else value * sigmoid(-x)


_elementwise(L.ReLU, lambda layer, x: x > 0)
_elementwise(L.ReLU6, lambda layer, x: (x > 0) & (x < 6))
_elementwise(L.Tanh, lambda layer, x: 1 - np.tanh(x) ** 2)
_elementwise(L.Sigmoid, _sigmoid_slope)
_elementwise(L.HardSigmoid, lambda layer, x: ((x > -3) & (x < 3)) * x.dtype.type(1 / 6))
_elementwise(L.GELU, _gelu_slope)
_elementwise(L.Elementwise, function_slope)


@_rule(L.PReLU)
def _prelu(layer: L.PReLU, read: Pass, cotangent: Array) -> Found:
    x = read.input
    slope = read.parameters["slope"].reshape(-1, *(1,) * (x.ndim - 2))
    below = x <= 0
    of_slope = np.where(below, cotangent * x, x.dtype.type(0))
    others = tuple(axis for axis in range(x.ndim) if axis != 1 or layer.shared)
    gradients = {"slope": of_slope.sum(axis=others).reshape(-1)}
    return (np.where(below, cotangent * slope, cotangent),), gradients


@_rule(L.Dropout)
def _dropout(layer: L.Dropout, read: Pass, cotangent: Array) -> Found:
    if read.mask is None:
        return (cotangent,), {}
    mask = read.mask[: len(cotangent)].astype(cotangent.dtype)
    return (cotangent * mask / cotangent.dtype.type(1 - layer.rate),), {}


@_rule(L.Add)
def _add(layer: L.Add, read: Pass, cotangent: Array) -> Found:
    return (cotangent, cotangent), {}


@_rule(L.Mul)
def _mul(layer: L.Mul, read: Pass, cotangent: Array) -> Found:
    first, second = read.inputs
    of_second = cotangent * first
    if second.shape != first.shape:
        of_second = of_second.sum(axis=tuple(range(2, first.ndim)), keepdims=True)
    return (cotangent * second, of_second), {}


@_rule(L.Binary)
def _binary(layer: L.Binary, read: Pass, cotangent: Array) -> Found:
    first, second = read.inputs
    return binary_gradients(layer, first, second, cotangent), {}


@_rule(L.Where)
def _where(layer: L.Where, read: Pass, cotangent: Array) -> Found:
    return where_gradients(layer, read.inputs, cotangent), {}


@_rule(L.MatMul)
def _matmul(layer: L.MatMul, read: Pass, cotangent: Array) -> Found:
    first, second = read.inputs
    return (cotangent @ second.swapaxes(-1, -2), first.swapaxes(-1, -2) @ cotangent), {}


@_rule(L.Scale)
def _scale(layer: L.Scale, read: Pass, cotangent: Array) -> Found:
    scale = read.parameters["scale"]
    return (cotangent * scale,), {"scale": shared_gradient(cotangent * read.input, scale.shape)}


@_rule(L.Shift)
def _shift(layer: L.Shift, read: Pass, cotangent: Array) -> Found:
    return (cotangent,), {"bias": shared_gradient(cotangent, layer.sizes)}


@_rule(L.Mask)
def _mask(layer: L.Mask, read: Pass, cotangent: Array) -> Found:
    kept = kept_places(lower_layer(layer, read.input.shape[1:]))
    return (np.where(kept, cotangent, cotangent.dtype.type(0)),), {}


@_rule(L.Resize)
def _resize(layer: L.Resize, read: Pass, cotangent: Array) -> Found:
    return (resize_gradient(resize_taps(layer, read.input.shape[1:]), cotangent),), {}


@_rule(L.Softmax)
def _softmax(layer: L.Softmax, read: Pass, cotangent: Array) -> Found:
    return (softmax_gradient(layer, read.input, cotangent),), {}


@_rule(L.Reduce)
def _reduce(layer: L.Reduce, read: Pass, cotangent: Array) -> Found:
    return (reduce_gradient(layer, read.input, cotangent),), {}


@_rule(L.TopK)
def _top_k(layer: L.TopK, read: Pass, cotangent: Array) -> Found:
    return (np.zeros_like(read.input),), {}


@_rule(L.GatherElements)
def _gather_elements(layer: L.GatherElements, read: Pass, cotangent: Array) -> Found:
    return gather_elements_gradients(layer, read.inputs, cotangent), {}


@_rule(L.Concat)
def _concat(layer: L.Concat, read: Pass, cotangent: Array) -> Found:
    ends = np.cumsum([part.shape[layer.axis] for part in read.inputs])[:-1]
    return tuple(np.split(cotangent, ends, axis=layer.axis)), {}


@_rule(L.Flatten, L.Reshape)
def _reshape(layer: L.Flatten | L.Reshape, read: Pass, cotangent: Array) -> Found:
    return (cotangent.reshape(read.input.shape),), {}


@_rule(L.Transpose)
def _transpose(layer: L.Transpose, read: Pass, cotangent: Array) -> Found:
    return (cotangent.transpose(np.argsort((0, *layer.axes))),), {}


@_rule(L.ReduceMean)
def _reduce_mean(layer: L.ReduceMean, read: Pass, cotangent: Array) -> Found:
    spread = np.expand_dims(
        cotangent / cotangent.dtype.type(read.input.shape[layer.axis]), layer.axis
    )
    return (np.broadcast_to(spread, read.input.shape),), {}


@_rule(L.GlobalAveragePool)
def _global_average(layer: L.GlobalAveragePool, read: Pass, cotangent: Array) -> Found:
    count = cotangent.dtype.type(math.prod(read.input.shape[2:]))
    return (np.broadcast_to(cotangent / count, read.input.shape),), {}


def _placed(read: Pass, cotangent: Array, index: tuple[Any, ...]) -> Found:
    """The gradient of a layer that takes some places of its input, none of them twice."""
    gradient = np.zeros(read.input.shape, cotangent.dtype)
    gradient[index] = cotangent
    return (gradient,), {}


@_rule(L.Select)
def _select(layer: L.Select, read: Pass, cotangent: Array) -> Found:
    return _placed(read, cotangent, (slice(None),) * layer.axis + (layer.index,))


@_rule(L.Slice)
def _slice(layer: L.Slice, read: Pass, cotangent: Array) -> Found:
    parts = map(slice, layer.starts, layer.ends, layer.steps or (1,) * len(layer.starts))
    return _placed(read, cotangent, (slice(None), *parts))


@_rule(L.Pad)
def _pad(layer: L.Pad, read: Pass, cotangent: Array) -> Found:
    sizes = read.input.shape[1:]
    inner = (slice(before, before + size) for before, size in zip(layer.pads, sizes))
    return (cotangent[(slice(None),) + tuple(inner)],), {}


@_rule(L.Gather)
def _gather(layer: L.Gather, read: Pass, cotangent: Array) -> Found:
    gradient = np.zeros(read.input.shape, cotangent.dtype)
    before = (slice(None),) * layer.axis
    for place, index in enumerate(layer.indices):
        gradient[before + (index,)] += cotangent[before + (place,)]
    return (gradient,), {}


@_rule(L.Embedding)
def _embedding(layer: L.Embedding, read: Pass, cotangent: Array) -> Found:
    gradient = np.zeros(read.parameters["weight"].shape, cotangent.dtype)
    np.add.at(gradient, read.input.reshape(-1), cotangent.reshape(-1, cotangent.shape[-1]))
    return (None,), {"weight": gradient}


@_rule(L.PositionEmbedding)
def _position_embedding(layer: L.PositionEmbedding, read: Pass, cotangent: Array) -> Found:
    return (cotangent,), {"weight": cotangent.sum(axis=0)}


@_rule(L.Linear)
def _linear(layer: L.Linear, read: Pass, cotangent: Array) -> Found:
    of_input, gradients = linear_gradients(read.input, read.parameters["weight"], cotangent)
    return (of_input,), {"weight": gradients["weight"], **_bias(layer.bias, gradients)}


def _bias(present: bool, gradients: dict[str, Array]) -> dict[str, Array]:
    return {"bias": gradients["bias"]} if present else {}


@_rule(L.BatchNorm)
def _batch_norm(layer: L.BatchNorm, read: Pass, cotangent: Array) -> Found:
    axes = (0, *range(2, cotangent.ndim))
    shape = (1, -1, *(1,) * (cotangent.ndim - 2))
    return _normalisation(read, cotangent, axes, axes, shape, layer.epsilon)


@_rule(L.LayerNorm)
def _layer_norm(layer: L.LayerNorm, read: Pass, cotangent: Array) -> Found:
    others = tuple(range(cotangent.ndim - 1))
    return _normalisation(read, cotangent, (-1,), others, (-1,), layer.epsilon)


@_rule(L.GroupNorm)
def _group_norm(layer: L.GroupNorm, read: Pass, cotangent: Array) -> Found:
    x, groups = read.input, layer.groups
    shape = (len(x), groups, x.shape[1] // groups, math.prod(x.shape[2:]))
    parts = replace(read, inputs=(x.reshape(shape),))
    of_channels = (1, groups, shape[2], 1)
    (of_parts,), gradients = _normalisation(
        parts, cotangent.reshape(shape), (2, 3), (0, 3), of_channels, layer.epsilon
    )
    assert of_parts is not None
    return (of_parts.reshape(x.shape),), {role: array.ravel() for role, array in gradients.items()}


@_rule(L.RMSNorm)
def _rms_norm(layer: L.RMSNorm, read: Pass, cotangent: Array) -> Found:
    x = read.input
    mean = (x * x).mean(axis=-1, keepdims=True)
    inverse = (1 / np.sqrt(mean + x.dtype.type(layer.epsilon))).astype(x.dtype)
    normal, of_normal = x * inverse, cotangent * read.parameters["scale"]
    of_input = inverse * (of_normal - normal * (of_normal * normal).mean(axis=-1, keepdims=True))
    others = tuple(range(x.ndim - 1))
    return (of_input,), {"scale": (cotangent * normal).sum(axis=others)}


def _normalisation(
    read: Pass,
    cotangent: Array,
    axes: tuple[int, ...],
    others: tuple[int, ...],
    shape: tuple[int, ...],
    epsilon: float,
) -> Found:
    """Gradients of a normalisation over ``axes``; its parameters' are sums over ``others``."""
    x, scale = read.input, read.parameters["scale"].reshape(shape)
    centred = x - x.mean(axis=axes, keepdims=True)
    variance = (centred * centred).mean(axis=axes, keepdims=True)
    inverse = (1 / np.sqrt(variance + x.dtype.type(epsilon))).astype(x.dtype)
    normal = centred * inverse
    of_normal = cotangent * scale
    of_input = inverse * (
        of_normal
        - of_normal.mean(axis=axes, keepdims=True)
        - normal * (of_normal * normal).mean(axis=axes, keepdims=True)
    )
    parameters = {
        "scale": (cotangent * normal).sum(axis=others),
        "bias": cotangent.sum(axis=others),
    }
    return (of_input,), parameters


@_rule(L.LRN)
def _lrn(layer: L.LRN, read: Pass, cotangent: Array) -> Found:
    x, reach = read.input, layer.size // 2

    def summed(values: Array) -> Array:
        around = np.pad(values, [(0, 0), (reach, reach), *[(0, 0)] * (values.ndim - 2)])
        return sum(
            (around[:, start : start + values.shape[1]] for start in range(layer.size)),
            np.zeros_like(values),
        )

    factor = layer.alpha / layer.size
    scale = layer.bias + factor * summed(x * x)
    power = scale**-layer.beta
    inner = summed(cotangent * x * power / scale)
    return (cotangent * power - 2 * factor * layer.beta * x * inner,), {}


def _window(layer: L.Conv | L.MaxPool | L.AveragePool, x: Array) -> Window:
    attributes = {"strides": layer.stride, "pads": layer.pads}
    if not isinstance(layer, L.AveragePool):
        attributes["dilations"] = layer.dilation
    ceil = {} if isinstance(layer, L.Conv) else {"ceil_mode": int(layer.ceil_mode)}
    given = {**attributes, **ceil}
    return window_of(lambda name, default: given.get(name, default), x.shape[2:], layer.kernel)


def _scatter(x: Array, window: Window, parts: Callable[[tuple[int, ...]], Array]) -> Array:
    """The gradient of x from those of its windows, ``parts(offset)`` [N, C, *output] for each offset."""
    sums = np.zeros_like(padded(x, window, 0.0))
    for offset in np.ndindex(*window.kernel):
        places = tuple(
            slice(at * dilation, at * dilation + (count - 1) * stride + 1, stride)
            for at, dilation, count, stride in zip(
                offset, window.dilation, window.output, window.stride
            )
        )
        sums[_EACH + places] += parts(offset)
    inner = (slice(before, before + size) for before, size in zip(window.before, window.size))
    found: Array = sums[_EACH + tuple(inner)]
    return found


@_rule(L.Conv)
def _conv(layer: L.Conv, read: Pass, cotangent: Array) -> Found:
    x, weight = read.input, read.parameters["weight"]
    window = _window(layer, x)
    groups, filters, depth = layer.groups, len(weight) // layer.groups, weight.shape[1]
    axes = len(window.kernel)
    matrix = weight.reshape(groups, filters, -1)
    of_matrix, of_x = np.zeros_like(matrix), np.empty_like(x)
    size = math.prod(window.output)
    step = max(1, _COLUMN_ELEMENTS // max(1, groups * matrix.shape[2] * size))
    for start in range(0, len(x), step):
        part = slice(start, start + step)
        taps = windows(padded(x[part], window, 0.0), window)
        # [n, C, *output, *kernel] to [n, groups, depth * kernel, output]
        order = (0, 1, *range(2 + axes, 2 + 2 * axes), *range(2, 2 + axes))
        columns = taps.transpose(order).reshape(len(taps), groups, -1, size)
        rows = cotangent[part].reshape(len(taps), groups, filters, size)
        of_matrix += (rows @ columns.swapaxes(2, 3)).sum(axis=0)
        of_columns = (matrix.swapaxes(1, 2) @ rows).reshape(
            len(taps), groups * depth, *window.kernel, *window.output
        )

        def at(offset: tuple[int, ...], of_columns: Array = of_columns) -> Array:
            part: Array = of_columns[_EACH + offset]
            return part

        of_x[part] = _scatter(x[part], window, at)
    bias = {"bias": cotangent.sum(axis=(0, *range(2, 2 + axes)))} if layer.bias else {}
    return (of_x,), {"weight": of_matrix.reshape(weight.shape), **bias}


@_rule(L.ConvTranspose)
def _conv_transpose(layer: L.ConvTranspose, read: Pass, cotangent: Array) -> Found:
    x, weight = read.input, read.parameters["weight"]
    attributes: dict[str, Any] = {
        "strides": layer.stride,
        "pads": layer.pads,
        "output_padding": layer.output_padding,
        "dilations": layer.dilation,
        "group": layer.groups,
    }
    places = places_of(
        lambda name, default: attributes.get(name, default), x.shape[2:], layer.kernel
    )
    of_x, of_weight = spread_gradients(x, weight, places, cotangent)
    axes = (0, *range(2, cotangent.ndim))
    bias = {"bias": cotangent.sum(axis=axes)} if layer.bias else {}
    return (of_x,), {"weight": of_weight, **bias}


@_rule(L.MaxPool)
def _max_pool(layer: L.MaxPool, read: Pass, cotangent: Array) -> Found:
    x, window = read.input, _window(layer, read.input)
    within = padded(x, window, -np.inf)
    taps, largest = windows(within, window), reduced(np.maximum, within, window)
    free = np.ones(largest.shape, bool)

    def first(offset: tuple[int, ...]) -> Array:
        wins = free & (taps[(Ellipsis,) + offset] == largest)
        np.logical_and(free, ~wins, out=free)
        return np.where(wins, cotangent, cotangent.dtype.type(0))

    return (_scatter(x, window, first),), {}


@_rule(L.AveragePool)
def _average_pool(layer: L.AveragePool, read: Pass, cotangent: Array) -> Found:
    x, window = read.input, _window(layer, read.input)
    counted = padded(np.ones((1, 1, *x.shape[2:]), x.dtype), window, 0.0)
    if layer.count_include_pad:
        counted[_EACH + window.declared] = 1.0
    share = cotangent / reduced(np.add, counted, window)
    return (_scatter(x, window, lambda offset: share),), {}


@_rule(L.LSTM)
def _lstm(layer: L.LSTM, read: Pass, cotangent: Array) -> Found:
    of_x, gradients = lstm_gradients(layer, read.input, read.parameters, cotangent)
    return (of_x,), gradients


@_rule(L.GRU)
def _gru(layer: L.GRU, read: Pass, cotangent: Array) -> Found:
    of_x, gradients = gru_gradients(layer, read.input, read.parameters, cotangent)
    return (of_x,), gradients


@_rule(L.RNN)
def _rnn(layer: L.RNN, read: Pass, cotangent: Array) -> Found:
    of_x, gradients = rnn_gradients(layer, read.input, read.parameters, cotangent)
    return (of_x,), gradients


@_rule(L.Attention)
def _attention(layer: L.Attention, read: Pass, cotangent: Array) -> Found:
    x, parameters = read.input, read.parameters

    def heads(values: Array) -> Any:
        return values.reshape(*values.shape[:2], layer.heads, -1).swapaxes(1, 2)

    def joined(values: Array) -> Any:
        return values.swapaxes(1, 2).reshape(x.shape)

    def mapped(role: str) -> Any:
        product = x @ parameters[f"{role}_weight"].T
        return heads(product + parameters[f"{role}_bias"] if layer.bias else product)

    query, key, value = map(mapped, ("query", "key", "value"))
    scale = x.dtype.type(1 / math.sqrt(query.shape[-1]))
    scores = query @ key.swapaxes(2, 3) * scale
    if layer.causal:
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
    found = {f"output_{name}": gradient for name, gradient in output.items()}
    of_x = np.zeros_like(x)
    for role, gradient in of_heads.items():
        part, of_map = linear_gradients(x, parameters[f"{role}_weight"], joined(gradient))
        of_x += part
        found |= {f"{role}_{name}": array for name, array in of_map.items()}
    return (of_x,), {name: array for name, array in found.items() if name in parameters}
