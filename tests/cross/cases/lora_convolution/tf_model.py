"""The same by Keras's own additions of low rank."""

import keras
from keras import layers


def make():
    model = keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Conv2D(8, 3, padding="same", activation="relu"),
            layers.Conv2D(8, 3, strides=2, activation="relu"),
            layers.Permute((3, 1, 2)),
            layers.Flatten(),
            layers.Dense(3),
        ]
    )
    for layer in model.layers[:2]:
        layer.enable_lora(2, lora_alpha=8)
    return model


def series(rank=3, alpha=12):
    model = keras.Sequential(
        [
            keras.Input((20, 6)),
            layers.Conv1D(10, 5, activation="tanh"),
            layers.Conv1D(7, 5, dilation_rate=2, activation="tanh"),
            layers.GlobalAveragePooling1D(),
            layers.Dense(3),
        ]
    )
    for layer in model.layers[:2]:
        layer.enable_lora(rank, lora_alpha=alpha)
    return model


def of_rank_one():
    return series(1, 8)
