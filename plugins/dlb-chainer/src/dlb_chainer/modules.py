"""Links and functions that Chainer does not have as the registry needs them, built from nodes."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from types import SimpleNamespace
from typing import Any

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
from chainer import Variable

from dlb_worker.model import ATTENTION_MAPS, Node
from dlb_worker.poolings import average_factors, even_pads, reaching_pads, rounds_up
from dlb_worker.transposed import even_transposed

Function = Callable[..., Variable]
Pads = tuple[int, ...]


def concat(*inputs: Variable, axis: int) -> Variable:
    return F.concat(inputs, axis)


def multiply(first: Variable, second: Variable) -> Variable:
    return first * F.broadcast_to(second, first.shape)


def scale(inputs: Variable, factor: np.ndarray) -> Variable:
    return inputs * inputs.device.send(factor.astype(inputs.dtype))


def hard_sigmoid(inputs: Variable) -> Variable:
    return F.clipped_relu(inputs + 3, z=6.0) / 6


def gelu(inputs: Variable) -> Variable:
    return 0.5 * inputs * (1 + F.erf(inputs * math.sqrt(0.5)))


def gelu_by_tanh(inputs: Variable) -> Variable:
    # A cube would be numpy's general power, which takes tens of times as long as its square.
    inside = math.sqrt(2 / math.pi) * inputs * (1 + 0.044715 * inputs**2)
    return 0.5 * inputs * (1 + F.tanh(inside))


def masked_dropout(inputs: Variable, ratio: float, mask: Any) -> Variable:
    """Dropout by a fixed mask [rows, ...], of which a batch takes the first rows."""
    mask = mask.reshape(-1, *inputs.shape[1:])[: len(inputs)]
    # Chainer takes the mask scaled.
    return F.dropout(inputs, ratio, mask=mask / (1 - ratio))


def prelu(inputs: Variable, slope: Variable) -> Variable:
    """Composed, since the gradient of F.prelu at 0 is 1. Slopes are of channels, the second axis."""
    above = F.relu(inputs)
    slopes = F.reshape(slope, (1, -1, *(1,) * (inputs.ndim - 2)))
    return above + (inputs - above) * F.broadcast_to(slopes, inputs.shape)


class PReLU(L.PReLU):
    def forward(self, inputs: Any) -> Variable:
        return prelu(chainer.as_variable(inputs), self.W)


def rms_normalization(rows: Variable, gamma: Variable, eps: float) -> Variable:
    root = F.sqrt(F.average(rows * rows, axis=1, keepdims=True) + eps)
    normal = rows / F.broadcast_to(root, rows.shape)
    return normal * F.broadcast_to(gamma, rows.shape)


def dilated_max_pooling(
    inputs: Variable, ksize: Sequence[int], stride: Sequence[int], dilate: Sequence[int]
) -> Variable:
    """Composed, since Chainer has none with dilation: along one axis after another.

    Of two equal numbers, F.maximum gives the first the gradient. The last axis comes first, so that the
    first of a window gets it.
    """
    for axis in reversed(range(len(ksize))):
        size, kernel, dilation = inputs.shape[axis + 2], ksize[axis], dilate[axis]
        last = (size - dilation * (kernel - 1) - 1) // stride[axis] * stride[axis] + 1
        before = (slice(None),) * (axis + 2)
        starts = range(0, dilation * kernel, dilation)
        taps = [inputs[before + (slice(start, start + last, stride[axis]),)] for start in starts]
        inputs = reduce(F.maximum, taps)
    return inputs


class TiedLinear(chainer.Link):
    """A linear layer whose weight is an embedding's."""

    def __init__(self, node: Node, table: chainer.Link) -> None:
        super().__init__()
        # Out of the scope: an optimizer would update the weight once for each link that has it.
        self.table = table
        with self.init_scope():
            self.b = chainer.Parameter(0, node.out_features) if node.bias else None

    def forward(self, inputs: Variable) -> Variable:
        return F.linear(inputs, self.table.W, self.b)


