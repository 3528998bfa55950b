"""The same by Keras's own additions of low rank."""

import keras
from keras import layers


def build(**low_rank):
    model = keras.Sequential(
        [keras.Input((8,))]
        + [layers.Dense(8, activation="relu", **low_rank) for _ in range(2)]
        + [layers.Dense(3)]
    )
    for layer in model.layers[:2]:
        if not low_rank:
            layer.enable_lora(2, lora_alpha=8)
    return model


def make():
    return build()


def option():
    """Keras 3.15 loses lora_alpha where a layer is made with it, and takes the rank."""
    return build(lora_rank=2, lora_alpha=8)
