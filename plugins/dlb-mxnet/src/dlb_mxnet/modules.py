"""Blocks that gluon does not have as the registry needs them, and how layers are built from nodes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import mxnet as mx
import numpy as np
from mxnet.gluon import HybridBlock, Parameter, nn

from dlb_worker.model import ATTENTION_MAPS, Node
from dlb_worker.poolings import even_pads
from dlb_worker.transposed import even_transposed

Shape = tuple[int, ...]
#: By the number of axes of their windows.
CONVOLUTIONS = {2: nn.Conv2D, 3: nn.Conv3D}
#: Whether layers are traced for an exporter, which needs no gradients.
EXPORTING = ContextVar("exporting", default=False)


class Operator(HybridBlock):
    """An operator of MXNet, or what a subclass composes. Its arguments are attributes, and shown.

    Args:
        operator: its name in ``mx.nd``.
    """

    def __init__(self, operator: str = "", **arguments: Any) -> None:
        super().__init__()
        self.operator, self.arguments = operator, arguments
        for name, value in arguments.items():
            setattr(self, name, value)

    def hybrid_forward(self, F: Any, *inputs: Any) -> Any:
        return getattr(F, self.operator)(*inputs, **self.arguments)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value}" for name, value in self.arguments.items())
        return f"{self.operator or type(self).__name__}({shown})"


class ReLU6(Operator):
    """A ReLU and a minimum: the gradient of ``clip`` at a bound is 1."""

    def hybrid_forward(self, F: Any, inputs: Any) -> Any:
        return F.minimum(F.relu(inputs), 6)


class HardSigmoid(Operator):
    """MXNet's own. Composed in float64, since the operator keeps its slope in float32.

    The gradient of the operator is written over the one that it gets, which may be another's too (its input
    and output added, and some of the sum taken). The factor has an array of its own for it.
    """

    def hybrid_forward(self, F: Any, inputs: Any) -> Any:
        if self.dtype == "float64":
            return F.minimum(F.relu(inputs + 3), 6) / 6
        return F.hard_sigmoid(inputs, alpha=1 / 6, beta=0.5) * 1.0


class GELUInDouble(Operator):
    """Composed, since the operator keeps its constants in float32, and so does the gradient of erf.

    The distribution function has no gradient here. A zero is added whose gradient is the density.
    """

    def hybrid_forward(self, F: Any, inputs: Any) -> Any:
        below = F.BlockGrad(0.5 + 0.5 * F.erf(inputs / math.sqrt(2)))
        density = F.BlockGrad(F.exp(-0.5 * inputs * inputs) / math.sqrt(2 * math.pi))
        return inputs * (below + (inputs - F.BlockGrad(inputs)) * density)


class GELUByTanh(Operator):
    """Composed, since MXNet has GELU by the error function only."""

    def hybrid_forward(self, F: Any, inputs: Any) -> Any:
        scale = math.sqrt(2 / math.pi)
        inside = inputs * (scale + scale * 0.044715 * F.square(inputs))
        return 0.5 * inputs * (1 + F.tanh(inside))


#: Channels that oneDNN keeps together at most.
BLOCK = 16


def plain(F: Any, maps: Any) -> Any:
    """Maps and their gradients in MXNet's own layout. They may come in one of oneDNN's.

    Some of MXNet's operators cannot read oneDNN's layouts. These two are not computed by oneDNN,
    so MXNet changes the layout before them.
    """
    return F.squeeze(F.expand_dims(maps, axis=1), axis=1)


class Concat(Operator):
    """Concatenation, in MXNet's own layout where oneDNN's fails.

    Where the first input has a single feature, oneDNN returns one of its own layouts. A batch
    normalisation after it cannot train then ("Check failed: !is_view"). A reshape to the same shape
    changes the layout.

    A map's gradient may have its channels in blocks of 8 or 16. It cannot be split within a block:
    the process dies, or oneDNN refuses ("could not construct a sub-memory").
    """

    def __init__(self, axis: int, input_shapes: tuple[Shape, ...]) -> None:
        super().__init__(axis=axis)
        self.single_first = input_shapes[0] == (1,)
        self.within_blocks = len(input_shapes[0]) in (3, 4) and any(
            shape[0] % BLOCK for shape in input_shapes
        )

    def hybrid_forward(self, F: Any, *inputs: Any) -> Any:
        joined = F.concat(*inputs, dim=self.axis)
        if self.within_blocks:
            return plain(F, joined)
        return F.reshape(joined, shape=(0, 0)) if self.single_first else joined


class Reshape(Operator):
    """A reshape; to a map and of a film, in MXNet's own layout.

    A convolution returns a map's gradient in one of oneDNN's layouts. A transpose before the
    reshape cannot read it ("could not create a primitive descriptor for a reorder primitive"). Nor can
    a reshape read a film in such a layout.
    """

    def __init__(self, node: Node) -> None:
        super().__init__(shape=node.attributes["shape"])
        self.of_films = len(node.input_shape) == 4

    def hybrid_forward(self, F: Any, inputs: Any) -> Any:
        inputs = plain(F, inputs) if self.of_films else inputs
        reshaped = F.reshape(inputs, shape=(0, *self.shape))
        return plain(F, reshaped) if len(self.shape) in (3, 4) else reshaped


class Transpose(Operator):
    """A transpose; of films, in MXNet's own layout, for the operator cannot read oneDNN's of five axes."""

    def hybrid_forward(self, F: Any, inputs: Any) -> Any:
        transposed = F.transpose(
            plain(F, inputs) if len(self.axes) == 5 else inputs, axes=self.axes
        )
        return plain(F, transposed) if len(self.axes) == 5 else transposed


class Select(Operator):
    def hybrid_forward(self, F: Any, inputs: Any) -> Any:
        selected = F.slice_axis(inputs, axis=self.axis, begin=self.index, end=self.index + 1)
        return F.squeeze(selected, axis=self.axis)


class Pad(Operator):
    """The operator pads [N, C, H, W] and [N, C, D, H, W], but neither N nor C.

    Where that is not enough, axes of size 1 are inserted after the batch, and removed again.
    """

    def __init__(self, pads: Shape, value: float) -> None:
        rank = len(pads) // 2
        around = tuple(n for axis in range(rank) for n in pads[axis::rank])
        enough = rank in (3, 4) and not any(around[:2])
        between = () if enough else tuple(range(1, max(2, 4 - rank)))
        super().__init__(pad_width=(0, 0) * (1 + len(between)) + around, value=value)
        self.between = between

    def hybrid_forward(self, F: Any, inputs: Any) -> Any:
        for axis in self.between:
            inputs = F.expand_dims(inputs, axis=axis)
        padded = F.pad(inputs, mode="constant", pad_width=self.pad_width, constant_value=self.value)
        return F.squeeze(padded, axis=self.between) if self.between else padded


class Slice(Operator):
    """A slice; of maps, in MXNet's own layout.

    In oneDNN's layouts, a slice of a convolution's channels divides by zero, or oneDNN refuses
    ("could not construct a sub-memory").
    """

    def __init__(self, ranges: tuple[tuple[int, int, int], ...]) -> None:
        begin, end, step = zip(*ranges)
        super().__init__(begin=(None, *begin), end=(None, *end), step=(None, *step))

    def hybrid_forward(self, F: Any, inputs: Any) -> Any:
        maps = plain(F, inputs) if len(self.begin) in (4, 5) else inputs
        return F.slice(maps, **self.arguments)


class Gather(Operator):
    def __init__(self, axis: int, indices: Shape, dtype: str) -> None:
        super().__init__(axis=axis)
        self.arguments["indices"] = indices
        with self.name_scope():
            self.indices = self.params.get_constant("indices", mx.nd.array(indices, dtype=dtype))

    def hybrid_forward(self, F: Any, inputs: Any, indices: Any) -> Any:
        return F.take(inputs, indices, axis=self.axis)


def slices(node: Node, dtype: str) -> HybridBlock:
    if len(node.ranges) < 5:
        return Slice(node.ranges)
    block = nn.HybridSequential()
    for axis, (start, stop, step) in enumerate(node.ranges, start=1):
        indices = tuple(range(start, stop, step))
        if len(indices) < node.input_shape[axis - 1]:
            block.add(Gather(axis, indices, dtype))
    return block


class Scale(Operator):
    def __init__(self, sizes: Shape) -> None:
        super().__init__(sizes=sizes)
        with self.name_scope():
            self.scale = self.params.get("scale", shape=(1, *sizes))

    def hybrid_forward(self, F: Any, inputs: Any, scale: Any) -> Any:
        return F.broadcast_mul(inputs, scale)


class Shift(Operator):
    def __init__(self, sizes: Shape) -> None:
        super().__init__(sizes=sizes)
        with self.name_scope():
            self.bias = self.params.get("bias", shape=(1, *sizes))

    def hybrid_forward(self, F: Any, inputs: Any, bias: Any) -> Any:
        return F.broadcast_add(inputs, bias)


class PositionEmbedding(Operator):
    def __init__(self, shape: Shape) -> None:
        super().__init__(shape=shape)
        with self.name_scope():
            self.weight = self.params.get("weight", shape=(1, *shape))

    def hybrid_forward(self, F: Any, inputs: Any, weight: Any) -> Any:
        return F.broadcast_add(inputs, weight)


class LRN(Operator):
    """Composed, since the operator refuses float64, and its float32 gradient is wrong.

    A convolution or a pooling of 8 or 16 channels returns its gradient in oneDNN's blocked layout.
    The operator's backward pass (MXNet 1.9.1 with oneDNN) reads it as if it were plain.

    The mean over neighbouring channels is an average pooling of [N, 1, C, H, W].
    """

    def hybrid_forward(self, F: Any, inputs: Any) -> Any:
        squares = F.square(inputs).expand_dims(axis=1)
        window = {"kernel": (self.nsize, 1, 1), "pad": (self.nsize // 2, 0, 0)}
        mean = F.Pooling(squares, pool_type="avg", **window).squeeze(axis=1)
        return inputs / (self.knorm + self.alpha * mean) ** self.beta


class Part:
    """A part of a parameter, which has ``count`` equal parts on its first axis."""

    def __init__(self, parameter: Parameter, index: int = 0, count: int = 1) -> None:
        self.parameter, self.index, self.count = parameter, index, count

    def view(self, array: mx.nd.NDArray) -> mx.nd.NDArray:
        """The part's section of an array of the parameter's shape, in the same memory."""
        size = len(array) // self.count
        return array[self.index * size : (self.index + 1) * size]

    def data(self, ctx: mx.Context | None = None) -> mx.nd.NDArray:
        return self.view(self.parameter.data(ctx))

    def grad(self, ctx: mx.Context | None = None) -> mx.nd.NDArray:
        return self.view(self.parameter.grad(ctx))


class SelfAttention(Operator):
    """Composed of two dense blocks, gemm2 and softmax.

    One block computes queries, keys and values: one product for all three, and one update. They
    are split when all heads lie one after another. Along the last axis, MXNet's split takes three
    times as long.
    """

    def __init__(self, node: Node, dtype: str) -> None:
        super().__init__(heads=node.heads, causal=node.causal)
        self.steps, self.features = node.input_shape
        shared = {"flatten": False, "use_bias": node.bias, "in_units": self.features}
        with self.name_scope():
            self.joint = nn.Dense(3 * self.features, **shared)
            self.output = nn.Dense(self.features, **shared)
            if node.causal:
                above = np.triu(np.full((1, self.steps, self.steps), -1e30), 1)
                self.mask = self.params.get_constant("mask", mx.nd.array(above, dtype=dtype))
        for third, name in enumerate(ATTENTION_MAPS[:3]):
            weight, bias = Part(self.joint.weight, third, 3), Part(self.joint.bias, third, 3)
            setattr(self, name, SimpleNamespace(weight=weight, bias=bias))

    def hybrid_forward(self, F: Any, inputs: Any, mask: Any = None) -> Any:
        heads, steps, size = self.heads, self.steps, self.features // self.heads
        joint = self.joint(inputs).reshape((-1, steps, 3 * heads, size)).transpose((0, 2, 1, 3))
        queries, keys, values = [
            third.reshape((-1, steps, size)) for third in F.split(joint, num_outputs=3, axis=1)
        ]
        scores = F.linalg.gemm2(queries, keys, transpose_b=True, alpha=1 / math.sqrt(size))
        shares = F.softmax(scores if mask is None else F.broadcast_add(scores, mask))
        mixed = F.linalg.gemm2(shares, values).reshape((-1, heads, steps, size))
        return self.output(mixed.transpose((0, 2, 1, 3)).reshape((-1, steps, self.features)))


class LayerNormInDouble(nn.LayerNorm):
    """Composed, since the operator keeps its epsilon in float32."""

    def hybrid_forward(self, F: Any, inputs: Any, gamma: Any, beta: Any) -> Any:
        centred = F.broadcast_sub(inputs, F.mean(inputs, axis=-1, keepdims=True))
        variance = F.mean(F.square(centred), axis=-1, keepdims=True)
        normal = F.broadcast_div(centred, F.sqrt(variance + self._epsilon))
        return F.broadcast_add(F.broadcast_mul(normal, gamma), beta)


class PReLU(nn.PReLU):
    """Composed, since the operator keeps slopes in float32, and its gradient of them may be wrong.

    MXNet 1.9.1 computes another one after a batch normalisation. It is exported as the one operator that it
    is, with an axis for each axis of a map.
    """

    def __init__(self, node: Node) -> None:
        super().__init__(in_channels=1 if node.shared else node.input_shape[0])
        self.places = (1,) * (len(node.input_shape) - 1)

    def hybrid_forward(self, F: Any, inputs: Any, alpha: Any) -> Any:
        if EXPORTING.get():
            slopes = F.reshape(alpha, shape=(-1, *self.places)) if self.places else alpha
            return super().hybrid_forward(F, inputs, slopes)
        above = F.relu(inputs)
        slopes = F.reshape(alpha, shape=(1, -1, *self.places))
        return above + F.broadcast_mul(inputs - above, slopes)


class GroupNorm(Operator):
    """Composed, since the operator has a scale for each group, and keeps its epsilon in float32."""

    def __init__(self, node: Node) -> None:
        super().__init__(groups=node.groups, epsilon=node.epsilon)
        channels, *places = node.input_shape
        self.axes, self.channels = 1 + len(places), channels
        with self.name_scope():
            self.gamma = self.params.get("gamma", shape=(channels,))
            self.beta = self.params.get("beta", shape=(channels,))

    def hybrid_forward(self, F: Any, inputs: Any, gamma: Any, beta: Any) -> Any:
        inputs = plain(F, inputs) if self.axes == 4 else inputs
        groups = F.reshape(inputs, shape=(0, self.groups, -1))
        centred = F.broadcast_sub(groups, F.mean(groups, axis=2, keepdims=True))
        variance = F.mean(F.square(centred), axis=2, keepdims=True)
        normal = F.broadcast_div(centred, F.sqrt(variance + self.epsilon))
        channels = F.reshape(normal, shape=(0, self.channels, -1))
        scale, bias = (F.reshape(each, shape=(1, -1, 1)) for each in (gamma, beta))
        channels = F.broadcast_add(F.broadcast_mul(channels, scale), bias)
        whole = F.reshape_like(channels, inputs)
        return plain(F, whole) if self.axes in (3, 4) else whole


class RMSNorm(Operator):
    """Composed, since MXNet has none."""

    def __init__(self, node: Node) -> None:
        super().__init__(epsilon=node.epsilon)
        with self.name_scope():
            self.gamma = self.params.get("gamma", shape=node.input_shape[-1:])

    def hybrid_forward(self, F: Any, inputs: Any, gamma: Any) -> Any:
        mean = F.mean(F.square(inputs), axis=-1, keepdims=True)
        normal = F.broadcast_div(inputs, F.sqrt(mean + self.epsilon))
        return F.broadcast_mul(normal, gamma)


class DropoutInDouble(nn.Dropout):
    """Takes the operator's mask, and scales by itself: the operator's 1 / (1 - rate) is in float32.

    In evaluation the operator is the identity, so its mask is 1 everywhere.
    """

    def __init__(self, rate: float) -> None:
        super().__init__(rate)
        self.scale = 1 / (1 - rate)

    def hybrid_forward(self, F: Any, inputs: Any) -> Any:
        mask = super().hybrid_forward(F, F.ones_like(inputs))
        kept = mask > 1
        return inputs * (mask - mask * kept + kept * self.scale)


class MaskedDropout(nn.Dropout):
    """Dropout by a fixed mask [rows, ...], of which a batch takes the first rows.

    A compiled block does not know the mode, but its operators do: a dropout of ones by half
    returns 0 or 2 in training, and 1 in evaluation.
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
    """The operator's momentum is 0: :func:`exact_statistics` moves the running statistics."""

    def __init__(self, momentum: float, **arguments: Any) -> None:
        super().__init__(momentum=0.0, **arguments)
        self.exact_momentum = momentum

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, exact_momentum={self.exact_momentum})"


