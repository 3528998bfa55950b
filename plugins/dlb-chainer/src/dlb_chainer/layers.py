"""The layer table: for each layer type the Chainer link or function, and where its parameters are."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any, Literal

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
from chainer import Variable

from dlb import workload as W
from dlb.workload.poolings import average_factors, reaching_pads, rounds_up
from dlb.workload.shapes import places_along


@dataclass(frozen=True)
class Place:
    """Where a canonical parameter is: the link's attribute, and the two ways across.

    ``part`` gives the view of what is the parameter's, where one array holds several.
    """

    attribute: str
    to_native: Callable[[np.ndarray], np.ndarray] = lambda array: array
    to_canonical: Callable[[np.ndarray], np.ndarray] = lambda array: array
    part: Callable[[Any], Any] = lambda array: array

    def of(self, link: chainer.Link) -> Any:
        """The native parameter, or the array of a state."""
        return attrgetter(self.attribute)(link)


@dataclass(frozen=True)
class Entry:
    """How a layer type is built from the layer and the shape of one sample at its input.

    ``over`` is what it takes and makes: samples [N, ...], rows [rows, features], of which a sample
    may have many, or numbers one by one, in samples or in rows.
    """

    make: Callable[[Any, tuple[int, ...]], Callable[..., Variable]]
    places: Mapping[str, Place] = field(default_factory=dict)
    over: Literal["samples", "rows", "numbers"] = "samples"


def concat(*inputs: Variable, axis: int) -> Variable:
    return F.concat(inputs, axis)


def multiply(first: Variable, second: Variable) -> Variable:
    return first * F.broadcast_to(second, first.shape)


def flatten(inputs: Variable) -> Variable:
    return F.reshape(inputs, (len(inputs), -1))


def reshape(inputs: Variable, shape: tuple[int, ...]) -> Variable:
    return F.reshape(inputs, (len(inputs), *shape))


def transpose(inputs: Variable, axes: tuple[int, ...]) -> Variable:
    return F.transpose(inputs, (0, *axes))


def select(inputs: Variable, axis: int, index: int) -> Variable:
    return F.get_item(inputs, (slice(None),) * axis + (index,))


def part(inputs: Variable, parts: tuple[slice, ...]) -> Variable:
    return F.get_item(inputs, (slice(None), *parts))


def gather(inputs: Variable, axis: int, indices: tuple[int, ...]) -> Variable:
    return F.get_item(inputs, (slice(None),) * axis + (list(indices),))


class PositionEmbedding(chainer.Link):
    """A parameter that is added to every sequence."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        with self.init_scope():
            self.W = chainer.Parameter(0, shape)

    def forward(self, inputs: Variable) -> Variable:
        return inputs + F.broadcast_to(self.W, inputs.shape)


class MaskedDropout:
    """Dropout by a mask [rows, ...] that is given, of which a batch takes the first rows."""

    def __init__(self, ratio: float, mask: Any) -> None:
        self.ratio, self.mask = ratio, mask

    def __call__(self, inputs: Variable) -> Variable:
        mask = self.mask.reshape(-1, *inputs.shape[1:])[: len(inputs)]
        # Chainer takes the mask scaled.
        return F.dropout(inputs, self.ratio, mask=mask / (1 - self.ratio))


class TiedLinear(chainer.Link):
    """A linear layer whose weight is that of another link."""

    def __init__(self, table: chainer.Link, units: int, nobias: bool) -> None:
        super().__init__()
        # Out of the scope: an optimizer would update the weight once for each link that has it.
        self.table = table
        with self.init_scope():
            self.b = None if nobias else chainer.Parameter(0, units)

    def forward(self, inputs: Variable) -> Variable:
        return F.linear(inputs, self.table.W, self.b)


