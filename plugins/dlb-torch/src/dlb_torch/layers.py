"""The layer table: for each layer type the torch module, and where its parameters are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dlb import workload as W
from dlb.workload.poolings import average_factors, reaching_pads, rounds_up
from dlb.workload.shapes import places_along


@dataclass(frozen=True)
class Place:
    """Where a canonical parameter is: the module's attribute, and the two ways across."""

    attribute: str
    to_native: Callable[[np.ndarray], np.ndarray] = lambda array: array
    to_canonical: Callable[[np.ndarray], np.ndarray] = lambda array: array


@dataclass(frozen=True)
class Entry:
    """How a layer type is built from the layer and the shape of one sample at its input."""

    make: Callable[[Any, tuple[int, ...]], nn.Module]
    places: Mapping[str, Place] = field(default_factory=dict)


class Sum(nn.Module):
    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        return first + second


class Product(nn.Module):
    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        return first * second


class HardSigmoid(nn.Hardsigmoid):
    """torch's own, and its composition in float64, for its gradient has the slope in float32."""

    def forward(self, inputs: Tensor) -> Tensor:
        if inputs.dtype == torch.float64:
            return F.relu6(inputs + 3) / 6
        return super().forward(inputs)


class Concat(nn.Module):
    def __init__(self, axis: int) -> None:
        super().__init__()
        self.axis = axis

    def forward(self, *inputs: Tensor) -> Tensor:
        return torch.cat(inputs, self.axis)

    def extra_repr(self) -> str:
        return f"axis={self.axis}"


class Reshape(nn.Module):
    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.reshape(-1, *self.shape)

    def extra_repr(self) -> str:
        return f"shape={self.shape}"


class Transpose(nn.Module):
    def __init__(self, axes: tuple[int, ...]) -> None:
        super().__init__()
        self.axes = axes

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.permute(0, *self.axes)

    def extra_repr(self) -> str:
        return f"axes={self.axes}"


class ReduceMean(nn.Module):
    def __init__(self, axis: int) -> None:
        super().__init__()
        self.axis = axis

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.mean(self.axis)

    def extra_repr(self) -> str:
        return f"axis={self.axis}"


class Select(nn.Module):
    def __init__(self, axis: int, index: int) -> None:
        super().__init__()
        self.axis, self.index = axis, index

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.select(self.axis, self.index)

    def extra_repr(self) -> str:
        return f"axis={self.axis}, index={self.index}"


class Slice(nn.Module):
    def __init__(self, places: tuple[range, ...]) -> None:
        super().__init__()
        self.parts = tuple(slice(each.start, each.stop, each.step) for each in places)

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs[(slice(None), *self.parts)]

    def extra_repr(self) -> str:
        return f"parts={self.parts}"


class Gather(nn.Module):
    def __init__(self, axis: int, indices: tuple[int, ...]) -> None:
        super().__init__()
        self.axis = axis
        self.register_buffer("indices", torch.tensor(indices), persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.index_select(self.axis, self.indices)

    def extra_repr(self) -> str:
        return f"axis={self.axis}, indices={tuple(self.indices.tolist())}"


class PositionEmbedding(nn.Module):
    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(shape))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs + self.weight

    def extra_repr(self) -> str:
        return f"shape={tuple(self.weight.shape)}"


class MaskedDropout(nn.Dropout):
    """Dropout by a mask [rows, ...] that is given, of which a batch takes the first rows."""

    def __init__(self, rate: float, mask: Tensor) -> None:
        super().__init__(rate)
        self.mask = mask  # no buffer: each worker of a strategy keeps its own

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs * self.mask[: len(inputs)] / (1 - self.p) if self.training else inputs


class BiasedVariance:
    """Batch normalisation whose running variance is the biased one, as ONNX defines it.

    torch moves it by the unbiased one, n / (n - 1) times as large. torch does so here on a copy,
    since backward reads the tensor that it moved and refuses one that was changed after it.
    """

    def forward(self: Any, inputs: Tensor) -> Tensor:
        if not self.training:
            return super().forward(inputs)  # type: ignore[misc]
        moved = self.running_var.clone()
        outputs = F.batch_norm(
            inputs,
            self.running_mean,
            moved,
            self.weight,
            self.bias,
            training=True,
            momentum=self.momentum,
            eps=self.eps,
        )
        count = inputs.numel() // inputs.shape[1]
        with torch.no_grad():
            self.running_var.mul_((1 - self.momentum) / count)
            self.running_var.add_(moved, alpha=(count - 1) / count)
        return outputs


class BatchNorm1d(BiasedVariance, nn.BatchNorm1d):
    pass