class FilmBatchNorm(nn.BatchNorm):
    """Of films, in MXNet's own layout before and after it.

    Films and their gradients may come in one of oneDNN's, which the operator cannot read where they have five
    axes ("Check failed: !is_view").
    """

    def hybrid_forward(self, F: Any, inputs: Any, *held: Any, **named: Any) -> Any:
        return plain(F, super().hybrid_forward(F, plain(F, inputs), *held, **named))


@contextmanager
def exact_statistics(momentums: Mapping[nn.BatchNorm, float]) -> Iterator[None]:
    """Move running statistics by array operators, in a forward and a backward pass.

    MXNet's operator keeps its momentum in float32, which would move them 1e-8 wrong. With a
    momentum of 0 it leaves the batch's own statistics.

    Args:
        momentums: the true momentum of each block. The operator of a compiled block has 0 already.
    """
    if not momentums:  # Waiting would take a step's time.
        yield
        return
    own = {block: block._kwargs["momentum"] for block in momentums}
    mx.nd.waitall()
    kept = [
        (momentum, running, running.copy())
        for block, momentum in momentums.items()
        for statistic in (block.running_mean, block.running_var)
        for running in statistic.list_data()
    ]
    mx.nd.waitall()
    try:
        for block in momentums:
            block._kwargs["momentum"] = 0.0
        yield
    finally:
        for block, momentum in own.items():
            block._kwargs["momentum"] = momentum
    mx.nd.waitall()
    for momentum, running, before in kept:
        running[:] = momentum * before + (1 - momentum) * running


