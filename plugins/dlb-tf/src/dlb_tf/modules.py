"""Layers that Keras does not have as the registry needs them, and how layers are built from nodes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers as K

from dlb_tf.layout import Layout
from dlb_worker.model import Node
from dlb_worker.poolings import covered

Layouts = Mapping[str, Layout]
Padding = tuple[tuple[int, int], ...]

#: Layers by the number of axes of their windows.
ZERO_PADDINGS = {2: K.ZeroPadding2D, 3: K.ZeroPadding3D}
#: Whether layers are traced for an exporter, as operators that tf2onnx knows.
EXPORTING = ContextVar("exporting", default=False)


def to_canonical(rank: int) -> tuple[int, ...]:
    """The axes of a sample of maps, channels last, in canonical order."""
    return (rank, *range(1, rank))


def to_maps(rank: int) -> tuple[int, ...]:
    """The axes of a canonical sample in the order of maps."""
    return (*range(2, rank + 1), 1)


def unset(shape: tuple[int, ...], dtype: str | None = None) -> tf.Tensor:
    """An initializer that writes nothing: every weight is loaded before it is read.

    Keras's own draw numbers, which hold a large kernel three times over.
    """
    return tf.raw_ops.Empty(shape=shape, dtype=dtype)


class Operator(K.Layer):
    """A function of TensorFlow, or what a subclass composes. It shows its arguments.

    Args:
        operator: the function's name in ``tf``.
    """

    def __init__(self, operator: str = "", **arguments: Any) -> None:
        super().__init__()
        self.operator, self.arguments = operator, arguments
        for name, value in arguments.items():
            setattr(self, name, value)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return getattr(tf, self.operator)(inputs, **self.arguments)

    def get_config(self) -> dict[str, Any]:
        return dict(self.arguments)


class Composed:
    """Convolution in groups, or of stride by a slice.

    TensorFlow has no grouped convolution on CPU. Keras compiles one with XLA there, many times
    slower than a convolution for each group. Stride with dilation Keras refuses. And stride with
    a 1 x 1 kernel is not safe: the gradient by the kernel, as TensorFlow 2.21 has it from oneDNN,
    writes past its memory at some sizes, and the process dies sooner or later.

    ``every`` says which places of each axis are kept of a convolution of stride 1. With a 1 x 1 kernel
    they are taken before it. An export may write all as one operator, and a GPU can run that.
    """

    def __init__(self: Any, *args: Any, every: tuple[int, ...], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.every = every

    def convolution_op(self: Any, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        if EXPORTING.get() or tf.config.get_visible_devices("GPU"):
            strides = np.multiply(self.strides, self.every).tolist()
            padding, dilations = self.padding.upper(), self.dilation_rate
            if self.rank == 2:
                return tf.nn.conv2d(inputs, kernel, strides, padding, dilations=dilations)
            strides, dilations = [1, *strides, 1], [1, *dilations, 1]
            return tf.nn.conv3d(inputs, kernel, strides, padding, dilations=dilations)
        if max(self.kernel_size) == 1:
            return self._convolve(self._sliced(inputs), kernel)
        return self._sliced(self._convolve(inputs, kernel))

    def _convolve(self: Any, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        convolve = super().convolution_op  # type: ignore[misc]
        parts = zip(tf.split(inputs, self.groups, -1), tf.split(kernel, self.groups, -1))
        return tf.concat([convolve(*part) for part in parts], -1)

    def _sliced(self: Any, maps: tf.Tensor) -> tf.Tensor:
        if max(self.every) == 1:
            return maps
        return maps[(slice(None),) + tuple(slice(None, None, step) for step in self.every)]

    def compute_output_shape(
        self: Any, input_shape: tuple[int | None, ...]
    ) -> tuple[int | None, ...]:
        batch, *sizes, channels = super().compute_output_shape(input_shape)  # type: ignore[misc]
        return batch, *(-(-size // step) for size, step in zip(sizes, self.every)), channels

    def get_config(self: Any) -> dict[str, Any]:
        return {**super().get_config(), "every": self.every}  # type: ignore[misc]


class ComposedConv2D(Composed, K.Conv2D):
    pass


class ComposedConv3D(Composed, K.Conv3D):
    pass


#: By the number of axes of their windows.
CONVOLUTIONS = {2: K.Conv2D, 3: K.Conv3D}
COMPOSED = {2: ComposedConv2D, 3: ComposedConv3D}


#: Operators by the number of axes of their windows.
TRANSPOSED = {2: tf.nn.conv2d_transpose, 3: tf.nn.conv3d_transpose}


class ConvTranspose(Operator):
    """Transposed convolution in NHWC or NDHWC, whole, of which a slice leaves out the pads.

    tf2onnx writes the pads of TensorFlow's operator as even ones. Output padding beyond the pads is a
    row of zeros after the input, which adds rows without a number in them, of which some are kept.
    """

    def __init__(self, node: Node) -> None:
        axes = len(node.kernel)
        after = [pad - more for pad, more in zip(node.pads[axes:], node.output_padding)]
        super().__init__(
            filters=node.out_channels,
            kernel_size=node.kernel,
            strides=node.stride,
            dilation_rate=node.dilation,
            groups=node.groups,
            use_bias=node.bias,
            starts=node.pads[:axes],
            sizes=node.shape[1:],
            zeros=tuple(int(left_out < 0) for left_out in after),
        )

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        shape = (*self.kernel_size, self.filters // self.groups, input_shape[-1])
        self.kernel = self.add_weight(shape=shape, initializer=unset)
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(shape=(self.filters,), initializer="zeros")

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        if any(self.zeros):
            value = tf.constant(0, inputs.dtype)
            paddings = [(0, 0), *((0, zero) for zero in self.zeros), (0, 0)]
            inputs = tf.pad(inputs, paddings, constant_values=value)
        if EXPORTING.get():  # as one operator, which the processor cannot run
            whole = self._whole(inputs, self.kernel)
        else:
            parts = zip(tf.split(inputs, self.groups, -1), tf.split(self.kernel, self.groups, -1))
            whole = tf.concat([self._whole(*part) for part in parts], -1)
        kept = [slice(start, start + size) for start, size in zip(self.starts, self.sizes)]
        part = (slice(None), *kept)
        maps = whole[part]
        return maps if self.bias is None else tf.nn.bias_add(maps, self.bias)

    def _whole(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        dilation, axes = self.dilation_rate, len(self.kernel_size)
        if not EXPORTING.get() and max(dilation) > 1:
            kernel, dilation = self._dilated(kernel), (1,) * axes
        sizes = [
            (size - 1) * stride + dilation * (length - 1) + 1
            for size, stride, dilation, length in zip(
                inputs.shape[1:-1], self.strides, self.dilation_rate, self.kernel_size
            )
        ]
        channels = kernel.shape[axes] * (self.groups if EXPORTING.get() else 1)
        shape = tf.stack([tf.shape(inputs)[0], *sizes, channels])
        return TRANSPOSED[axes](inputs, kernel, shape, self.strides, "VALID", dilations=dilation)

    def _dilated(self, kernel: tf.Tensor) -> tf.Tensor:
        """The kernel with zeros between its taps, since the processor cannot dilate it."""
        sizes, dilation = self.kernel_size, self.dilation_rate
        apart = tf.reshape(kernel, (*(n for size in sizes for n in (size, 1)), -1))
        zeros = [pair for gap in dilation for pair in ((0, 0), (0, gap - 1))]
        apart = tf.pad(apart, [*zeros, (0, 0)])
        spread = [size * gap for size, gap in zip(sizes, dilation)]
        whole = tf.reshape(apart, (*spread, *kernel.shape[len(sizes) :]))
        return whole[tuple(slice((n - 1) * gap + 1) for n, gap in zip(sizes, dilation))]


class MaskedDropout(K.Dropout):
    """Dropout by a fixed mask [rows, ...], of which a batch takes the first rows.

    Attributes:
        firsts: by replica that computes in step with others, at which row its batches begin.
    """

    firsts: Sequence[int] = (0,)

    def __init__(self, rate: float, mask: np.ndarray) -> None:
        super().__init__(rate)
        # Keras would list a variable of its own among the model's.
        self.mask = tf.Variable(mask.astype(self.compute_dtype), trainable=False)

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        if not training:
            return inputs
        mask = self.mask
        if len(self.firsts) > 1:
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            mask = mask[tf.gather(self.firsts, replica) :]
        elif self.firsts[0]:
            mask = mask[self.firsts[0] :]
        return inputs * mask[: tf.shape(inputs)[0]] / (1 - self.rate)


class Factor(Operator):
    """Multiplies every sample's feature maps by constants [H, W, 1]."""

    def __init__(self, factor: np.ndarray) -> None:
        super().__init__(factors=np.unique(factor).tolist())
        self.factor = factor

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return inputs * tf.constant(self.factor, inputs.dtype)


