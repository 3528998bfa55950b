"""The same; ``slope_of_each_value`` shares no axes."""

import keras
from keras import layers


def build(**kw):
    return keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Conv2D(5, 3, padding="same"),
            layers.PReLU(**kw),
            layers.Conv2D(7, 3, strides=2),
            layers.PReLU(**kw),
            layers.Flatten(),
            layers.Dense(4),
        ]
    )


def make():
    return build(shared_axes=[1, 2])


def slope_of_each_value():
    return build()