class Padded(Operator):
    """Pads that MXNet's layer does not take, as a pad before it."""

    def __init__(self, layer: HybridBlock, pads: Shape, value: float) -> None:
        axes = len(pads) // 2
        super().__init__(pad=Pad((0, *pads[:axes], 0, *pads[axes:]), value), layer=layer)

    def hybrid_forward(self, F: Any, inputs: Any) -> Any:
        return self.layer(self.pad(inputs))


class DilatedTranspose(nn.Conv2DTranspose):
    """Of stride 1, on its input with zeros between places, which products put there.

    MXNet 1.9.1 places a dilated kernel wrongly where the stride is not 1. It is exported as one operator.
    """

    def __init__(self, node: Node, dtype: str, padding: Any, more: Any, **options: Any) -> None:
        super().__init__(
            node.out_channels, node.kernel, (1, 1), padding, (0, 0), node.dilation, **options
        )
        self.whole = {**self._kwargs, "stride": node.stride, "adj": more}
        spreads = map(spread_matrix, node.input_shape[1:], node.stride, (0, 0), more)
        _add_constants(self, "spread", spreads, dtype)

    def hybrid_forward(
        self, F: Any, inputs: Any, weight: Any, bias: Any = None, **spreads: Any
    ) -> Any:
        if EXPORTING.get():
            held = [weight] if bias is None else [weight, bias]
            return F.Deconvolution(inputs, *held, name="fwd", **self.whole)
        return super().hybrid_forward(F, along_axes(F, inputs, "spread", spreads), weight, bias)


