"""The same, right in float32 too."""

import keras
from keras import layers


def make():
    return keras.Sequential(
        [keras.Input((6,)), layers.Dense(8, activation="tanh"), layers.Dense(3)]
    )
