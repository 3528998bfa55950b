"""Functions of single numbers: TensorFlow's own, and those that are composed."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from dlb_tf.modules import EXPORTING, Operator


def celu(inputs: tf.Tensor, alpha: float) -> tf.Tensor:
    """Composed of elu: the gradient of Keras's own at 0 is 2."""
    return alpha * tf.nn.elu(inputs / alpha)


def clip(inputs: tf.Tensor, min: float = -np.inf, max: float = np.inf) -> tf.Tensor:
    return tf.clip_by_value(inputs, min, max)


def hard_sigmoid(inputs: tf.Tensor, alpha: float, beta: float) -> tf.Tensor:
    return tf.clip_by_value(inputs * alpha + beta, 0, 1)


def hard_swish(inputs: tf.Tensor) -> tf.Tensor:
    return inputs * keras.activations.hard_sigmoid(inputs)


def leaky_relu(inputs: tf.Tensor, alpha: float) -> tf.Tensor:
    """TensorFlow's own, and its composition in float64, for the operator keeps its slope in float32."""
    if inputs.dtype == tf.float64:
        return tf.where(inputs > 0, inputs, alpha * inputs)
    return tf.nn.leaky_relu(inputs, alpha)


def mish(inputs: tf.Tensor) -> tf.Tensor:
    return inputs * tf.tanh(tf.nn.softplus(inputs))


def selu(inputs: tf.Tensor) -> tf.Tensor:
    """Composed, since the gradient of tf.nn.selu at 0 is that on its right."""
    return 1.0507009873554804934 * keras.activations.elu(inputs, 1.6732632423543772848)


#: By the function's name.
FUNCTIONS = {
    "abs": tf.abs,
    "celu": celu,
    "clip": clip,
    "cos": tf.cos,
    "elu": keras.activations.elu,
    "erf": tf.math.erf,
    "exp": tf.exp,
    "hard_sigmoid": hard_sigmoid,
    "hard_swish": hard_swish,
    "leaky_relu": leaky_relu,
    "log": tf.math.log,
    "mish": mish,
    "neg": tf.negative,
    "reciprocal": tf.math.reciprocal,
    "selu": selu,
    "silu": tf.nn.silu,
    "sin": tf.sin,
    "softplus": tf.nn.softplus,
    "softsign": tf.nn.softsign,
    "sqrt": tf.sqrt,
}


class Elementwise(Operator):
    """A function, apart from its neighbours for an exporter, as HardSigmoid."""

    def __init__(self, function: str, **numbers: Any) -> None:
        super().__init__(function=function, **numbers)
        self.numbers = numbers

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        function = FUNCTIONS[self.function]
        if not EXPORTING.get():
            return function(inputs, **self.numbers)
        return tf.stop_gradient(function(tf.stop_gradient(inputs), **self.numbers))
