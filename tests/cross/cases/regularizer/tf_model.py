"""The same; ``penalised`` adds to the loss what the reference's optimizer subtracts as weight decay."""

import keras
from keras import layers


def make(l2=None):
    r = keras.regularizers.L2(l2) if l2 else None
    return keras.Sequential(
        [
            keras.Input((9,)),
            layers.Dense(12, activation="relu", kernel_regularizer=r),
            layers.Dense(4, kernel_regularizer=r),
        ]
    )


def penalised():
    return make(5e-4)
