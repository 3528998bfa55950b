"""Modules that torch does not have as the registry needs them, and how layers are built from nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dlb_worker.model import ATTENTION_MAPS, Node
from dlb_worker.poolings import average_factors, even_pads, reaching_pads, rounds_up
from dlb_worker.transposed import even_transposed

Pads = tuple[int, ...]
#: Modules by the number of axes of their windows.
CONVOLUTIONS = {2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED = {2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
MAX_POOLS = {2: nn.MaxPool2d, 3: nn.MaxPool3d}
AVERAGE_POOLS = {2: nn.AvgPool2d, 3: nn.AvgPool3d}
WHOLE_MAPS = {2: nn.AdaptiveAvgPool2d, 3: nn.AdaptiveAvgPool3d}
CONSTANT_PADS = {2: nn.ConstantPad2d, 3: nn.ConstantPad3d}


class Operator(nn.Module):
    """A function of torch, or what a subclass composes. It shows its arguments.

    Args:
        name: the function's in ``torch``.
    """

    def __init__(self, name: str = "", **arguments: Any) -> None:
        super().__init__()
        self.name, self.arguments = name, arguments

    def forward(self, *inputs: Tensor) -> Tensor:
        return getattr(torch, self.name)(*inputs, **self.arguments)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value}" for name, value in self.arguments.items())
        return f"{self.name or type(self).__name__}({shown})"


class Concat(Operator):
    def forward(self, *inputs: Tensor) -> Tensor:
        return torch.cat(inputs, **self.arguments)


class Slice(Operator):
    def forward(self, inputs: Tensor) -> Tensor:
        return inputs[(slice(None),) + tuple(slice(*part) for part in self.arguments["ranges"])]


class HardSigmoid(nn.Hardsigmoid):
    """torch's own, and its composition in float64, for its gradient has the slope in float32."""

    def forward(self, inputs: Tensor) -> Tensor:
        if inputs.dtype == torch.float64:
            return F.relu6(inputs + 3) / 6
        return super().forward(inputs)