class FilmTranspose(nn.Conv3DTranspose):
    """A convolution by the turned kernel of the input with zeros between and around its places.

    MXNet 1.9.1 has a transposed convolution over three axes in float32 alone, and none that is dilated. It is
    exported as one operator, a dilated one with zeros in its kernel.
    """

    def __init__(self, node: Node, dtype: str, padding: Any, more: Any, **options: Any) -> None:
        super().__init__(node.out_channels, node.kernel, node.stride, padding, more, **options)
        self.dilation, self.groups, ones = node.dilation, node.groups, (1, 1, 1)
        covers = [gap * (size - 1) for gap, size in zip(node.dilation, node.kernel)]
        before = [cover - pad for cover, pad in zip(covers, padding)]
        after = [start + added for start, added in zip(before, more)]
        spreads = map(spread_matrix, node.input_shape[1:], node.stride, before, after)
        _add_constants(self, "spread", spreads, dtype)
        gaps = map(spread_matrix, node.kernel, node.dilation, (0, 0, 0), (0, 0, 0))
        _add_constants(self, "gap", gaps, dtype)
        self.whole = {**self._kwargs, "kernel": tuple(cover + 1 for cover in covers)}
        self.turned = {
            **{name: self._kwargs[name] for name in ("kernel", "num_filter", "no_bias", "layout")},
            **{"stride": ones, "pad": (0, 0, 0), "dilate": node.dilation, "num_group": node.groups},
        }

    def hybrid_forward(
        self, F: Any, inputs: Any, weight: Any, bias: Any = None, **matrices: Any
    ) -> Any:
        held = [] if bias is None else [bias]
        if EXPORTING.get():
            apart = along_axes(F, weight, "gap", matrices)
            return F.Deconvolution(inputs, apart, *held, name="fwd", **self.whole)
        # [C, out / groups, ...] to [out, C / groups, ...]
        by_group = F.reshape(weight, shape=(-4, self.groups, -1, 0, 0, 0, 0))
        turned = F.transpose(by_group, axes=(0, 2, 1, 3, 4, 5))
        turned = F.reverse(F.reshape(turned, shape=(-3, 0, 0, 0, 0)), axis=(2, 3, 4))
        spread = along_axes(F, inputs, "spread", matrices)
        return F.Convolution(spread, turned, *held, name="fwd", **self.turned)