class BatchNorm2d(BiasedVariance, nn.BatchNorm2d):
    pass


class LastAxisLSTM(nn.LSTM):
    def forward(self, inputs: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(inputs)[0]


class SelfAttention(nn.Module):
    """Four linear layers around scaled_dot_product_attention."""

    def __init__(self, layer: W.Attention, features: int) -> None:
        super().__init__()
        self.heads, self.causal = layer.heads, layer.causal
        for name in W.layers.ATTENTION_MAPS:
            self.add_module(name, nn.Linear(features, features, layer.bias))

    def forward(self, inputs: Tensor) -> Tensor:
        heads = [
            each(inputs).unflatten(2, (self.heads, -1)).transpose(1, 2)
            for each in (self.query, self.key, self.value)
        ]
        mixed = F.scaled_dot_product_attention(*heads, is_causal=self.causal)
        return self.output(mixed.transpose(1, 2).flatten(2))

    def extra_repr(self) -> str:
        return f"heads={self.heads}, causal={self.causal}"


class Padded(nn.Module):
    """Pads that torch's layer does not take, as a pad before it: uneven ones, and long ones."""

    def __init__(self, layer: nn.Module, pads: W.layers.Pads, value: float) -> None:
        super().__init__()
        top, left, bottom, right = pads
        self.pad = nn.ConstantPad2d((left, right, top, bottom), value)
        self.layer = layer

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layer(self.pad(inputs))


class PaddedAverage(Padded):
    """Average pooling over the padding, set right where it is not to be counted."""

    factor: Tensor

    def __init__(self, layer: nn.Module, pads: W.layers.Pads, factor: np.ndarray) -> None:
        super().__init__(layer, pads, 0.0)
        self.register_buffer("factor", torch.tensor(factor), persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs) * self.factor


def tied_linear(layer: W.Linear, given: tuple[int, ...], table: nn.Module) -> nn.Module:
    """A linear layer whose weight is an embedding's."""
    linear = nn.Linear(given[-1], layer.out_features, layer.bias)
    linear.weight = table.weight
    return linear


def _pad(layer: W.Pad, given: tuple[int, ...]) -> nn.Module:
    """torch counts axes from the last, before and after each."""
    rank = len(given)
    around = [n for axis in reversed(range(rank)) for n in layer.pads[axis::rank]]
    kind = {1: nn.ConstantPad1d, 2: nn.ConstantPad2d, 3: nn.ConstantPad3d}[rank]
    return kind(tuple(around), layer.value)


def _gather(layer: W.Gather, given: tuple[int, ...]) -> nn.Module:
    size = given[layer.axis - 1]
    return Gather(layer.axis, tuple(index % size for index in layer.indices))


def _even(pads: W.layers.Pads) -> bool:
    return pads[:2] == pads[2:]


def _conv(layer: W.Conv, given: tuple[int, ...]) -> nn.Module:
    even = _even(layer.pads)
    conv = nn.Conv2d(
        given[0],
        layer.out_channels,
        layer.kernel,
        layer.stride,
        layer.pads[:2] if even else 0,
        layer.dilation,
        layer.groups,
        layer.bias,
    )
    return conv if even else Padded(conv, layer.pads, 0.0)


def _rounds_up(layer: W.MaxPool | W.AveragePool, given: tuple[int, ...]) -> bool | None:
    """How torch's own pooling is to round; None where it has none such, or its export would not be it.

    Pads are to be even ones of half the kernel at most.
    """
    top, left = layer.pads[:2]
    takes = _even(layer.pads) and 2 * top <= layer.kernel[0] and 2 * left <= layer.kernel[1]
    return rounds_up(layer, given) if takes else None


def _max_pool(layer: W.MaxPool, given: tuple[int, ...]) -> nn.Module:
    up = _rounds_up(layer, given)
    if up is not None:
        return nn.MaxPool2d(layer.kernel, layer.stride, layer.pads[:2], ceil_mode=up)
    pool = nn.MaxPool2d(layer.kernel, layer.stride)
    return Padded(pool, reaching_pads(layer, given), float("-inf"))


def _average_pool(layer: W.AveragePool, given: tuple[int, ...]) -> nn.Module:
    up = _rounds_up(layer, given)
    if up is not None:
        return nn.AvgPool2d(layer.kernel, layer.stride, layer.pads[:2], up, layer.count_include_pad)
    pool = nn.AvgPool2d(layer.kernel, layer.stride)
    pads, factor = reaching_pads(layer, given), average_factors(layer, given)
    if (factor == 1).all():
        return Padded(pool, pads, 0.0)
    return PaddedAverage(pool, pads, factor)


def _batch_norm(layer: W.BatchNorm, given: tuple[int, ...]) -> nn.Module:
    kind = BatchNorm2d if len(given) == 3 else BatchNorm1d
    return kind(given[0], eps=layer.epsilon, momentum=1 - layer.momentum)


def _lstm(layer: W.LSTM, given: tuple[int, ...]) -> nn.Module:
    lstm = LastAxisLSTM(given[-1], layer.hidden, batch_first=True)
    nn.init.zeros_(lstm.bias_hh_l0)
    lstm.bias_hh_l0.requires_grad_(False)
    return lstm


def _gates(order: tuple[int, ...]) -> Callable[[np.ndarray], np.ndarray]:
    """Reorders the four gates, which lie one after another on the first axis."""
    return lambda array: np.concatenate([np.split(array, 4)[gate] for gate in order])


#: ONNX keeps gates as input, output, forget, cell; torch as input, forget, cell, output.
_FROM_ONNX, _TO_ONNX = _gates((0, 2, 3, 1)), _gates((0, 3, 1, 2))

_WEIGHT = {"weight": Place("weight"), "bias": Place("bias")}

TABLE: dict[type, Entry] = {
    W.Conv: Entry(_conv, _WEIGHT),
    W.Linear: Entry(
        lambda layer, given: nn.Linear(given[-1], layer.out_features, layer.bias), _WEIGHT
    ),
    W.BatchNorm: Entry(
        _batch_norm,
        {
            "scale": Place("weight"),
            "bias": Place("bias"),
            "mean": Place("running_mean"),
            "variance": Place("running_var"),
        },
    ),
    W.LayerNorm: Entry(
        lambda layer, given: nn.LayerNorm(given[-1], layer.epsilon),
        {"scale": Place("weight"), "bias": Place("bias")},
    ),
    W.LRN: Entry(
        lambda layer, given: nn.LocalResponseNorm(layer.size, layer.alpha, layer.beta, layer.bias)
    ),
    W.MaxPool: Entry(_max_pool),
    W.AveragePool: Entry(_average_pool),
    W.GlobalAveragePool: Entry(lambda layer, given: nn.AdaptiveAvgPool2d(1)),
    W.ReLU: Entry(lambda layer, given: nn.ReLU()),
    W.ReLU6: Entry(lambda layer, given: nn.ReLU6()),
    W.Tanh: Entry(lambda layer, given: nn.Tanh()),
    W.Sigmoid: Entry(lambda layer, given: nn.Sigmoid()),
    W.HardSigmoid: Entry(lambda layer, given: HardSigmoid()),
    W.GELU: Entry(lambda layer, given: nn.GELU(layer.approximate)),
    W.Dropout: Entry(lambda layer, given: nn.Dropout(layer.rate)),
    W.Add: Entry(lambda layer, given: Sum()),
    W.Mul: Entry(lambda layer, given: Product()),
    W.Concat: Entry(lambda layer, given: Concat(layer.axis)),
    W.Flatten: Entry(lambda layer, given: nn.Flatten()),
    W.Reshape: Entry(lambda layer, given: Reshape(layer.shape)),
    W.Transpose: Entry(lambda layer, given: Transpose(layer.axes)),
    W.ReduceMean: Entry(lambda layer, given: ReduceMean(layer.axis)),
    W.Select: Entry(lambda layer, given: Select(layer.axis, layer.index)),
    W.Pad: Entry(_pad),
    W.Slice: Entry(lambda layer, given: Slice(places_along(layer, given))),
    W.Gather: Entry(_gather),
    W.Embedding: Entry(
        lambda layer, given: nn.Embedding(layer.entries, layer.features),
        {"weight": Place("weight")},
    ),
    W.PositionEmbedding: Entry(
        lambda layer, given: PositionEmbedding(given), {"weight": Place("weight")}
    ),
    W.LSTM: Entry(
        _lstm,
        {
            "input_weight": Place("weight_ih_l0", _FROM_ONNX, _TO_ONNX),
            "recurrent_weight": Place("weight_hh_l0", _FROM_ONNX, _TO_ONNX),
            "bias": Place("bias_ih_l0", _FROM_ONNX, _TO_ONNX),
        },
    ),
    W.Attention: Entry(
        lambda layer, given: SelfAttention(layer, given[-1]),
        {
            f"{name}_{kind}": Place(f"{name}.{kind}")
            for name in W.layers.ATTENTION_MAPS
            for kind in ("weight", "bias")
        },
    ),
}