class Gather(Operator):
    def __init__(self, axis: int, indices: tuple[int, ...]) -> None:
        super().__init__(axis=axis, indices=indices)
        self.register_buffer("places", torch.tensor(indices), persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.index_select(self.arguments["axis"], self.places)


class Scale(Operator):
    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__(sizes=sizes)
        self.scale = nn.Parameter(torch.ones(sizes))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs * self.scale


class Shift(Operator):
    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__(sizes=sizes)
        self.bias = nn.Parameter(torch.zeros(sizes))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs + self.bias


class PositionEmbedding(Operator):
    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(shape=shape)
        self.weight = nn.Parameter(torch.zeros(shape))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs + self.weight


class MaskedDropout(nn.Dropout):
    """Dropout by a fixed mask [rows, ...], of which a batch takes its rows, from ``first`` on."""

    def __init__(self, rate: float, mask: Tensor) -> None:
        super().__init__(rate)
        self.mask = mask  # no buffer: each worker of a strategy keeps its own
        self.first = 0

    def forward(self, inputs: Tensor) -> Tensor:
        if not self.training:
            return inputs
        return inputs * self.mask[self.first : self.first + len(inputs)] / (1 - self.p)


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


class BatchNorm3d(BiasedVariance, nn.BatchNorm3d):
    pass


#: By the number of axes of a sample.
BATCH_NORMS = {1: BatchNorm1d, 3: BatchNorm2d, 4: BatchNorm3d}


class SelfAttention(nn.Module):
    """Four linear layers around scaled_dot_product_attention."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        features = node.input_shape[-1]
        self.heads, self.causal = node.heads, node.causal
        for name in ATTENTION_MAPS:
            self.add_module(name, nn.Linear(features, features, node.bias))

    def forward(self, inputs: Tensor) -> Tensor:
        query, key, value = (
            linear(inputs).unflatten(2, (self.heads, -1)).transpose(1, 2)
            for linear in (self.query, self.key, self.value)
        )
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        return self.output(mixed.transpose(1, 2).flatten(2))

    def extra_repr(self) -> str:
        return f"heads={self.heads}, causal={self.causal}"


class Padded(nn.Module):
    """Pads that torch's layer does not take, as a pad before it: uneven ones, and long ones."""

    def __init__(self, layer: nn.Module, pads: Pads, value: float) -> None:
        super().__init__()
        self.pad = CONSTANT_PADS[len(pads) // 2](around(pads), value)
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


class Cut(nn.Module):
    """What torch's layer cannot leave out, cut off after it: uneven pads of a transposed convolution."""

    def __init__(self, layer: nn.Module, ranges: tuple[tuple[int, int], ...]) -> None:
        super().__init__()
        self.layer = layer
        self.cut = Slice(ranges=ranges)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.cut(self.layer(inputs))


def tied_linear(node: Node, table: nn.Module) -> nn.Module:
    """A linear layer whose weight is an embedding's."""
    linear = nn.Linear(node.input_shape[-1], node.out_features, node.bias)
    linear.weight = table.weight
    return linear


def parameters_of(module: nn.Module) -> nn.Module:
    """The module that holds the parameters of a layer."""
    return module.layer if isinstance(module, (Padded, Cut)) else module


def conv(node: Node) -> nn.Module:
    even, axes = even_pads(node), len(node.kernel)
    layer = CONVOLUTIONS[axes](
        node.input_shape[0],
        node.out_channels,
        node.kernel,
        node.stride,
        node.pads[:axes] if even else 0,
        node.dilation,
        node.groups,
        node.bias,
    )
    return layer if even else Padded(layer, node.pads, 0.0)


def conv_transpose(node: Node) -> nn.Module:
    even = even_transposed(node)
    layer = TRANSPOSED[len(node.kernel)](
        node.input_shape[0],
        node.out_channels,
        node.kernel,
        node.stride,
        even.pads,
        even.output_padding,
        node.groups,
        node.bias,
        node.dilation,
    )
    return Cut(layer, even.ranges) if even.ranges else layer


def max_pool(node: Node) -> nn.Module:
    up, axes = _rounds_up(node), len(node.kernel)
    pool, dilation = MAX_POOLS[axes], node.dilation
    if up is not None:
        return pool(node.kernel, node.stride, node.pads[:axes], dilation, ceil_mode=up)
    layer = pool(node.kernel, node.stride, dilation=dilation)
    return Padded(layer, reaching_pads(node), float("-inf"))


def average_pool(node: Node) -> nn.Module:
    up, axes = _rounds_up(node), len(node.kernel)
    pool = AVERAGE_POOLS[axes]
    if up is not None:
        return pool(node.kernel, node.stride, node.pads[:axes], up, node.count_include_pad)
    pads, factor = reaching_pads(node), average_factors(node)
    if (factor == 1).all():
        return Padded(pool(node.kernel, node.stride), pads, 0.0)
    return PaddedAverage(pool(node.kernel, node.stride), pads, factor)


def global_average_pool(node: Node) -> nn.Module:
    return WHOLE_MAPS[len(node.input_shape) - 1](1)


def _rounds_up(node: Node) -> bool | None:
    """How torch's own pooling rounds; None where torch has no such pooling, or exports another.

    Its pads are even and at most half the kernel.
    """
    takes = even_pads(node) and all(2 * pad <= size for pad, size in zip(node.pads, node.kernel))
    return rounds_up(node) if takes else None


def batch_norm(node: Node) -> nn.Module:
    kind = BATCH_NORMS[len(node.input_shape)]
    return kind(node.input_shape[0], eps=node.epsilon, momentum=1 - node.momentum)


def around(pads: Pads) -> Pads:
    """torch counts axes from the last, before and after each."""
    axes = len(pads) // 2
    return tuple(number for axis in reversed(range(axes)) for number in pads[axis::axes])


def pad(node: Node) -> nn.Module:
    kind = {1: nn.ConstantPad1d, **CONSTANT_PADS}[len(node.input_shape)]
    return kind(around(node.pads), node.value)
