"""Poolings: Keras's own, and those that TensorFlow does not have as the registry needs them."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import numpy as np
import tensorflow as tf
from keras import layers as K

from dlb_tf.modules import (
    EXPORTING,
    Factor,
    Operator,
    Pad,
    has_pads,
    padding_of,
    to_canonical,
    to_maps,
    zeros,
)
from dlb_worker.model import Node
from dlb_worker.poolings import average_factors


def taps(maps: tf.Tensor, axis: int, kernel: int, stride: int, dilation: int) -> list[tf.Tensor]:
    """For each place of a window along an axis, the numbers that windows have there.

    They are no slices: TensorFlow 2.21, which optimises a function, leaves some of a film's out in float32.
    """
    last = (maps.shape[axis] - dilation * (kernel - 1) - 1) // stride * stride + 1
    places = (dilation * tap + np.arange(0, last, stride) for tap in range(kernel))
    return [tf.gather(maps, each, axis=axis) for each in places]


class ComposedMaxPool(Operator):
    """Max pooling of padded maps, along one axis after another.

    Keras has none with dilation, and that of films has no kernel in float64, and gives each of several equal
    numbers the whole gradient. Of two, tf.maximum gives it to the first. The last axis comes first, so that
    the first of a window gets it. It is exported as one operator.
    """

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        if EXPORTING.get():
            return _export(inputs, self)
        sizes = [*zip(self.pool_size, self.strides, self.dilation_rate)]
        for axis in reversed(range(len(sizes))):
            inputs = reduce(tf.maximum, taps(inputs, axis + 1, *sizes[axis]))
        return inputs


class AveragePooling3D(K.AveragePooling3D):
    """Keras's own, composed in float64, for which TensorFlow has no kernel: along one axis after another."""

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        if inputs.dtype == tf.float32 or EXPORTING.get():
            return super().call(inputs)
        for axis, (kernel, stride) in enumerate(zip(self.pool_size, self.strides), start=1):
            inputs = tf.add_n(taps(inputs, axis, kernel, stride, 1)) / kernel
        return inputs


#: By the number of axes of their windows.
AVERAGE_POOLS = {2: K.AveragePooling2D, 3: AveragePooling3D}
WHOLE_MAPS = {2: K.GlobalAveragePooling2D, 3: K.GlobalAveragePooling3D}


def max_pool(node: Node) -> list[K.Layer]:
    word, padding = padding_of(node)
    native = len(node.kernel) == 2 and max(node.dilation) == 1
    if native:
        pool = K.MaxPooling2D(node.kernel, node.stride, word, data_format="channels_last")
    else:
        sizes = {"pool_size": node.kernel, "strides": node.stride, "dilation_rate": node.dilation}
        pool = ComposedMaxPool(**sizes)
    if (word == "same" and native) or not has_pads(padding):
        return [pool]
    return [Pad(padding=(*padding, (0, 0)), value=-math.inf), pool]  # it never wins a maximum


def average_pool(node: Node) -> list[K.Layer]:
    word, padding = padding_of(node)
    axes = len(node.kernel)
    if node.count_include_pad or axes == 3:
        word = "valid"
    pool = AVERAGE_POOLS[axes](node.kernel, node.stride, word, data_format="channels_last")
    if word == "same":  # TensorFlow leaves padding out of the count
        return [pool]
    factor = average_factors(node)[..., None]
    return [*zeros(padding), pool, *([] if np.all(factor == 1) else [Factor(factor)])]


def global_average_pool(node: Node) -> list[K.Layer]:
    kind = WHOLE_MAPS[len(node.input_shape) - 1]
    return [kind(data_format="channels_last", keepdims=True)]


def _export(inputs: tf.Tensor, pool: ComposedMaxPool) -> tf.Tensor:
    """An operation that reads maps in canonical order, and the numbers of the windows for :func:`write`."""
    rank = len(inputs.shape) - 1
    maps = tf.transpose(inputs, (0, *to_canonical(rank)))
    sizes = [*zip(pool.pool_size, pool.strides, pool.dilation_rate)]
    pooled = tf.numpy_function(_never, [maps, tf.constant(sizes)], maps.dtype, stateful=False)
    counts = (
        (size - dilation * (kernel - 1) - 1) // stride + 1
        for size, (kernel, stride, dilation) in zip(inputs.shape[1:], sizes)
    )
    pooled = tf.ensure_shape(pooled, (None, inputs.shape[-1], *counts))
    return tf.transpose(pooled, (0, *to_maps(rank)))


def _never(*arrays: Any) -> Any:
    raise NotImplementedError("an operation that stands for another one")


def write(context: Any, node: Any, name: str) -> None:
    """The max pooling that an operation of :class:`ComposedMaxPool` stands for."""
    maps, sizes = node.input
    kernel, stride, dilation = np.transpose(context.get_tensor_value(sizes)).tolist()
    attributes = {"kernel_shape": kernel, "strides": stride, "dilations": dilation}
    shapes, dtypes = [context.get_shape(node.output[0])], [context.get_dtype(maps)]
    context.remove_node(node.name)
    context.make_node(
        "MaxPool", [maps], attributes, outputs=node.output, name=name, shapes=shapes, dtypes=dtypes
    )
