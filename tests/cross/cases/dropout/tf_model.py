"""The same; wrong in what is dropped, and in the rate."""

import keras
from keras import layers


def build(drop):
    return keras.Sequential(
        [
            keras.Input((9, 9, 1)),
            layers.Conv2D(6, 3, activation="relu"),
            drop,
            layers.GlobalAveragePooling2D(),
            layers.Dense(3),
        ]
    )


def make():
    return build(layers.SpatialDropout2D(0.2))


def of_elements():
    return build(layers.Dropout(0.2))


def other_rate():
    return build(layers.SpatialDropout2D(0.8))