def spread_matrix(size: int, stride: int, before: int, after: int) -> np.ndarray:
    """What an axis is multiplied by so that zeros are between and around its places.

    Numbers of zeros below 0 leave places out.
    """
    whole = np.eye((size - 1) * stride + 1)[::stride]
    whole = np.pad(whole, [(0, 0), (max(0, before), max(0, after))])
    return whole[:, max(0, -before) : whole.shape[1] - max(0, -after)]


def along_axes(F: Any, value: Any, name: str, matrices: Mapping[str, Any]) -> Any:
    """A value [N, C, ...] of which each axis but the first two is multiplied by a matrix ``name0``..."""
    axes = [key for key in sorted(matrices) if key.startswith(name)]
    last = len(axes) + 1
    turned = (0, 1, last, *range(2, last))
    for key in reversed(axes):
        # The last axis, which comes before the others then.
        value = F.transpose(F.dot(value, matrices[key]), axes=turned)
    return value


def _add_constants(block: HybridBlock, name: str, arrays: Iterable[np.ndarray], dtype: str) -> None:
    with block.name_scope():
        for axis, array in enumerate(arrays):
            constant = block.params.get_constant(f"{name}{axis}", mx.nd.array(array, dtype=dtype))
            setattr(block, f"{name}{axis}", constant)


