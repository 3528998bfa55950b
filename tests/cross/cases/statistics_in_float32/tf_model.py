"""The same over all values."""

import keras
from keras import layers


def make(momentum=0.7):
    return keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Conv2D(5, 3),
            layers.BatchNormalization(momentum=momentum),
            layers.ReLU(),
            layers.Permute((3, 1, 2)),
            layers.Flatten(),
            layers.Dense(3),
        ]
    )


def same_number():
    """What is new for torch is what stays for Keras."""
    return make(0.3)
