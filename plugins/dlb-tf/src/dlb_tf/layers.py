"""The layer table: for each layer type the Keras layers, and where its parameters are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from dlb.workload.poolings import average_factors
from keras import layers as K

from dlb import workload as W
from dlb.workload.shapes import places_along, window_sizes
from dlb_tf.layout import Layout, canonical_axis, same_order


@dataclass(frozen=True)
class Given:
    """What reaches a layer.

    Attributes:
        shape: of one sample at its input, canonical.
        layout, result: how its (first) input and its output lie.
        dtype: of the model.
    """

    shape: tuple[int, ...]
    layout: Layout
    result: Layout
    dtype: str


@dataclass(frozen=True)
class Place:
    """Where a canonical parameter is: the layer's attribute, and the two ways across."""

    attribute: str
    to_native: Callable[[np.ndarray], np.ndarray] = lambda array: array
    to_canonical: Callable[[np.ndarray], np.ndarray] = lambda array: array


@dataclass(frozen=True)
class Entry:
    """How a layer type is built, as Keras layers one after another, and its parameters' places.

    At most one of the layers has parameters.
    """

    make: Callable[[Any, Given], list[K.Layer]]
    places: Callable[[Any, Given], Mapping[str, Place]] = lambda layer, given: {}


def unset(shape: tuple[int, ...], dtype: str | None = None) -> tf.Tensor:
    """An initializer that writes nothing: every weight is loaded before it is read.

    Keras' own draw numbers, which hold a large kernel three times over.
    """
    return tf.raw_ops.Empty(shape=shape, dtype=dtype)