class GroupNormalization(K.GroupNormalization):
    """Keras's own, which leaves the batch to the last reshape; Keras asks for its size, which an export
    would show."""

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        groups = self._reshape_into_groups(inputs)
        normal = self._apply_normalization(groups, inputs.shape)
        return tf.cast(tf.reshape(normal, (-1, *inputs.shape[1:])), self.compute_dtype)


class PReLU(K.PReLU):
    """Keras's own composed again, for its gradient at 0 is 0, not the slope.

    tf2onnx has no PReLU. An operator of TensorFlow that nothing else has stands for it in an export.
    """

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        if EXPORTING.get():
            return tf.raw_ops.NextAfter(x1=inputs, x2=keras.ops.convert_to_tensor(self.alpha))
        return tf.where(inputs > 0, inputs, self.alpha * inputs)


class LocalResponseNormalization(Operator):
    """tf.nn.local_response_normalization, and its own composition where it has no kernel.

    TensorFlow's alpha is a factor of the sum, not of the mean.
    """

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        radius, scale = self.size // 2, self.alpha / self.size
        if inputs.dtype == tf.float32:
            return tf.nn.local_response_normalization(inputs, radius, self.bias, scale, self.beta)
        channels = np.arange(inputs.shape[-1])
        distance = np.abs(np.subtract.outer(channels, channels))
        band = tf.constant(distance <= radius, inputs.dtype)
        sums = tf.nn.conv2d(tf.square(inputs), band[None, None], 1, "VALID")
        return inputs * (self.bias + scale * sums) ** -self.beta


