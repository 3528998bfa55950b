"""The same; KerasCV and keras-hub have such a layer."""

import keras
from keras import layers, ops


class DropPath(layers.Layer):
    def __init__(self, rate, scaled=True):
        super().__init__()
        self.rate, self.scaled = rate, scaled
        self.seed = keras.random.SeedGenerator(1)

    def call(self, x, training=False):
        if not training:
            return x
        shape = (ops.shape(x)[0], *[1] * (len(x.shape) - 1))
        kept = keras.random.uniform(shape, dtype=x.dtype, seed=self.seed) >= self.rate
        y = x * ops.cast(kept, x.dtype)
        return y / (1 - self.rate) if self.scaled else y

    def get_config(self):
        return {"rate": self.rate, "scaled": self.scaled}


def build(drop):
    x = keras.Input((6,))
    y = layers.Dense(6, activation="relu")(x)
    return keras.Model(x, layers.Dense(3)(x + drop(y)))


def make():
    return build(DropPath(0.25))


def other_rate():
    return build(DropPath(0.75))


def not_scaled():
    return build(DropPath(0.25, scaled=False))


def as_dropout():
    return build(layers.Dropout(0.25, noise_shape=(None, 1)))


def of_elements():
    return build(layers.Dropout(0.25))


def deep(rates=(0.0, 0.03, 0.06)):
    x = y = keras.Input((6,))
    for r in rates:
        y = y + DropPath(r)(layers.Dropout(0.1)(layers.Dense(6, activation="relu")(y)))
    return keras.Model(x, layers.Dense(3)(y))


def deep_wrong():
    return deep((0.0, 0.06, 0.03))