class ComposedConv2D(K.Conv2D):
    """Convolution in groups, or of stride by a slice.

    TensorFlow has no grouped convolution on CPU. Keras compiles one with XLA there, many times
    slower than a convolution for each group. Stride with dilation Keras refuses. And stride with
    a 1 x 1 kernel is not safe: the gradient by the kernel, as TensorFlow 2.21 has it from oneDNN,
    writes past its memory at some sizes, and the process dies sooner or later.

    Attributes:
        every: the rows and columns that are kept of a convolution of stride 1; with a 1 x 1 kernel
            they are taken before it.
        whole: whether to write all as one operator, which an export may and a GPU can run.
    """

    def __init__(self, *args: Any, every: tuple[int, int], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.every = every
        self.whole = bool(tf.config.get_visible_devices("GPU"))

    def convolution_op(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        if self.whole:
            strides = np.multiply(self.strides, self.every).tolist()
            padding, dilations = self.padding.upper(), self.dilation_rate
            return tf.nn.conv2d(inputs, kernel, strides, padding, dilations=dilations)
        if self.kernel_size == (1, 1):
            return self._convolve(self._sliced(inputs), kernel)
        return self._sliced(self._convolve(inputs, kernel))

    def _convolve(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        parts = zip(tf.split(inputs, self.groups, -1), tf.split(kernel, self.groups, -1))
        outputs = [super(ComposedConv2D, self).convolution_op(*part) for part in parts]
        return tf.concat(outputs, -1)

    def _sliced(self, maps: tf.Tensor) -> tf.Tensor:
        height, width = self.every
        return maps if self.every == (1, 1) else maps[:, ::height, ::width]

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        batch, height, width, channels = super().compute_output_shape(input_shape)
        return batch, -(-height // self.every[0]), -(-width // self.every[1]), channels

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "every": self.every}


class MaskedDropout(K.Dropout):
    """Dropout by a mask [rows, ...] that is given, of which a batch takes the first rows."""

    def __init__(self, rate: float, mask: np.ndarray, given: Given) -> None:
        super().__init__(rate, dtype=given.dtype)
        self.mask = given.layout.to_native(mask).astype(given.dtype)

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        if not training:
            return inputs
        return inputs * tf.constant(self.mask)[: tf.shape(inputs)[0]] / (1 - self.rate)


class LowestPadding2D(K.Layer):
    """Pads feature maps with what never wins a maximum."""

    def __init__(self, padding: Padding, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.padding = padding

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return tf.pad(inputs, [(0, 0), *self.padding, (0, 0)], constant_values=-np.inf)

    def get_config(self) -> dict[str, Any]:
        return {"padding": self.padding}


class Factor(K.Layer):
    """Multiplies every sample's feature maps by constants [H, W, 1]."""

    def __init__(self, factor: np.ndarray, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.factor = factor

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return inputs * tf.constant(self.factor, inputs.dtype)

    def get_config(self) -> dict[str, Any]:
        return {"factors": np.unique(self.factor).tolist()}


class LocalResponseNormalization(K.Layer):
    """tf.nn.local_response_normalization, and its own composition where it has no kernel."""

    def __init__(self, layer: W.LRN, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.radius, self.offset, self.power = layer.size // 2, layer.bias, layer.beta
        self.scale = layer.alpha / layer.size  # TensorFlow's alpha is of the sum, not the mean

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        if inputs.dtype == tf.float32:
            return tf.nn.local_response_normalization(
                inputs, self.radius, self.offset, self.scale, self.power
            )
        channels = inputs.shape[-1]
        distance = np.abs(np.subtract.outer(np.arange(channels), np.arange(channels)))
        band = tf.constant(distance <= self.radius, inputs.dtype)
        sums = tf.nn.conv2d(tf.square(inputs), band[None, None], 1, "VALID")
        return inputs * (self.offset + self.scale * sums) ** -self.power

    def get_config(self) -> dict[str, Any]:
        return {key: getattr(self, key) for key in ("radius", "offset", "scale", "power")}


class GELU(K.Layer):
    """tf.nn.gelu, and its own composition in float64, for it keeps its constants in float32.

    Attributes:
        whole: whether to call TensorFlow's own; its Erfc is not known to tf2onnx.
    """

    def __init__(self, layer: W.GELU, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.approximate = layer.approximate == "tanh"
        self.whole = self.compute_dtype == "float32"

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        if self.whole:
            return tf.nn.gelu(inputs, self.approximate)
        if self.approximate:
            inside = math.sqrt(2 / math.pi) * (inputs + 0.044715 * inputs**3)
            return 0.5 * inputs * (1.0 + tf.tanh(inside))
        return 0.5 * inputs * (1.0 + tf.math.erf(inputs / math.sqrt(2)))

    def get_config(self) -> dict[str, Any]:
        return {"approximate": self.approximate}


class HardSigmoid(K.Layer):
    """Keras' own, apart from its neighbours for an exporter.

    Attributes:
        whole: whether it may be joined with them: TensorFlow, which optimises a function before
            tf2onnx has it, adds up what one adds with the bias of the layer before, and the like.
            What stops gradients stops that too, and tf2onnx leaves it out.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.whole = True

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        if self.whole:
            return keras.activations.hard_sigmoid(inputs)
        return tf.stop_gradient(keras.activations.hard_sigmoid(tf.stop_gradient(inputs)))


class Multiply(K.Multiply):
    """Keras' own, apart from its neighbours for an exporter, as HardSigmoid: the scale of a batch
    normalisation would be one of a factor's."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.whole = True

    def call(self, inputs: list[tf.Tensor]) -> tf.Tensor:
        product = super().call(inputs)
        return product if self.whole else tf.stop_gradient(product)


#: Whether layers that may do either are traced as one operator, or as several, for an exporter.
_EXPORTED_WHOLE = {ComposedConv2D: True, GELU: False, HardSigmoid: False, Multiply: False}


@contextmanager
def exportable(model: keras.Model) -> Iterator[None]:
    """While it lasts, layers are traced as operators that tf2onnx knows."""
    layers = [layer for layer in model.layers if type(layer) in _EXPORTED_WHOLE]
    kept = [layer.whole for layer in layers]
    try:
        for layer in layers:
            layer.whole = _EXPORTED_WHOLE[type(layer)]
        yield
    finally:
        for layer, whole in zip(layers, kept):
            layer.whole = whole


class Flatten(K.Flatten):
    """Leaves the batch to the reshape; Keras' own asks for its size, which an export would show."""

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return tf.reshape(inputs, [-1, math.prod(inputs.shape[1:])])


class Reshape(K.Reshape):
    """Leaves the batch to the reshape, as :class:`Flatten`."""

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return tf.reshape(inputs, [-1, *self.target_shape])


class Select(K.Layer):
    """One place of a sequence along an axis."""

    def __init__(self, axis: int, index: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.axis, self.index = axis, index

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return inputs[:, self.index] if self.axis == 1 else inputs[:, :, self.index]

    def get_config(self) -> dict[str, Any]:
        return {"axis": self.axis, "index": self.index}


class Pad(K.Layer):
    """Pads with a constant; ``padding`` is for every axis but the batch, as values lie.

    The constant is a tensor even where it is zero: TensorFlow 2.21 takes a pad without one into the
    convolution after it, and forgets what was padded of the channels.
    """

    def __init__(self, padding: list[tuple[int, ...]], value: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.padding, self.value = padding, value

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        value = tf.constant(self.value, inputs.dtype)
        return tf.pad(inputs, [(0, 0), *self.padding], constant_values=value)

    def get_config(self) -> dict[str, Any]:
        return {"padding": self.padding, "value": self.value}


class Slice(K.Layer):
    """A part of every axis but the batch, as values lie."""

    def __init__(self, places: list[range], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.parts = tuple(slice(each.start, each.stop, each.step) for each in places)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return inputs[(slice(None), *self.parts)]

    def get_config(self) -> dict[str, Any]:
        return {"parts": [(each.start, each.stop, each.step) for each in self.parts]}


class Gather(K.Layer):
    """Places along an axis."""

    def __init__(self, axis: int, indices: tuple[int, ...], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.axis, self.indices = axis, indices

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return tf.gather(inputs, self.indices, axis=self.axis)

    def get_config(self) -> dict[str, Any]:
        return {"axis": self.axis, "indices": self.indices}


class TiedDense(K.Layer):
    """A dense layer over the last axis whose kernel is an embedding's table, turned."""

    def __init__(self, table: K.Embedding, use_bias: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.table, self.use_bias = table, use_bias
        self.kernel = None  # the table's

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(shape=(self.table.input_dim,), initializer="zeros")

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        outputs = keras.ops.matmul(inputs, keras.ops.transpose(self.table.embeddings))
        return outputs if self.bias is None else outputs + self.bias

    def get_config(self) -> dict[str, Any]:
        return {"units": self.table.input_dim, "use_bias": self.use_bias}


class PositionEmbedding(K.Layer):
    """A weight that is added to every sequence."""

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        self.table = self.add_weight(shape=input_shape[1:], initializer="zeros")

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return inputs + self.table

    def get_config(self) -> dict[str, Any]:
        return {"shape": tuple(self.table.shape)}


class MultiHeadAttention(K.MultiHeadAttention):
    """Scaled in the model's dtype; Keras' own keeps its scale in float32."""

    def _compute_attention(
        self, query: Any, key: Any, value: Any, attention_mask: Any = None, *_: Any
    ) -> tuple[Any, None]:
        scale = np.float64(self.key_dim) ** -0.5
        mask = None if attention_mask is None else keras.ops.expand_dims(attention_mask, 1)
        return keras.ops.dot_product_attention(query, key, value, mask=mask, scale=scale), None


class SelfAttention(K.Layer):
    """Keras' multi-head attention of a sequence with itself."""

    def __init__(self, layer: W.Attention, features: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.heads, self.causal = layer.heads, layer.causal
        self.attention = MultiHeadAttention(
            layer.heads, features // layer.heads, use_bias=layer.bias, dtype=self.dtype_policy
        )

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        self.attention.build(input_shape, input_shape)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return self.attention(inputs, inputs, use_causal_mask=self.causal)

    def get_config(self) -> dict[str, Any]:
        return {"heads": self.heads, "causal": self.causal}


Padding = tuple[tuple[int, int], tuple[int, int]]


def _padding(
    layer: W.Conv | W.MaxPool | W.AveragePool, shape: tuple[int, ...]
) -> tuple[str, Padding]:
    """Keras' word for the pads, ``valid`` or ``same``; else ``valid`` and what to pad before.

    What is padded after is just as much as windows reach, which takes care of sizes rounded up.
    """
    dilation = getattr(layer, "dilation", (1, 1))
    ceil = getattr(layer, "ceil_mode", False)
    sizes = window_sizes(shape[1:], layer.kernel, layer.stride, layer.pads, dilation, ceil)
    before, after, same = [], [], []
    for axis, size in enumerate(shape[1:]):
        span = dilation[axis] * (layer.kernel[axis] - 1) + 1
        missing = max(0, (sizes[axis] - 1) * layer.stride[axis] + span - size)
        pad = layer.pads[axis]
        before.append(pad)
        after.append(max(0, missing - pad))
        same.append(sizes[axis] == -(-size // layer.stride[axis]) and pad == missing // 2)
    padding = (before[0], after[0]), (before[1], after[1])
    if padding == ((0, 0), (0, 0)):
        return "valid", padding
    return ("same" if all(same) else "valid"), padding


def _conv(layer: W.Conv, given: Given) -> list[K.Layer]:
    word, padding = _padding(layer, given.shape)
    pad = [] if word == "same" else _zeros(padding, given)
    options = {
        "padding": word,
        "data_format": "channels_last",
        "use_bias": layer.bias,
        "dtype": given.dtype,
    }
    if _depthwise(layer, given):
        multiplier = layer.out_channels // layer.groups
        conv = K.DepthwiseConv2D(layer.kernel, layer.stride, depth_multiplier=multiplier, **options)
        return [*pad, conv]
    options |= {"dilation_rate": layer.dilation, "kernel_initializer": unset}
    slices = max(layer.stride) > 1 and (max(layer.dilation) > 1 or layer.kernel == (1, 1))
    if layer.groups == 1 and not slices:
        return [*pad, K.Conv2D(layer.out_channels, layer.kernel, layer.stride, **options)]
    if slices:
        pad, options = _zeros(padding, given), {**options, "padding": "valid"}
    stride, every = ((1, 1), layer.stride) if slices else (layer.stride, (1, 1))
    conv = ComposedConv2D(
        layer.out_channels, layer.kernel, stride, groups=layer.groups, every=every, **options
    )
    return [*pad, conv]


def _depthwise(layer: W.Conv, given: Given) -> bool:
    """What DepthwiseConv2D can do; the CPU's takes one stride for both axes."""
    one_stride = layer.stride[0] == layer.stride[1] and layer.dilation == (1, 1)
    return layer.groups == given.shape[0] > 1 and one_stride


def _zeros(padding: Padding, given: Given) -> list[K.Layer]:
    if padding == ((0, 0), (0, 0)):
        return []
    return [K.ZeroPadding2D(padding, data_format="channels_last", dtype=given.dtype)]


def _conv_places(layer: W.Conv, given: Given) -> Mapping[str, Place]:
    bias = Place("bias")
    if not _depthwise(layer, given):
        kernel = Place(
            "kernel", lambda w: w.transpose(2, 3, 1, 0), lambda w: w.transpose(3, 2, 0, 1)
        )
        return {"weight": kernel, "bias": bias}
    height, width = layer.kernel
    shape = (height, width, layer.groups, layer.out_channels // layer.groups)
    kernel = Place(
        "kernel",
        lambda w: w.transpose(2, 3, 1, 0).reshape(shape),
        lambda w: w.reshape(height, width, 1, layer.out_channels).transpose(3, 2, 0, 1),
    )
    return {"weight": kernel, "bias": bias}


def _max_pool(layer: W.MaxPool, given: Given) -> list[K.Layer]:
    word, padding = _padding(layer, given.shape)
    pool = K.MaxPooling2D(
        layer.kernel, layer.stride, word, data_format="channels_last", dtype=given.dtype
    )
    if word == "same" or padding == ((0, 0), (0, 0)):
        return [pool]
    return [LowestPadding2D(padding, dtype=given.dtype), pool]


def _average_pool(layer: W.AveragePool, given: Given) -> list[K.Layer]:
    word, padding = _padding(layer, given.shape)
    factor = average_factors(layer, given.shape)[..., None]
    same = word == "same" and not layer.count_include_pad
    pool = K.AveragePooling2D(
        layer.kernel,
        layer.stride,
        "same" if same else "valid",
        data_format="channels_last",
        dtype=given.dtype,
    )
    if same:  # TensorFlow leaves padding out of the count
        return [pool]
    corrected = [] if np.all(factor == 1) else [Factor(factor, dtype=given.dtype)]
    return [*_zeros(padding, given), pool, *corrected]


def _linear_places(layer: W.Linear, given: Given) -> Mapping[str, Place]:
    # A row of the canonical weight is ordered as a sample is.
    weight = Place(
        "kernel",
        lambda w: given.layout.to_native(w).T,
        lambda w: given.layout.to_canonical(w.T),
    )
    return {"weight": weight, "bias": Place("bias")}


def tied_linear(layer: W.Linear, given: Given, table: K.Embedding) -> list[K.Layer]:
    """A dense layer whose weight is an embedding's."""
    return [TiedDense(table, layer.bias, dtype=given.dtype)]


def _flatten(layer: W.Flatten, given: Given) -> list[K.Layer]:
    flatten = Flatten(data_format="channels_last", dtype=given.dtype)
    kept = given.layout.kind == "plain" or given.result.kind == "flat" or same_order(given.shape)
    return [flatten] if kept else [K.Permute((3, 1, 2), dtype=given.dtype), flatten]


def _reshape(layer: W.Reshape, given: Given) -> list[K.Layer]:
    if given.result.kind == "maps" and len(layer.shape) == 2:
        return [Reshape(layer.shape[::-1], dtype=given.dtype)]
    first = [K.Permute((3, 1, 2), dtype=given.dtype)] if given.layout.kind == "maps" else []
    last = [K.Permute((2, 3, 1), dtype=given.dtype)] if len(layer.shape) == 3 else []
    return [*first, Reshape(layer.shape, dtype=given.dtype), *last]


def _transpose(layer: W.Transpose, given: Given) -> list[K.Layer]:
    rank = len(layer.axes)
    before, after = given.layout.axes(rank), given.result.axes(rank)
    moved = tuple(before.index(layer.axes[axis - 1]) + 1 for axis in after)
    if moved == tuple(range(1, rank + 1)):
        return [K.Identity(dtype=given.dtype)]
    return [K.Permute(moved, dtype=given.dtype)]


def _reduce_mean(layer: W.ReduceMean, given: Given) -> list[K.Layer]:
    order = {1: "channels_last", 2: "channels_first"}[layer.axis]
    return [K.GlobalAveragePooling1D(data_format=order, dtype=given.dtype)]


def _pad(layer: W.Pad, given: Given) -> list[K.Layer]:
    rank = len(given.shape)
    padding = [layer.pads[axis - 1 :: rank] for axis in given.layout.axes(rank)]
    return [Pad(padding, layer.value, dtype=given.dtype)]


def _slice(layer: W.Slice, given: Given) -> list[K.Layer]:
    places = places_along(layer, given.shape)
    native = [places[axis - 1] for axis in given.layout.axes(len(places))]
    return [Slice(native, dtype=given.dtype)]


def _gather(layer: W.Gather, given: Given) -> list[K.Layer]:
    size = given.shape[layer.axis - 1]
    indices = tuple(index % size for index in layer.indices)
    return [Gather(canonical_axis(layer.axis, given.layout), indices, dtype=given.dtype)]


def _attention_places(layer: W.Attention, given: Given) -> Mapping[str, Place]:
    """Keras keeps kernels [features, heads, d], the last one [heads, d, features]."""
    features = given.shape[-1]
    apart, whole = (layer.heads, features // layer.heads), (features,)
    places = {}
    for name in W.layers.ATTENTION_MAPS:
        kernel, bias = (
            ((*apart, features), whole) if name == "output" else ((features, *apart), apart)
        )
        dense = f"attention.{name}_dense"
        places[f"{name}_weight"] = Place(
            f"{dense}.kernel",
            lambda w, shape=kernel: w.T.reshape(shape),
            lambda w: w.reshape(features, features).T,
        )
        if layer.bias:
            places[f"{name}_bias"] = Place(
                f"{dense}.bias", lambda b, shape=bias: b.reshape(shape), np.ravel
            )
    return places


def _lstm_places(layer: W.LSTM, given: Given) -> Mapping[str, Place]:
    # ONNX keeps gates as input, output, forget, cell; Keras as input, forget, cell, output.
    from_onnx, to_onnx = _gates((0, 2, 3, 1)), _gates((0, 3, 1, 2))
    turned = {"to_native": lambda w: from_onnx(w).T, "to_canonical": lambda w: to_onnx(w.T)}
    return {
        "input_weight": Place("cell.kernel", **turned),
        "recurrent_weight": Place("cell.recurrent_kernel", **turned),
        "bias": Place("cell.bias", from_onnx, to_onnx),
    }


def _gates(order: tuple[int, ...]) -> Callable[[np.ndarray], np.ndarray]:
    """Reorders the four gates, which lie one after another on the first axis."""
    return lambda array: np.concatenate([np.split(array, 4)[gate] for gate in order])


def _places(**places: Place) -> Callable[[Any, Given], Mapping[str, Place]]:
    return lambda layer, given: places


def _activation(name: str) -> Callable[[Any, Given], list[K.Layer]]:
    return lambda layer, given: [K.Activation(name, dtype=given.dtype)]


TABLE: dict[type, Entry] = {
    W.Conv: Entry(_conv, _conv_places),
    W.Linear: Entry(
        lambda layer, given: [
            K.Dense(
                layer.out_features,
                use_bias=layer.bias,
                kernel_initializer=unset,
                dtype=given.dtype,
            )
        ],
        _linear_places,
    ),
    W.BatchNorm: Entry(
        lambda layer, given: [
            K.BatchNormalization(
                axis=-1, momentum=layer.momentum, epsilon=layer.epsilon, dtype=given.dtype
            )
        ],
        _places(
            scale=Place("gamma"),
            bias=Place("beta"),
            mean=Place("moving_mean"),
            variance=Place("moving_variance"),
        ),
    ),
    W.LayerNorm: Entry(
        lambda layer, given: [
            K.LayerNormalization(axis=-1, epsilon=layer.epsilon, dtype=given.dtype)
        ],
        _places(scale=Place("gamma"), bias=Place("beta")),
    ),
    W.LRN: Entry(lambda layer, given: [LocalResponseNormalization(layer, dtype=given.dtype)]),
    W.MaxPool: Entry(_max_pool),
    W.AveragePool: Entry(_average_pool),
    W.GlobalAveragePool: Entry(
        lambda layer, given: [
            K.GlobalAveragePooling2D(data_format="channels_last", keepdims=True, dtype=given.dtype)
        ]
    ),
    W.ReLU: Entry(_activation("relu")),
    W.ReLU6: Entry(_activation("relu6")),
    W.Tanh: Entry(_activation("tanh")),
    W.Sigmoid: Entry(_activation("sigmoid")),
    W.HardSigmoid: Entry(lambda layer, given: [HardSigmoid(dtype=given.dtype)]),
    W.GELU: Entry(lambda layer, given: [GELU(layer, dtype=given.dtype)]),
    W.Dropout: Entry(lambda layer, given: [K.Dropout(layer.rate, dtype=given.dtype)]),
    W.Add: Entry(lambda layer, given: [K.Add(dtype=given.dtype)]),
    W.Mul: Entry(lambda layer, given: [Multiply(dtype=given.dtype)]),
    W.Concat: Entry(
        lambda layer, given: [
            K.Concatenate(canonical_axis(layer.axis, given.layout), dtype=given.dtype)
        ]
    ),
    W.Flatten: Entry(_flatten),
    W.Reshape: Entry(_reshape),
    W.Transpose: Entry(_transpose),
    W.ReduceMean: Entry(_reduce_mean),
    W.Select: Entry(lambda layer, given: [Select(layer.axis, layer.index, dtype=given.dtype)]),
    W.Pad: Entry(_pad),
    W.Slice: Entry(_slice),
    W.Gather: Entry(_gather),
    W.Embedding: Entry(
        lambda layer, given: [K.Embedding(layer.entries, layer.features, unset, dtype=given.dtype)],
        _places(weight=Place("embeddings")),
    ),
    W.PositionEmbedding: Entry(
        lambda layer, given: [PositionEmbedding(dtype=given.dtype)], _places(weight=Place("table"))
    ),
    W.LSTM: Entry(
        lambda layer, given: [K.LSTM(layer.hidden, return_sequences=True, dtype=given.dtype)],
        _lstm_places,
    ),
    W.Attention: Entry(
        lambda layer, given: [SelfAttention(layer, given.shape[-1], dtype=given.dtype)],
        _attention_places,
    ),
}

#: What every layer's configuration has, and what tells nothing of what it computes.
_UNTOLD = {"name", "trainable", "dtype", "seed", "data_format"}


def told(layer: keras.Layer) -> str:
    """A layer's type and what its configuration says, but for initialisers and the like."""
    shown = (bool, int, float, str, tuple, list)
    config = {
        key: value
        for key, value in layer.get_config().items()
        if isinstance(value, shown) and key not in _UNTOLD
    }
    inside = ", ".join(f"{key}={value}" for key, value in config.items())
    return f"{type(layer).__name__}({inside})"
