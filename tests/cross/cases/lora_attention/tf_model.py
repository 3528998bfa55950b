"""The same of layers, and by Keras's own additions to the maps of its attention."""

import keras
from keras import layers, ops


class Attention(layers.Layer):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.out = (layers.Dense(12) for _ in range(4))

    def build(self, shape):
        for each in (self.query, self.key, self.value, self.out):
            each.build(shape)
        for each in (self.query, self.value):
            each.enable_lora(2, lora_alpha=8)

    def heads(self, x):
        return ops.transpose(ops.reshape(x, (-1, 5, 3, 4)), (0, 2, 1, 3))

    def call(self, x):
        q, k, v = (self.heads(each(x)) for each in (self.query, self.key, self.value))
        w = ops.softmax(ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) * 0.5)
        return self.out(ops.reshape(ops.transpose(ops.matmul(w, v), (0, 2, 1, 3)), (-1, 5, 12)))


def build(attention):
    x = keras.Input((5, 12))
    y = layers.LayerNormalization(epsilon=1e-3)(x)
    y = attention(y, y) if isinstance(attention, layers.MultiHeadAttention) else attention(y)
    return keras.Model(x, layers.Dense(3)(x + y))


def make():
    return build(Attention())


def heads():
    attention = layers.MultiHeadAttention(3, 4)
    model = build(attention)
    for each in (attention._query_dense, attention._value_dense):
        each.enable_lora(2, lora_alpha=8)
    return model


def every():
    attention = layers.MultiHeadAttention(3, 4)
    model = build(attention)
    for each in (attention._query_dense, attention._value_dense, attention._output_dense):
        each.enable_lora(2, lora_alpha=8)
    return model
