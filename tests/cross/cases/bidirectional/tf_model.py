"""A bidirectional LSTM, which Keras holds in three layers."""

import keras
from keras import layers


def make():
    return keras.Sequential(
        [
            keras.Input((9, 5)),
            layers.Bidirectional(layers.LSTM(8, return_sequences=True), merge_mode="concat"),
            layers.Dense(3),
        ]
    )
