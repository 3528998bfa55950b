"""A separable convolution as one layer, and as two."""

import keras
from keras import layers


def build(separable):
    if separable:
        middle = [
            layers.SeparableConv2D(6, 3, padding="same", depth_multiplier=2, activation="relu")
        ]
    else:
        middle = [
            layers.DepthwiseConv2D(3, padding="same", depth_multiplier=2, use_bias=False),
            layers.Conv2D(6, 1, activation="relu"),
        ]
    return keras.Sequential(
        [
            keras.Input((10, 10, 3)),
            layers.Conv2D(4, 3, padding="same", activation="relu"),
            *middle,
            layers.GlobalAveragePooling2D(),
            layers.Dense(3),
        ]
    )


def make():
    return build(True)


def two():
    return build(False)