class GELU(Operator):
    """tf.nn.gelu, and its own composition where that will not do.

    In float64, for it keeps its constants in float32, and in an export, for tf2onnx does not know
    its Erfc.
    """

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        if inputs.dtype == tf.float32 and not EXPORTING.get():
            return tf.nn.gelu(inputs, self.approximate == "tanh")
        if self.approximate == "tanh":
            inside = math.sqrt(2 / math.pi) * (inputs + 0.044715 * inputs**3)
            return 0.5 * inputs * (1.0 + tf.tanh(inside))
        return 0.5 * inputs * (1.0 + tf.math.erf(inputs / math.sqrt(2)))


class HardSigmoid(Operator):
    """Keras's own, apart from its neighbours for an exporter.

    TensorFlow optimises a function before tf2onnx has it: it adds up what a layer adds with the bias
    of the layer before, and the like. What stops gradients stops that too, and tf2onnx leaves it out.
    """

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        if not EXPORTING.get():
            return keras.activations.hard_sigmoid(inputs)
        return tf.stop_gradient(keras.activations.hard_sigmoid(tf.stop_gradient(inputs)))


class Multiply(K.Multiply):
    """Keras's own, apart from its neighbours for an exporter, as HardSigmoid: the scale of a batch
    normalisation would be one of a factor's."""

    def call(self, inputs: list[tf.Tensor]) -> tf.Tensor:
        product = super().call(inputs)
        return tf.stop_gradient(product) if EXPORTING.get() else product


