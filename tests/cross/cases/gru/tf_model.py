"""The same as two layers; ``reset_before`` is another function."""

import keras
from keras import layers


def build(**kw):
    return keras.Sequential(
        [
            keras.Input((7, 6)),
            layers.GRU(10, return_sequences=True, **kw),
            layers.GRU(10, **kw),
            layers.Dense(4),
        ]
    )


def make():
    return build()


def reset_before():
    return build(reset_after=False)