class SelfAttention(chainer.Chain):
    """Composed of two linear links, matmul and softmax; over the rows of sequences.

    One link makes queries, keys and values: one product for the three, and one update.
    """

    def __init__(self, layer: W.Attention, steps: int, features: int) -> None:
        super().__init__()
        self.steps, self.heads, self.causal = steps, layer.heads, layer.causal
        with self.init_scope():
            self.given = L.Linear(features, 3 * features, nobias=not layer.bias)
            self.output = L.Linear(features, features, nobias=not layer.bias)

    def forward(self, rows: Variable) -> Variable:
        size = rows.shape[1] // self.heads
        queries, keys, values = [
            F.transpose(F.reshape(each, (-1, self.steps, self.heads, size)), (0, 2, 1, 3))
            for each in F.split_axis(self.given(rows), 3, axis=1)
        ]
        # Scaled queries, though fewer numbers, would be kept for the backward pass beside these.
        scores = F.matmul(queries, keys, transb=True) * (1 / math.sqrt(size))
        if self.causal:
            above = self.xp.full((self.steps, self.steps), -1e30, scores.dtype)
            scores = scores + self.xp.triu(above, 1)
        mixed = F.matmul(F.softmax(scores, axis=3), values)
        return self.output(F.reshape(F.transpose(mixed, (0, 2, 1, 3)), rows.shape))


class BatchNormalization(L.BatchNormalization):
    """Batch normalisation whose running variance is the biased one, as ONNX defines it.

    Chainer keeps the unbiased one, n / (n - 1) times as large.
    """

    def forward(self, inputs: Variable) -> Variable:
        if not chainer.config.train or chainer.config.in_recomputing:
            return super().forward(inputs)
        kept = self.avg_var * self.decay
        outputs = super().forward(inputs)
        count = inputs.size // inputs.shape[1]
        self.avg_var -= kept
        self.avg_var *= max(count - 1, 1) / count
        self.avg_var += kept
        return outputs


def hard_sigmoid(inputs: Variable) -> Variable:
    return F.clipped_relu(inputs + 3, z=6.0) / 6


def gelu(inputs: Variable) -> Variable:
    return 0.5 * inputs * (1 + F.erf(inputs * math.sqrt(0.5)))


def gelu_by_tanh(inputs: Variable) -> Variable:
    # A cube would be numpy's general power, which takes tens of times as long as its square.
    inside = math.sqrt(2 / math.pi) * inputs * (1 + 0.044715 * inputs**2)
    return 0.5 * inputs * (1 + F.tanh(inside))


def lstm_sequence(
    inputs: Variable, upward: Variable, lateral: Variable, bias: Variable
) -> Variable:
    """Chainer's LSTM cell over [N, T, features], the upward product taken for all steps at once."""
    sources = F.separate(F.linear(inputs, upward, bias, n_batch_axes=2), axis=1)
    cell = inputs.xp.zeros((len(inputs), lateral.shape[1]), inputs.dtype)
    hidden: list[Variable] = []
    for source in sources:
        if hidden:
            source += F.linear(hidden[-1], lateral)
        cell, output = F.lstm(cell, source)
        hidden.append(output)
    return F.stack(hidden, axis=1)


class SequenceLSTM(L.StatelessLSTM):
    """Chainer's stateless LSTM, which takes a whole sequence and starts each from zero."""

    def forward(self, inputs: Any) -> Variable:
        return lstm_sequence(
            chainer.as_variable(inputs), self.upward.W, self.lateral.W, self.upward.b
        )


class Padded:
    """A function after a pad that Chainer's own (the same on both sides) cannot express."""

    def __init__(
        self, function: Callable[..., Variable], pads: W.layers.Pads, **value: Any
    ) -> None:
        top, left, bottom, right = pads
        self.pad = partial(
            F.pad,
            pad_width=((0, 0), (0, 0), (top, bottom), (left, right)),
            mode="constant",
            **value,
        )
        self.function = function

    def __call__(self, inputs: Variable) -> Variable:
        return self.function(self.pad(inputs))


class Scaled:
    """A function whose output is multiplied by a constant map [1, 1, H, W]."""

    def __init__(self, function: Callable[..., Variable], scale: np.ndarray) -> None:
        self.function, self.scale = function, scale

    def __call__(self, inputs: Variable) -> Variable:
        outputs = self.function(inputs)
        return outputs * outputs.device.send(self.scale.astype(outputs.dtype))


class PaddedConvolution2D(L.Convolution2D):
    """A convolution with uneven pads, which Chainer writes as a pad before it."""

    def __init__(self, *sizes: Any, pads: W.layers.Pads, **options: Any) -> None:
        super().__init__(*sizes, **options)
        self.padded = Padded(super().forward, pads)

    def forward(self, inputs: Variable) -> Variable:
        return self.padded(inputs)


def tied_linear(
    layer: W.Linear, given: tuple[int, ...], table: chainer.Link
) -> Callable[..., Variable]:
    """A linear layer whose weight is an embedding's."""
    return TiedLinear(table, layer.out_features, nobias=not layer.bias)