class Cut(Operator):
    """What MXNet's layer cannot leave out, cut off after it: uneven pads of a transposed convolution."""

    def __init__(self, layer: HybridBlock, ranges: tuple[tuple[int, int], ...]) -> None:
        super().__init__(layer=layer, cut=Slice(tuple((*part, 1) for part in ranges)))

    def hybrid_forward(self, F: Any, inputs: Any) -> Any:
        return self.cut(self.layer(inputs))


def parameters_of(block: HybridBlock) -> HybridBlock:
    """The block that holds the parameters of a layer."""
    return block.layer if isinstance(block, (Padded, Cut)) else block


def linear(node: Node, **shared: Any) -> HybridBlock:
    return nn.Dense(
        node.out_features,
        flatten=len(node.input_shape) == 1,
        use_bias=node.bias,
        in_units=node.input_shape[-1],
        **shared,
    )


def tied_linear(node: Node, table: HybridBlock, dtype: str) -> HybridBlock:
    """A dense block whose weight is an embedding's."""
    return linear(node, dtype=dtype, params=table.params)


def conv(node: Node) -> HybridBlock:
    even, axes = even_pads(node), len(node.kernel)
    layer = CONVOLUTIONS[axes](
        node.out_channels,
        node.kernel,
        node.stride,
        node.pads[:axes] if even else (0,) * axes,
        node.dilation,
        node.groups,
        use_bias=node.bias,
        in_channels=node.input_shape[0],
    )
    return layer if even else Padded(layer, node.pads, 0.0)


