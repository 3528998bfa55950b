"""The same by cropping; ``same_padding`` crops elsewhere."""

import keras
from keras import layers


def build(same):
    if same:
        last = [
            layers.Conv2DTranspose(3, 5, strides=2, padding="same", activation="tanh", name="up2")
        ]
    else:
        last = [
            layers.Conv2DTranspose(3, 5, strides=2, padding="valid", activation="tanh", name="up2"),
            layers.Cropping2D(((2, 1), (2, 1))),
        ]
    return keras.Sequential(
        [
            keras.Input((10,)),
            layers.Dense(96, name="head"),
            layers.Reshape((6, 4, 4)),
            layers.Permute((2, 3, 1)),
            layers.Conv2DTranspose(5, 4, strides=2, padding="same", activation="relu", name="up1"),
            *last,
        ]
    )


def make():
    return build(False)


def same_padding():
    return build(True)