@dataclass(frozen=True)
class Part:
    """Rows of a Chainer parameter that make up a canonical parameter; reads like a parameter."""

    whole: chainer.Parameter
    rows: slice

    @property
    def array(self) -> Any:
        return self.whole.array[self.rows]

    @property
    def grad(self) -> Any:
        return None if self.whole.grad is None else self.whole.grad[self.rows]


class SelfAttention(chainer.Chain):
    """Composed of two linear links, matmul and softmax; over the rows of sequences.

    One link makes queries, keys and values: one product for the three, and one update.
    """

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.steps, features = node.input_shape
        self.heads, self.causal = node.heads, node.causal
        with self.init_scope():
            self.stacked = L.Linear(features, 3 * features, nobias=not node.bias)
            self.output = L.Linear(features, features, nobias=not node.bias)
        for place, name in enumerate(ATTENTION_MAPS[:3]):
            rows = slice(place * features, (place + 1) * features)
            parts = {"W": Part(self.stacked.W, rows), "b": Part(self.stacked.b, rows)}
            setattr(self, name, SimpleNamespace(**parts))

    def forward(self, rows: Variable) -> Variable:
        size = rows.shape[1] // self.heads
        queries, keys, values = [
            F.transpose(F.reshape(heads, (-1, self.steps, self.heads, size)), (0, 2, 1, 3))
            for heads in F.split_axis(self.stacked(rows), 3, axis=1)
        ]
        # Scaled queries, though fewer numbers, would be kept for the backward pass next to these.
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