def _pad(layer: W.Pad, given: tuple[int, ...]) -> Callable[..., Variable]:
    rank = len(given)
    width = ((0, 0), *(layer.pads[axis::rank] for axis in range(rank)))
    return partial(F.pad, pad_width=width, mode="constant", constant_values=(layer.value,))


def _slice(layer: W.Slice, given: tuple[int, ...]) -> Callable[..., Variable]:
    places = places_along(layer, given)
    return partial(part, parts=tuple(slice(p.start, p.stop, p.step) for p in places))


def _conv(layer: W.Conv, given: tuple[int, ...]) -> chainer.Link:
    sizes = (given[0], layer.out_channels, layer.kernel, layer.stride)
    options = {"nobias": not layer.bias, "dilate": layer.dilation, "groups": layer.groups}
    if layer.pads[:2] == layer.pads[2:]:
        return L.Convolution2D(*sizes, layer.pads[:2], **options)
    return PaddedConvolution2D(*sizes, pads=layer.pads, **options)


def _max_pool(layer: W.MaxPool, given: tuple[int, ...]) -> Callable[..., Variable]:
    pool = partial(F.max_pooling_2d, ksize=layer.kernel, stride=layer.stride)
    up = _rounds_up(layer, given)
    if up is not None:
        return partial(pool, pad=layer.pads[:2], cover_all=up)
    pads = reaching_pads(layer, given)
    return Padded(partial(pool, cover_all=False), pads, constant_values=(-np.inf,))


def _average_pool(layer: W.AveragePool, given: tuple[int, ...]) -> Callable[..., Variable]:
    pool = partial(F.average_pooling_2d, ksize=layer.kernel, stride=layer.stride)
    if _rounds_up(layer, given) is False:  # which its average poolings do not
        if layer.count_include_pad or not any(layer.pads):
            return partial(pool, pad=layer.pads[:2])
        return partial(
            F.average_pooling_nd,
            ksize=layer.kernel,
            stride=layer.stride,
            pad=layer.pads[:2],
            pad_value=None,
        )
    scale = average_factors(layer, given)[None, None]
    padded = Padded(pool, reaching_pads(layer, given))
    return padded if (scale == 1).all() else Scaled(padded, scale)


def _rounds_up(layer: W.MaxPool | W.AveragePool, given: tuple[int, ...]) -> bool | None:
    """How Chainer's own pooling is to round; None where it has none such. Pads are to be even ones."""
    return rounds_up(layer, given) if layer.pads[:2] == layer.pads[2:] else None


def _batch_norm(layer: W.BatchNorm, given: tuple[int, ...]) -> chainer.Link:
    return BatchNormalization(given[0], decay=layer.momentum, eps=layer.epsilon)


def _lrn(layer: W.LRN, given: tuple[int, ...]) -> Callable[..., Variable]:
    return partial(
        F.local_response_normalization,
        n=layer.size,
        k=layer.bias,
        alpha=layer.alpha / layer.size,
        beta=layer.beta,
    )


def _interleaved(array: np.ndarray) -> np.ndarray:
    """ONNX's gates, one after another, as Chainer has them: the four of a unit side by side.

    ONNX's order is input, output, forget, cell; Chainer's is cell, input, forget, output.
    """
    gates = array.reshape(4, -1, *array.shape[1:])[[3, 0, 2, 1]]
    return np.ascontiguousarray(gates.swapaxes(0, 1)).reshape(array.shape)


def one_after_another(array: np.ndarray) -> np.ndarray:
    """The way back."""
    gates = array.reshape(-1, 4, *array.shape[1:]).swapaxes(0, 1)[[1, 3, 2, 0]]
    return np.ascontiguousarray(gates).reshape(array.shape)


def _third(array: Any, place: int) -> Any:
    size = len(array) // 3
    return array[place * size : (place + 1) * size]


_WEIGHT = {"weight": Place("W"), "bias": Place("b")}

#: Of an attention's linear maps, the link and what is theirs of its parameters.
_ATTENTION_MAPS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "query": ("given", partial(_third, place=0)),
    "key": ("given", partial(_third, place=1)),
    "value": ("given", partial(_third, place=2)),
    "output": ("output", lambda array: array),
}

