"""Modules that torch does not have as the registry needs them, and how layers are built from nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dlb_worker.model import ATTENTION_MAPS, Node
from dlb_worker.poolings import average_factors, reaching_pads, rounds_up

Pads = tuple[int, int, int, int]


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
    def __init__(self, ranges: tuple[tuple[int, int, int], ...]) -> None:
        super().__init__()
        self.parts = tuple(slice(*bounds) for bounds in ranges)

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs[(slice(None),) + self.parts]

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
    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs)[0]


class SelfAttention(nn.Module):
    """Four linear layers around scaled_dot_product_attention."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        features = node.input_shape[-1]
        self.heads, self.causal = node.heads, node.causal
        for name in ATTENTION_MAPS:
            self.add_module(name, nn.Linear(features, features, node.bias))

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

    def __init__(self, layer: nn.Module, pads: Pads, value: float) -> None:
        super().__init__()
        top, left, bottom, right = pads
        self.pad = nn.ConstantPad2d((left, right, top, bottom), value)
        self.layer = layer

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layer(self.pad(inputs))


class PaddedAverage(Padded):
    """Average pooling over the padding, set right where it is not to be counted."""

    factor: Tensor

    def __init__(self, layer: nn.Module, pads: Pads, factor: np.ndarray) -> None:
        super().__init__(layer, pads, 0.0)
        self.register_buffer("factor", torch.tensor(factor), persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs) * self.factor


def tied_linear(node: Node, table: nn.Module) -> nn.Module:
    """A linear layer whose weight is an embedding's."""
    linear = nn.Linear(node.input_shape[-1], node.out_features, node.bias)
    linear.weight = table.weight
    return linear


def parameters_of(module: nn.Module) -> nn.Module:
    """The module that holds the parameters of a layer."""
    return module.layer if isinstance(module, Padded) else module


def conv(node: Node) -> nn.Module:
    even = _even(node.pads)
    layer = nn.Conv2d(
        node.input_shape[0],
        node.out_channels,
        node.kernel,
        node.stride,
        node.pads[:2] if even else 0,
        node.dilation,
        node.groups,
        node.bias,
    )
    return layer if even else Padded(layer, node.pads, 0.0)


def max_pool(node: Node) -> nn.Module:
    up = _rounds_up(node)
    if up is not None:
        return nn.MaxPool2d(node.kernel, node.stride, node.pads[:2], ceil_mode=up)
    return Padded(nn.MaxPool2d(node.kernel, node.stride), reaching_pads(node), float("-inf"))


def average_pool(node: Node) -> nn.Module:
    up = _rounds_up(node)
    if up is not None:
        return nn.AvgPool2d(node.kernel, node.stride, node.pads[:2], up, node.count_include_pad)
    pool = nn.AvgPool2d(node.kernel, node.stride)
    pads, factor = reaching_pads(node), average_factors(node)
    if (factor == 1).all():
        return Padded(pool, pads, 0.0)
    return PaddedAverage(pool, pads, factor)


def _even(pads: Pads) -> bool:
    return pads[:2] == pads[2:]


def _rounds_up(node: Node) -> bool | None:
    """How torch's own pooling rounds; None where torch has no such pooling, or exports another.

    Its pads are even and at most half the kernel.
    """
    top, left = node.pads[:2]
    takes = _even(node.pads) and 2 * top <= node.kernel[0] and 2 * left <= node.kernel[1]
    return rounds_up(node) if takes else None


def batch_norm(node: Node) -> nn.Module:
    kind = BatchNorm2d if len(node.input_shape) == 3 else BatchNorm1d
    return kind(node.input_shape[0], eps=node.epsilon, momentum=1 - node.momentum)


def lstm(node: Node) -> nn.Module:
    layer = LastAxisLSTM(node.input_shape[-1], node.hidden, batch_first=True)
    nn.init.zeros_(layer.bias_hh_l0)
    layer.bias_hh_l0.requires_grad_(False)
    return layer


def pad(node: Node) -> nn.Module:
    """torch counts axes from the last, before and after each."""
    rank = len(node.input_shape)
    around = [n for axis in reversed(range(rank)) for n in node.pads[axis::rank]]
    kind = {1: nn.ConstantPad1d, 2: nn.ConstantPad2d, 3: nn.ConstantPad3d}[rank]
    return kind(tuple(around), node.value)
