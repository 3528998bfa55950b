"""The same."""

import keras
from keras import layers


def make():
    ids = keras.Input((6,), dtype="int32", name="ids")
    mask = keras.Input((6,), dtype="int32", name="mask")
    x = layers.Embedding(30, 8)(ids)
    y = layers.MultiHeadAttention(2, 4)(
        x, x, attention_mask=keras.ops.not_equal(mask, 0)[:, None, :]
    )
    return keras.Model([ids, mask], layers.Dense(2)(y[:, 0]))
