"""The same with the weights themselves."""

import keras
from keras import layers


def make():
    return keras.Sequential(
        [
            keras.Input((20, 4)),
            layers.Conv1D(6, 3, padding="same"),
            layers.LeakyReLU(negative_slope=0.25),
            layers.Conv1D(2, 3, padding="same"),
        ]
    )