class Select(Operator):
    """One place of a sequence along an axis."""

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return inputs[:, self.index] if self.axis == 1 else inputs[:, :, self.index]


class Pad(Operator):
    """Pads with a constant; ``padding`` is for every axis but the batch, in the native order.

    The constant is a tensor even where it is zero: TensorFlow 2.21 takes a pad without one into the
    convolution after it, and forgets what was padded of the channels.
    """

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        value = tf.constant(self.value, inputs.dtype)
        return tf.pad(inputs, [(0, 0), *self.padding], constant_values=value)


class Slice(Operator):
    """A part (start, stop, step) of every axis but the batch, in the native order."""

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return inputs[(slice(None),) + tuple(slice(*part) for part in self.parts)]


class TiedDense(Operator):
    """A dense layer over the last axis whose kernel is an embedding's table, transposed."""

    def __init__(self, table: K.Embedding, use_bias: bool) -> None:
        super().__init__(units=table.input_dim, use_bias=use_bias)
        self.table = table

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(shape=(self.units,), initializer="zeros")

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        outputs = keras.ops.matmul(inputs, keras.ops.transpose(self.table.embeddings))
        return outputs if self.bias is None else outputs + self.bias


class PositionEmbedding(Operator):
    """A weight that is added to every sequence."""

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        self.table = self.add_weight(shape=self.shape, initializer="zeros")

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return inputs + self.table


class MultiHeadAttention(K.MultiHeadAttention):
    """Scaled in the model's dtype; Keras's own keeps its scale in float32."""

    def _compute_attention(
        self, query: Any, key: Any, value: Any, attention_mask: Any = None, *_: Any
    ) -> tuple[Any, None]:
        scale = np.float64(self.key_dim) ** -0.5
        mask = None if attention_mask is None else keras.ops.expand_dims(attention_mask, 1)
        return keras.ops.dot_product_attention(query, key, value, mask=mask, scale=scale), None


class SelfAttention(Operator):
    """Keras's multi-head attention of a sequence with itself."""

    def __init__(self, node: Node) -> None:
        super().__init__(heads=node.heads, causal=node.causal)
        size = node.input_shape[-1] // node.heads
        self.attention = MultiHeadAttention(node.heads, size, use_bias=node.bias)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        self.attention.build(input_shape, input_shape)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return self.attention(inputs, inputs, use_causal_mask=self.causal)


def conv(node: Node) -> list[K.Layer]:
    axes, (word, padding) = len(node.kernel), padding_of(node)
    pads = [] if word == "same" else zeros(padding)
    options = {"padding": word, "data_format": "channels_last", "use_bias": node.bias}
    if is_depthwise(node):
        multiplier = node.out_channels // node.groups
        conv = K.DepthwiseConv2D(node.kernel, node.stride, depth_multiplier=multiplier, **options)
        return [*pads, conv]
    options |= {"dilation_rate": node.dilation, "kernel_initializer": unset}
    sliced = max(node.stride) > 1 and (max(node.dilation) > 1 or max(node.kernel) == 1)
    if node.groups == 1 and not sliced:
        return [*pads, CONVOLUTIONS[axes](node.out_channels, node.kernel, node.stride, **options)]
    stride, every = node.stride, (1,) * axes
    if sliced:
        stride, every = every, stride
        pads, options["padding"] = zeros(padding), "valid"
    options |= {"groups": node.groups, "every": every}
    return [*pads, COMPOSED[axes](node.out_channels, node.kernel, stride, **options)]


def prelu(node: Node) -> K.Layer:
    axes = range(1, 1 + len(node.input_shape))
    return PReLU(shared_axes=[*axes] if node.shared else [*axes][:-1])