def conv_transpose(node: Node, dtype: str) -> HybridBlock:
    even, axes = even_transposed(node), len(node.kernel)
    options = {
        "groups": node.groups,
        "use_bias": node.bias,
        "in_channels": node.input_shape[0],
    }
    sizes = (node.out_channels, node.kernel, node.stride, even.pads, even.output_padding)
    dilated = max(node.dilation) > 1
    if axes == 3 and (dilated or dtype == "float64"):
        layer = FilmTranspose(node, dtype, even.pads, even.output_padding, **options)
    elif axes == 3:
        layer = nn.Conv3DTranspose(*sizes, **options)
    elif dilated and max(node.stride) > 1:
        layer = DilatedTranspose(node, dtype, even.pads, even.output_padding, **options)
    else:
        layer = nn.Conv2DTranspose(*sizes, node.dilation, **options)
    return Cut(layer, even.ranges) if even.ranges else layer


def batch_norm(node: Node, dtype: str) -> HybridBlock:
    of_films = len(node.input_shape) == 4
    kind = BatchNormInDouble if dtype == "float64" else FilmBatchNorm if of_films else nn.BatchNorm
    return kind(momentum=node.momentum, epsilon=node.epsilon, in_channels=node.input_shape[0])


def layer_norm(node: Node, dtype: str) -> HybridBlock:
    kind = LayerNormInDouble if dtype == "float64" else nn.LayerNorm
    return kind(epsilon=node.epsilon, in_channels=node.input_shape[-1])


def group_norm(node: Node, dtype: str) -> HybridBlock:
    channels = node.input_shape[0]
    if dtype == "float64" or node.groups != channels:
        return GroupNorm(node)
    return nn.InstanceNorm(epsilon=node.epsilon, scale=True, in_channels=channels)


def gelu(node: Node, dtype: str) -> HybridBlock:
    if node.approximate == "tanh":
        return GELUByTanh()
    return GELUInDouble() if dtype == "float64" else nn.GELU()


def dropout(node: Node, dtype: str) -> HybridBlock:
    return (DropoutInDouble if dtype == "float64" else nn.Dropout)(node.rate)
