"""The layer table: for each layer type the gluon block, and where its parameters are."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import mxnet as mx
import numpy as np
from dlb.workload.poolings import average_factors, reaching_pads, rounds_up
from mxnet.gluon import HybridBlock, nn, rnn

from dlb import workload as W
from dlb.workload.shapes import places_along

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Place:
    """Where a canonical parameter is: the block's attribute, and the two ways across.

    ``part`` gives the view of what is the parameter's, where one array holds several.
    """

    attribute: str
    to_native: Callable[[np.ndarray], np.ndarray] = lambda array: array
    to_canonical: Callable[[np.ndarray], np.ndarray] = lambda array: array
    part: Callable[[Any], Any] = lambda array: array


@dataclass(frozen=True)
class Entry:
    """How a layer type is built from the layer, the shape of one sample at its input, the dtype."""

    make: Callable[[Any, Shape, str], HybridBlock]
    places: Mapping[str, Place] = field(default_factory=dict)


class Sum(HybridBlock):
    def hybrid_forward(self, F: Any, first: Any, second: Any) -> Any:
        return first + second


class Product(HybridBlock):
    def hybrid_forward(self, F: Any, first: Any, second: Any) -> Any:
        return F.broadcast_mul(first, second)


class ReLU6(HybridBlock):
    """A ReLU and a minimum: the gradient of ``clip`` at a bound is 1."""

    def hybrid_forward(self, F: Any, inputs: Any) -> Any:
        return F.minimum(F.relu(inputs), 6)


class HardSigmoid(HybridBlock):
    def hybrid_forward(self, F: Any, inputs: Any) -> Any:
        return F.hard_sigmoid(inputs, alpha=1 / 6, beta=0.5)


class HardSigmoidInDouble(HybridBlock):
    """Composed, for the operator keeps its slope in float32."""

    def hybrid_forward(self, F: Any, inputs: Any) -> Any:
        return F.minimum(F.relu(inputs + 3), 6) / 6


#: Channels that oneDNN keeps together at most.
BLOCK = 16


def plain(F: Any, maps: Any) -> Any:
    """Maps in MXNet's own layout, forwards and backwards, whichever of oneDNN's they come in.

    Some of oneDNN's operators, as MXNet has them, cannot read those. Neither of these two is
    oneDNN's, and what they read is put in MXNet's layout before.
    """
    return F.squeeze(F.expand_dims(maps, axis=1), axis=1)


class Concat(HybridBlock):
    """Concatenation, in MXNet's own layout where oneDNN's would not do.

    Of features, a single one first, oneDNN answers in one of its layouts, of which a batch
    normalisation after it cannot train ("Check failed: !is_view"): a reshape, to the same shape,
    goes back. A map's gradient may come with its channels in blocks of 8 or 16, which is not taken
    apart at a place within one: the process dies, or it is refused ("could not construct a
    sub-memory").

    Args:
        given: the shapes of one sample of all inputs.
    """

    def __init__(self, axis: int, given: Sequence[Shape]) -> None:
        super().__init__()
        self.axis, self.one = axis, given[0] == (1,)
        self.apart = len(given[0]) == 3 and any(shape[0] % BLOCK for shape in given)

    def hybrid_forward(self, F: Any, *inputs: Any) -> Any:
        made = F.concat(*inputs, dim=self.axis)
        if self.apart:
            return plain(F, made)
        return F.reshape(made, shape=(0, 0)) if self.one else made

    def __repr__(self) -> str:
        return f"Concat(axis={self.axis})"


class Reshape(HybridBlock):
    """A reshape; to a map, in MXNet's own layout.

    The gradient of a map comes from a convolution in one of oneDNN's, which a transpose before the
    reshape cannot read ("could not create a primitive descriptor for a reorder primitive").
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape

    def hybrid_forward(self, F: Any, inputs: Any) -> Any:
        made = F.reshape(inputs, shape=(0, *self.shape))
        return plain(F, made) if len(self.shape) == 3 else made

    def __repr__(self) -> str:
        return f"Reshape(shape={self.shape})"


class Transpose(HybridBlock):
    def __init__(self, axes: Shape) -> None:
        super().__init__()
        self.axes = axes

    def hybrid_forward(self, F: Any, inputs: Any) -> Any:
        return F.transpose(inputs, axes=(0, *self.axes))

    def __repr__(self) -> str:
        return f"Transpose(axes={self.axes})"


class ReduceMean(HybridBlock):
    def __init__(self, axis: int) -> None:
        super().__init__()
        self.axis = axis

    def hybrid_forward(self, F: Any, inputs: Any) -> Any:
        return F.mean(inputs, axis=self.axis)

    def __repr__(self) -> str:
        return f"ReduceMean(axis={self.axis})"


class Select(HybridBlock):
    def __init__(self, axis: int, index: int) -> None:
        super().__init__()
        self.axis, self.index = axis, index

    def hybrid_forward(self, F: Any, inputs: Any) -> Any:
        one = F.slice_axis(inputs, axis=self.axis, begin=self.index, end=self.index + 1)
        return F.squeeze(one, axis=self.axis)

    def __repr__(self) -> str:
        return f"Select(axis={self.axis}, index={self.index})"


class Pad(HybridBlock):
    """The operator pads [N, C, H, W] and [N, C, D, H, W], but neither N nor C.

    So where that is not enough, axes of size 1 are put after the batch, and taken away again.
    """

    def __init__(self, pads: Shape, value: float) -> None:
        super().__init__()
        rank = len(pads) // 2
        around = tuple(n for axis in range(rank) for n in pads[axis::rank])
        plain = rank == 3 and not any(around[:2])
        self.between = () if plain else tuple(range(1, max(2, 4 - rank)))
        self.width, self.value = (0, 0) * (1 + len(self.between)) + around, value

    def hybrid_forward(self, F: Any, inputs: Any) -> Any:
        for axis in self.between:
            inputs = F.expand_dims(inputs, axis=axis)
        padded = F.pad(inputs, mode="constant", pad_width=self.width, constant_value=self.value)
        return F.squeeze(padded, axis=self.between) if self.between else padded

    def __repr__(self) -> str:
        return f"Pad(pad_width={self.width}, value={self.value})"


class Slice(HybridBlock):
    """A slice; of maps, in MXNet's own layout.

    In oneDNN's a slice of a convolution's channels divides by zero, or is refused ("could not
    construct a sub-memory").
    """

    def __init__(self, places: tuple[range, ...]) -> None:
        super().__init__()
        self.begin = (None, *(each.start for each in places))
        self.end = (None, *(each.stop for each in places))
        self.step = (None, *(each.step for each in places))

    def hybrid_forward(self, F: Any, inputs: Any) -> Any:
        maps = plain(F, inputs) if len(self.begin) == 4 else inputs
        return F.slice(maps, begin=self.begin, end=self.end, step=self.step)

    def __repr__(self) -> str:
        return f"Slice(begin={self.begin}, end={self.end}, step={self.step})"


class Gather(HybridBlock):
    def __init__(self, axis: int, indices: Shape, dtype: str) -> None:
        super().__init__()
        self.axis, self.places = axis, indices
        with self.name_scope():
            self.indices = self.params.get_constant("indices", mx.nd.array(indices, dtype=dtype))

    def hybrid_forward(self, F: Any, inputs: Any, indices: Any) -> Any:
        return F.take(inputs, indices, axis=self.axis)

    def __repr__(self) -> str:
        return f"Gather(axis={self.axis}, indices={self.places})"


class PositionEmbedding(HybridBlock):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        with self.name_scope():
            self.weight = self.params.get("weight", shape=(1, *shape))

    def hybrid_forward(self, F: Any, inputs: Any, weight: Any) -> Any:
        return F.broadcast_add(inputs, weight)

    def __repr__(self) -> str:
        return f"PositionEmbedding(shape={self.weight.shape[1:]})"


class LRN(HybridBlock):
    """Composed. The operator refuses float64. In float32 its backward pass (MXNet 1.9.1 with oneDNN)
    reads a gradient in oneDNN's blocked layout, as a convolution or a pooling gives of 8 channels or
    16, as if it were plain.

    The mean over neighbouring channels is an average pooling of [N, 1, C, H, W].
    """

    def __init__(self, layer: W.LRN) -> None:
        super().__init__()
        self.layer = layer

    def hybrid_forward(self, F: Any, inputs: Any) -> Any:
        layer = self.layer
        squares = F.square(inputs).expand_dims(axis=1)
        around = {"kernel": (layer.size, 1, 1), "pad": (layer.size // 2, 0, 0)}
        mean = F.Pooling(squares, pool_type="avg", **around).squeeze(axis=1)
        return inputs / (layer.bias + layer.alpha * mean) ** layer.beta

    def __repr__(self) -> str:
        layer = self.layer
        return (
            f"LRN(nsize={layer.size}, alpha={layer.alpha}, beta={layer.beta}, knorm={layer.bias})"
        )


class SelfAttention(HybridBlock):
    """Composed of two dense blocks, gemm2 and softmax.

    One block makes queries, keys and values: one product for the three, and one update. They are
    split once all heads lie one after another: along the last axis MXNet takes three times as long.
    """

    def __init__(self, layer: W.Attention, given: Shape, dtype: str) -> None:
        super().__init__()
        self.layer, (self.steps, self.features) = layer, given
        with self.name_scope():
            told = {"flatten": False, "use_bias": layer.bias, "in_units": self.features}
            self.given = nn.Dense(3 * self.features, **told)
            self.output = nn.Dense(self.features, **told)
            if layer.causal:
                above = np.triu(np.full((1, self.steps, self.steps), -1e30), 1)
                self.mask = self.params.get_constant("mask", mx.nd.array(above, dtype=dtype))

    def hybrid_forward(self, F: Any, inputs: Any, mask: Any = None) -> Any:
        heads, steps, size = self.layer.heads, self.steps, self.features // self.layer.heads
        given = self.given(inputs).reshape((-1, steps, 3 * heads, size)).transpose((0, 2, 1, 3))
        queries, keys, values = [
            each.reshape((-1, steps, size)) for each in F.split(given, num_outputs=3, axis=1)
        ]
        scores = F.linalg.gemm2(queries, keys, transpose_b=True, alpha=1 / math.sqrt(size))
        shares = F.softmax(scores if mask is None else F.broadcast_add(scores, mask))
        mixed = F.linalg.gemm2(shares, values).reshape((-1, heads, steps, size))
        joined = mixed.transpose((0, 2, 1, 3)).reshape((-1, steps, self.features))
        return self.output(joined)

    def __repr__(self) -> str:
        return f"SelfAttention(heads={self.layer.heads}, causal={self.layer.causal})"


class LayerNormInDouble(nn.LayerNorm):
    """Composed, for the operator keeps its epsilon in float32."""

    def hybrid_forward(self, F: Any, inputs: Any, gamma: Any, beta: Any) -> Any:
        moved = F.broadcast_sub(inputs, F.mean(inputs, axis=-1, keepdims=True))
        variance = F.mean(F.square(moved), axis=-1, keepdims=True)
        normal = F.broadcast_div(moved, F.sqrt(variance + self._epsilon))
        return F.broadcast_add(F.broadcast_mul(normal, gamma), beta)


class GELUInDouble(HybridBlock):
    """Composed, for the operator keeps its constants in float32, and so does the gradient of erf.

    So the distribution function goes without a gradient, and beside it a zero whose gradient is
    the density.
    """

    def hybrid_forward(self, F: Any, inputs: Any) -> Any:
        below = F.BlockGrad(0.5 + 0.5 * F.erf(inputs / math.sqrt(2)))
        density = F.BlockGrad(F.exp(-0.5 * inputs * inputs) / math.sqrt(2 * math.pi))
        return inputs * (below + (inputs - F.BlockGrad(inputs)) * density)


class GELUByTanh(HybridBlock):
    """Composed, for MXNet has the other alone."""

    def hybrid_forward(self, F: Any, inputs: Any) -> Any:
        scale = math.sqrt(2 / math.pi)
        inside = inputs * (scale + scale * 0.044715 * F.square(inputs))
        return 0.5 * inputs * (1 + F.tanh(inside))


class DropoutInDouble(nn.Dropout):
    """Drops by the operator's mask, but scales anew: the operator's 1 / (1 - rate) is in float32.

    In evaluation the operator is the identity, so the mask is 1 and nothing is above it.
    """

    def __init__(self, rate: float) -> None:
        super().__init__(rate)
        self.scale = 1 / (1 - rate)

    def hybrid_forward(self, F: Any, inputs: Any) -> Any:
        mask = super().hybrid_forward(F, F.ones_like(inputs))
        kept = mask > 1
        return inputs * (mask - mask * kept + kept * self.scale)


class MaskedDropout(nn.Dropout):
    """Dropout by a mask [rows, ...] that is given, of which a batch takes the first rows.

    A compiled block does not know the mode, but its operators do: one that drops half of a one
    gives 0 or 2 in training, and 1 in evaluation.
    """

    def __init__(self, rate: float, mask: np.ndarray, dtype: str) -> None:
        super().__init__(rate)
        with self.name_scope():
            self.mask = self.params.get_constant("mask", mx.nd.array(mask, dtype=dtype))

    def hybrid_forward(self, F: Any, inputs: Any, mask: Any) -> Any:
        training = F.square(F.Dropout(F.ones_like(inputs), p=0.5) - 1)
        rows = F.slice_like(mask, inputs, axes=(0,))
        return F.where(training, inputs * rows / (1 - self._rate), inputs)


class BatchNormInDouble(nn.BatchNorm):
    """The operator keeps its momentum in float32, which would move the statistics 1e-8 wrong.

    So its momentum is 0, which leaves the batch's own statistics, and :meth:`settle` moves them.
    """

    def __init__(self, momentum: float, **kwargs: Any) -> None:
        super().__init__(momentum=0.0, **kwargs)
        self.exact_momentum = momentum

    def statistics(self) -> list[mx.nd.NDArray]:
        """A copy of the running statistics, for :meth:`settle`."""
        mx.nd.waitall()
        copies = [self.running_mean.data().copy(), self.running_var.data().copy()]
        mx.nd.waitall()
        return copies

    def settle(self, kept: list[mx.nd.NDArray]) -> None:
        """After a backward pass: from the statistics before it and the batch's, the new ones."""
        mx.nd.waitall()
        for running, before in zip((self.running_mean.data(), self.running_var.data()), kept):
            running[:] = self.exact_momentum * before + (1 - self.exact_momentum) * running

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, exact_momentum={self.exact_momentum})"


class Padded(HybridBlock):
    """Pads that MXNet cannot give to the layer itself, by a pad operator before it."""

    def __init__(self, layer: HybridBlock, pads: Shape, value: float) -> None:
        super().__init__()
        top, left, bottom, right = pads
        self.width = (0, 0, 0, 0, top, bottom, left, right)
        self.layer, self.value = layer, value

    def hybrid_forward(self, F: Any, inputs: Any) -> Any:
        padded = F.pad(inputs, mode="constant", pad_width=self.width, constant_value=self.value)
        return self.layer(padded)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(pad_width={self.width}, value={self.value}, {self.layer!r})"


class PaddedAverage(Padded):
    """Average pooling over the padding, set right where it is not to be counted."""

    def __init__(self, layer: HybridBlock, pads: Shape, factor: np.ndarray, dtype: str) -> None:
        super().__init__(layer, pads, 0.0)
        with self.name_scope():
            weight = mx.nd.array(factor[None, None], dtype=dtype)
            self.weight = self.params.get_constant("weight", weight)

    def hybrid_forward(self, F: Any, inputs: Any, weight: Any) -> Any:
        return F.broadcast_mul(super().hybrid_forward(F, inputs), weight)


def tied_linear(layer: W.Linear, given: Shape, dtype: str, table: HybridBlock) -> HybridBlock:
    """A dense block whose weight is an embedding's."""
    return nn.Dense(
        layer.out_features,
        flatten=len(given) == 1,
        use_bias=layer.bias,
        in_units=given[-1],
        dtype=dtype,
        params=table.params,
    )


def _gather(layer: W.Gather, given: Shape, dtype: str) -> HybridBlock:
    size = given[layer.axis - 1]
    return Gather(layer.axis, tuple(index % size for index in layer.indices), dtype)


def _conv(layer: W.Conv, given: Shape, dtype: str) -> HybridBlock:
    even = layer.pads[:2] == layer.pads[2:]
    conv = nn.Conv2D(
        layer.out_channels,
        layer.kernel,
        layer.stride,
        layer.pads[:2] if even else (0, 0),
        layer.dilation,
        layer.groups,
        use_bias=layer.bias,
        in_channels=given[0],
    )
    return conv if even else Padded(conv, layer.pads, 0.0)


def _max_pool(layer: W.MaxPool, given: Shape, dtype: str) -> HybridBlock:
    up = _rounds_up(layer, given)
    if up is not None:
        return nn.MaxPool2D(layer.kernel, layer.stride, layer.pads[:2], ceil_mode=up)
    pool = nn.MaxPool2D(layer.kernel, layer.stride)
    return Padded(pool, reaching_pads(layer, given), float("-inf"))


def _average_pool(layer: W.AveragePool, given: Shape, dtype: str) -> HybridBlock:
    up = _rounds_up(layer, given)
    # MXNet has such windows too, but of an exported one ONNX Runtime before 1.31 counts all its kernel.
    counted = layer.count_include_pad and any(layer.pads)
    if up is not None and not (up and counted):
        return nn.AvgPool2D(
            layer.kernel, layer.stride, layer.pads[:2], ceil_mode=up, count_include_pad=counted
        )
    pool = nn.AvgPool2D(layer.kernel, layer.stride)
    pads, factor = reaching_pads(layer, given), average_factors(layer, given)
    if (factor == 1).all():
        return Padded(pool, pads, 0.0)
    return PaddedAverage(pool, pads, factor, dtype)


def _rounds_up(layer: W.MaxPool | W.AveragePool, given: Shape) -> bool | None:
    """How MXNet's own pooling is to round; None where it has none such. Pads are to be even ones."""
    return rounds_up(layer, given) if layer.pads[:2] == layer.pads[2:] else None


def _batch_norm(layer: W.BatchNorm, given: Shape, dtype: str) -> HybridBlock:
    kind = BatchNormInDouble if dtype == "float64" else nn.BatchNorm
    return kind(
        momentum=layer.momentum,
        epsilon=layer.epsilon,
        in_channels=given[0],
    )


def _layer_norm(layer: W.LayerNorm, given: Shape, dtype: str) -> HybridBlock:
    kind = LayerNormInDouble if dtype == "float64" else nn.LayerNorm
    return kind(epsilon=layer.epsilon, in_channels=given[-1])


def _gelu(layer: W.GELU, given: Shape, dtype: str) -> HybridBlock:
    if layer.approximate == "tanh":
        return GELUByTanh()
    return GELUInDouble() if dtype == "float64" else nn.GELU()


def _dropout(layer: W.Dropout, given: Shape, dtype: str) -> HybridBlock:
    return (DropoutInDouble if dtype == "float64" else nn.Dropout)(layer.rate)


def _lstm(layer: W.LSTM, given: Shape, dtype: str) -> HybridBlock:
    lstm = rnn.LSTM(layer.hidden, layout="NTC", input_size=given[-1])
    lstm.l0_h2h_bias.grad_req = "null"
    return lstm


def _gates(order: tuple[int, ...]) -> Callable[[np.ndarray], np.ndarray]:
    """Reorders the four gates, which lie one after another on the first axis."""
    return lambda array: np.concatenate([np.split(array, 4)[gate] for gate in order])


#: ONNX keeps gates as input, output, forget, cell; MXNet as input, forget, cell, output.
_FROM_ONNX, _TO_ONNX = _gates((0, 2, 3, 1)), _gates((0, 3, 1, 2))


def _third(array: Any, place: int) -> Any:
    size = len(array) // 3
    return array[place * size : (place + 1) * size]


_WEIGHT = {"weight": Place("weight"), "bias": Place("bias")}

#: Of an attention's linear maps, the block and what is theirs of its parameters.
_ATTENTION_MAPS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "query": ("given", partial(_third, place=0)),
    "key": ("given", partial(_third, place=1)),
    "value": ("given", partial(_third, place=2)),
    "output": ("output", lambda array: array),
}

#: But of concatenations, which are built of the shapes of all their inputs.
TABLE: dict[type, Entry] = {
    W.Conv: Entry(_conv, _WEIGHT),
    W.Linear: Entry(
        lambda layer, given, dtype: nn.Dense(
            layer.out_features,
            use_bias=layer.bias,
            flatten=len(given) == 1,
            in_units=given[-1],
        ),
        _WEIGHT,
    ),
    W.BatchNorm: Entry(
        _batch_norm,
        {
            "scale": Place("gamma"),
            "bias": Place("beta"),
            "mean": Place("running_mean"),
            "variance": Place("running_var"),
        },
    ),
    W.LayerNorm: Entry(_layer_norm, {"scale": Place("gamma"), "bias": Place("beta")}),
    W.LRN: Entry(lambda layer, given, dtype: LRN(layer)),
    W.MaxPool: Entry(_max_pool),
    W.AveragePool: Entry(_average_pool),
    W.GlobalAveragePool: Entry(lambda layer, given, dtype: nn.GlobalAvgPool2D()),
    W.ReLU: Entry(lambda layer, given, dtype: nn.Activation("relu")),
    W.ReLU6: Entry(lambda layer, given, dtype: ReLU6()),
    W.Tanh: Entry(lambda layer, given, dtype: nn.Activation("tanh")),
    W.Sigmoid: Entry(lambda layer, given, dtype: nn.Activation("sigmoid")),
    W.HardSigmoid: Entry(
        lambda layer, given, dtype: HardSigmoidInDouble() if dtype == "float64" else HardSigmoid()
    ),
    W.GELU: Entry(_gelu),
    W.Dropout: Entry(_dropout),
    W.Add: Entry(lambda layer, given, dtype: Sum()),
    W.Mul: Entry(lambda layer, given, dtype: Product()),
    W.Flatten: Entry(lambda layer, given, dtype: nn.Flatten()),
    W.Reshape: Entry(lambda layer, given, dtype: Reshape(layer.shape)),
    W.Transpose: Entry(lambda layer, given, dtype: Transpose(layer.axes)),
    W.ReduceMean: Entry(lambda layer, given, dtype: ReduceMean(layer.axis)),
    W.Select: Entry(
        lambda layer, given, dtype: Select(layer.axis, layer.index % given[layer.axis - 1])
    ),
    W.Pad: Entry(lambda layer, given, dtype: Pad(layer.pads, layer.value)),
    W.Slice: Entry(lambda layer, given, dtype: Slice(places_along(layer, given))),
    W.Gather: Entry(_gather),
    W.Embedding: Entry(
        lambda layer, given, dtype: nn.Embedding(
            layer.entries,
            layer.features,
            dtype=dtype,
        ),
        {"weight": Place("weight")},
    ),
    W.PositionEmbedding: Entry(
        lambda layer, given, dtype: PositionEmbedding(given),
        {"weight": Place("weight", lambda array: array[None], lambda array: array[0])},
    ),
    W.LSTM: Entry(
        _lstm,
        {
            "input_weight": Place("l0_i2h_weight", _FROM_ONNX, _TO_ONNX),
            "recurrent_weight": Place("l0_h2h_weight", _FROM_ONNX, _TO_ONNX),
            "bias": Place("l0_i2h_bias", _FROM_ONNX, _TO_ONNX),
        },
    ),
    W.Attention: Entry(
        SelfAttention,
        {
            f"{name}_{kind}": Place(f"{block}.{place.attribute}", part=part)
            for name, (block, part) in _ATTENTION_MAPS.items()
            for kind, place in _WEIGHT.items()
        },
    ),
}
