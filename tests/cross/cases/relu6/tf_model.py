"""The same."""

import keras
from keras import layers


def build(limit):
    return keras.Sequential(
        [
            keras.Input((16, 16, 3)),
            layers.ZeroPadding2D(1),
            layers.Conv2D(8, 3, strides=2, use_bias=False),
            layers.BatchNormalization(),
            layers.ReLU(limit),
            layers.DepthwiseConv2D(3, padding="same", use_bias=False),
            layers.BatchNormalization(),
            layers.ReLU(limit),
            layers.GlobalAveragePooling2D(),
            layers.Dense(5),
        ]
    )


def make():
    return build(6.0)


def unbounded():
    return build(None)