class RMSNormalization(chainer.Link):
    """Division of rows by their root mean square, which Chainer does not have."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        with self.init_scope():
            self.gamma = chainer.Parameter(1, size)

    def forward(self, inputs: Any) -> Variable:
        return rms_normalization(chainer.as_variable(inputs), self.gamma, eps=self.eps)


class DilatedMaxPooling(chainer.Link):
    """Max pooling with gaps in its windows, which Chainer does not have."""

    def __init__(
        self, ksize: tuple[int, ...], stride: tuple[int, ...], dilate: tuple[int, ...]
    ) -> None:
        super().__init__()
        self.ksize, self.stride, self.dilate = ksize, stride, dilate

    def forward(self, inputs: Any) -> Variable:
        sizes = {"ksize": self.ksize, "stride": self.stride, "dilate": self.dilate}
        return dilated_max_pooling(chainer.as_variable(inputs), **sizes)


class _OfVariables:
    """A transposed convolution of Chainer, of an input that has a gradient in training.

    Without one, as of the model's input, its backward pass fails: Chainer 7.8.1 unpacks the arrays where it
    needs their shapes.
    """

    def forward(self, inputs: Any) -> Variable:
        variable = chainer.as_variable(inputs)
        if chainer.config.train and not variable.requires_grad:
            variable = Variable(variable.array)
        return super().forward(variable)  # type: ignore[misc]


class Deconvolution2D(_OfVariables, L.Deconvolution2D):
    pass


class DeconvolutionND(_OfVariables, L.DeconvolutionND):
    pass


def conv(node: Node) -> chainer.Link:
    axes = len(node.kernel)
    sizes: list[Any] = [node.input_shape[0], node.out_channels, node.kernel, node.stride]
    options = {"nobias": not node.bias, "dilate": node.dilation, "groups": node.groups}
    kind = L.Convolution2D if axes == 2 else partial(L.ConvolutionND, axes)
    if even_pads(node):
        return kind(*sizes, node.pads[:axes], **options)
    return padded(node.pads, 0, kind(*sizes, **options))


def conv_transpose(node: Node) -> chainer.Link:
    even = even_transposed(node)
    sizes = [
        (size - 1) * stride + dilation * (kernel - 1) + 1 + added - 2 * pad
        for size, stride, dilation, kernel, added, pad in zip(
            node.input_shape[1:],
            node.stride,
            node.dilation,
            node.kernel,
            even.output_padding,
            even.pads,
        )
    ]
    axes = len(node.kernel)
    kind = Deconvolution2D if axes == 2 else partial(DeconvolutionND, axes)
    layer = kind(
        node.input_shape[0],
        node.out_channels,
        node.kernel,
        node.stride,
        even.pads,
        nobias=not node.bias,
        outsize=tuple(sizes),
        dilate=node.dilation,
        groups=node.groups,
    )
    if not even.ranges:
        return layer
    kept = (slice(None), *(slice(*part) for part in even.ranges))
    return chainer.Sequential(layer, partial(F.get_item, slices=kept))


def max_pool(node: Node) -> Function:
    axes, pads = len(node.kernel), reaching_pads(node)
    if max(node.dilation) > 1:
        dilated = DilatedMaxPooling(node.kernel, node.stride, node.dilation)
        return padded(pads, -np.inf, dilated) if any(pads) else dilated
    function = F.max_pooling_2d if axes == 2 else F.max_pooling_nd
    pool = partial(function, ksize=node.kernel, stride=node.stride)
    up = rounds_up(node) if even_pads(node) else None
    if up is not None:
        return partial(pool, pad=node.pads[:axes], cover_all=up)
    return padded(pads, -np.inf, partial(pool, cover_all=False))


def average_pool(node: Node) -> Function:
    axes, sizes = len(node.kernel), {"ksize": node.kernel, "stride": node.stride}
    pool = partial(F.average_pooling_2d if axes == 2 else F.average_pooling_nd, **sizes)
    # Chainer's average poolings do not round up.
    if even_pads(node) and rounds_up(node) is False:
        if node.count_include_pad or not any(node.pads):
            return partial(pool, pad=node.pads[:axes])
        return partial(F.average_pooling_nd, **sizes, pad=node.pads[:axes], pad_value=None)
    factor = average_factors(node)
    corrections = [] if (factor == 1).all() else [partial(scale, factor=factor)]
    return padded(reaching_pads(node), 0, pool, *corrections)


def global_average_pool(node: Node) -> Function:
    sizes = node.input_shape[1:]
    function = F.average_pooling_2d if len(sizes) == 2 else F.average_pooling_nd
    return partial(function, ksize=sizes, stride=1)


def padded(pads: Pads, value: float, *layers: Function) -> chainer.Link:
    """Layers after a pad that Chainer's own (the same on both sides) cannot express."""
    axes = len(pads) // 2
    pad = constant_pad([(0, 0), *zip(pads[:axes], pads[axes:])], value)
    return chainer.Sequential(pad, *layers)


def parameters_of(layer: Any) -> Any:
    """The link that holds the parameters of a layer."""
    if not isinstance(layer, chainer.Sequential):
        return layer
    return next(part for part in reversed(list(layer)) if isinstance(part, chainer.Link))


def pad(node: Node) -> Function:
    rank = len(node.input_shape)
    return constant_pad([node.pads[axis::rank] for axis in range(rank)], node.value)


def constant_pad(widths: Sequence[tuple[int, int]], value: float) -> Function:
    """A pad before and after each axis of a sample."""
    width = ((0, 0), *widths)
    return partial(F.pad, pad_width=width, mode="constant", constant_values=(value,))


def describe(layer: Any) -> str:
    """A link's type and attributes, or a function's name and the arguments that are set."""
    if isinstance(layer, chainer.Sequential):
        return ", then ".join(describe(part) for part in layer)
    if inspect.isfunction(layer):
        return str(layer.__name__)
    if isinstance(layer, partial):
        name, attributes = layer.func.__name__, layer.keywords
    else:
        name, attributes = type(layer).__name__, vars(layer)
    shown = [
        f"{key}={value}"
        for key, value in attributes.items()
        # The others belong to the link itself, not to what it computes.
        if key[0] != "_" and key not in ("name", "cudnn_fast")
        if isinstance(value, (bool, int, float, str, tuple))
    ]
    return f"{name}({', '.join(shown)})"