def is_depthwise(node: Node) -> bool:
    """Whether DepthwiseConv2D can do it; the CPU's takes one stride for both axes."""
    even_stride = len(set(node.stride)) == 1 and node.dilation == (1, 1)
    return node.groups == node.input_shape[0] > 1 and even_stride


def padding_of(node: Node) -> tuple[str, Padding]:
    """Keras's word for the pads, ``valid`` or ``same``; else ``valid`` and what to pad before.

    What is padded after is just as much as windows reach, which takes care of sizes rounded up.
    """
    padding, same = [], []
    spans = covered(node)
    for axis, (size, windows) in enumerate(zip(node.input_shape[1:], node.shape[1:])):
        missing = max(0, (windows - 1) * node.stride[axis] + spans[axis] - size)
        before = node.pads[axis]
        padding.append((before, max(0, missing - before)))
        same.append(windows == -(-size // node.stride[axis]) and before == missing // 2)
    return ("same" if all(same) and has_pads(padding) else "valid"), tuple(padding)


def has_pads(padding: Iterable[tuple[int, int]]) -> bool:
    return any(map(any, padding))


def zeros(padding: Padding) -> list[K.Layer]:
    if not has_pads(padding):
        return []
    return [ZERO_PADDINGS[len(padding)](padding, data_format="channels_last")]


def _reshape(shape: tuple[int, ...]) -> K.Layer:
    """Leaves the batch to the reshape; Keras's own asks for its size, which an export would show."""
    return Operator("reshape", shape=(-1, *shape))


def flatten(node: Node, layouts: Layouts) -> list[K.Layer]:
    channels, *sizes = node.input_shape
    same_order = channels == 1 or set(sizes) == {1}
    plain = layouts[node.inputs[0]].kind == "plain"
    kept = plain or layouts[node.name].kind == "flat" or same_order
    flat = _reshape(node.shape)
    return [flat] if kept else [K.Permute(to_canonical(len(node.input_shape))), flat]


def reshape(node: Node, layouts: Layouts) -> list[K.Layer]:
    shape = node.attributes["shape"]
    if layouts[node.name].kind == "maps" and len(shape) == 2:
        return [_reshape(shape[::-1])]
    turned = layouts[node.inputs[0]].kind == "maps"
    first = [K.Permute(to_canonical(len(node.input_shape)))] if turned else []
    last = [K.Permute(to_maps(len(shape)))] if layouts[node.name].kind == "maps" else []
    return [*first, _reshape(shape), *last]


def transpose(node: Node, layouts: Layouts) -> list[K.Layer]:
    rank = len(node.axes)
    before, after = layouts[node.inputs[0]].axes(rank), layouts[node.name].axes(rank)
    axes = tuple(before.index(node.axes[axis - 1]) + 1 for axis in after)
    return [K.Identity() if axes == tuple(range(1, rank + 1)) else K.Permute(axes)]


def pad(node: Node, layouts: Layouts) -> list[K.Layer]:
    rank = len(node.input_shape)
    axes = layouts[node.inputs[0]].axes(rank)
    return [Pad(padding=tuple(node.pads[axis - 1 :: rank] for axis in axes), value=node.value)]


def slices(node: Node, layouts: Layouts) -> list[K.Layer]:
    axes = layouts[node.inputs[0]].axes(len(node.ranges))
    return [Slice(parts=tuple(node.ranges[axis - 1] for axis in axes))]


#: What every layer's configuration has, and what does not say what it computes.
_NOT_DESCRIBED = {"name", "trainable", "dtype", "seed", "data_format"}


def description(layer: K.Layer) -> str:
    """A layer's type and what its configuration says, but for initialisers and the like."""
    config = {
        key: value
        for key, value in layer.get_config().items()
        if isinstance(value, (bool, int, float, str, tuple, list)) and key not in _NOT_DESCRIBED
    }
    name = getattr(layer, "operator", "") or type(layer).__name__
    return f"{name}({', '.join(f'{key}={value}' for key, value in config.items())})"
