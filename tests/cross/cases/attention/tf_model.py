"""The same as a layer."""

import keras
from keras import layers


def make():
    x = keras.Input((5, 8))
    return keras.Model(x, layers.Dense(3)(layers.MultiHeadAttention(2, 4)(x, x)))
