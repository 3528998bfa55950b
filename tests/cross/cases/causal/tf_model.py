"""The same by ``padding="causal"``."""

import keras
from keras import layers


def make():
    x = inputs = keras.Input((24, 3))
    for n, d in enumerate((1, 2, 4)):
        y = layers.Conv1D(
            8, 3, padding="causal", dilation_rate=d, activation="relu", name=f"conv{n}"
        )(x)
        x = layers.Add()([y, layers.Conv1D(8, 1, name=f"skip{n}")(x)])
    return keras.Model(inputs, layers.Conv1D(2, 1, name="out")(x))
