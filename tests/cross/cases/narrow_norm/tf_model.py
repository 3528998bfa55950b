"""The same; ``ten_times`` has ten times the epsilon."""

import keras
from keras import layers, ops


class Norm(layers.Layer):
    def __init__(self, epsilon, **options):
        super().__init__(**options)
        self.epsilon = epsilon

    def build(self, shape):
        self.weight = self.add_weight(shape=(shape[-1],), initializer="zeros", name="weight")

    def call(self, x):
        narrow = ops.cast(x, "float32")
        mean = ops.mean(ops.square(narrow), axis=-1, keepdims=True)
        narrow = narrow * ops.rsqrt(mean + self.epsilon)
        return ops.cast(narrow * (1.0 + ops.cast(self.weight, "float32")), x.dtype)


def build(epsilon):
    return keras.Sequential(
        [
            keras.Input((10,)),
            layers.Dense(16),
            Norm(epsilon),
            layers.Activation("tanh"),
            layers.Dense(4),
        ]
    )


def make():
    return build(1e-6)


def ten_times():
    return build(1e-5)