TABLE: dict[type, Entry] = {
    W.Conv: Entry(_conv, _WEIGHT),
    W.Linear: Entry(
        lambda layer, given: L.Linear(given[-1], layer.out_features, nobias=not layer.bias),
        _WEIGHT,
        over="rows",
    ),
    W.BatchNorm: Entry(
        _batch_norm,
        {
            "scale": Place("gamma"),
            "bias": Place("beta"),
            "mean": Place("avg_mean"),
            "variance": Place("avg_var"),
        },
    ),
    W.LayerNorm: Entry(
        lambda layer, given: L.LayerNormalization(given[-1], layer.epsilon),
        {"scale": Place("gamma"), "bias": Place("beta")},
        over="rows",
    ),
    W.LRN: Entry(_lrn),
    W.MaxPool: Entry(_max_pool),
    W.AveragePool: Entry(_average_pool),
    W.GlobalAveragePool: Entry(
        lambda layer, given: partial(F.average_pooling_2d, ksize=given[1:], stride=1)
    ),
    W.ReLU: Entry(lambda layer, given: F.relu, over="numbers"),
    W.ReLU6: Entry(lambda layer, given: partial(F.clipped_relu, z=6.0), over="numbers"),
    W.Tanh: Entry(lambda layer, given: F.tanh, over="numbers"),
    W.Sigmoid: Entry(lambda layer, given: F.sigmoid, over="numbers"),
    W.HardSigmoid: Entry(lambda layer, given: hard_sigmoid, over="numbers"),
    W.GELU: Entry(
        lambda layer, given: {"none": gelu, "tanh": gelu_by_tanh}[layer.approximate],
        over="numbers",
    ),
    W.Dropout: Entry(lambda layer, given: partial(F.dropout, ratio=layer.rate), over="numbers"),
    W.Add: Entry(lambda layer, given: F.add, over="numbers"),
    W.Mul: Entry(lambda layer, given: multiply, over="numbers"),
    W.Concat: Entry(lambda layer, given: partial(concat, axis=layer.axis)),
    W.Flatten: Entry(lambda layer, given: flatten),
    W.Reshape: Entry(lambda layer, given: partial(reshape, shape=layer.shape)),
    W.Transpose: Entry(lambda layer, given: partial(transpose, axes=layer.axes)),
    W.ReduceMean: Entry(lambda layer, given: partial(F.mean, axis=layer.axis)),
    W.Select: Entry(lambda layer, given: partial(select, axis=layer.axis, index=layer.index)),
    W.Pad: Entry(_pad),
    W.Slice: Entry(_slice),
    W.Gather: Entry(lambda layer, given: partial(gather, axis=layer.axis, indices=layer.indices)),
    W.Embedding: Entry(
        lambda layer, given: L.EmbedID(layer.entries, layer.features), {"weight": Place("W")}
    ),
    W.PositionEmbedding: Entry(
        lambda layer, given: PositionEmbedding(given), {"weight": Place("W")}
    ),
    W.LSTM: Entry(
        lambda layer, given: SequenceLSTM(given[-1], layer.hidden),
        {
            "input_weight": Place("upward.W", _interleaved, one_after_another),
            "recurrent_weight": Place("lateral.W", _interleaved, one_after_another),
            "bias": Place("upward.b", _interleaved, one_after_another),
        },
    ),
    W.Attention: Entry(
        lambda layer, given: SelfAttention(layer, *given),
        {
            f"{name}_{kind}": Place(f"{link}.{place.attribute}", part=part)
            for name, (link, part) in _ATTENTION_MAPS.items()
            for kind, place in _WEIGHT.items()
        },
        over="rows",
    ),
}


def told(layer: Any) -> str:
    """A link's type and attributes, or a function's name and what is set of its arguments."""
    if isinstance(layer, partial):
        name, attributes = layer.func.__name__, {**layer.keywords}
    elif inspect.isfunction(layer):
        return str(layer.__name__)
    else:
        name, attributes = type(layer).__name__, vars(layer)
    inside = []
    for key, value in attributes.items():
        if isinstance(value, (partial, Padded, Scaled)) or inspect.isfunction(value):
            inside.append(f"{key}={told(value)}")
        elif key == "scale":
            inside.append(f"{key}={np.unique(value).tolist()}")
        elif key.startswith("_") or key in ("name", "cudnn_fast"):
            continue  # of the link itself, not of what it computes
        elif isinstance(value, (bool, int, float, str, tuple)):
            inside.append(f"{key}={value}")
    return f"{name}({', '.join(inside)})"
