"""The same; ``steeper`` has another slope."""

import keras
from keras import layers


def build(slope):
    i = keras.Input((5,))
    x = layers.LeakyReLU(negative_slope=slope)(layers.Dense(6)(i))
    y = layers.Concatenate()([x, layers.ReLU()(x)])
    return keras.Model(i, layers.Dense(4)(y))


def make():
    return build(0.25)


def steeper():
    return build(0.5)
