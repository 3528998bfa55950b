"""The same as a layer, and written out."""

import keras
from keras import layers, ops


class Attention(layers.Layer):
    def __init__(self, tile=False, scale=0.5):
        super().__init__()
        self.query, self.key, self.value, self.out = (
            layers.Dense(units) for units in (16, 8, 8, 12)
        )
        self.tile, self.scale = tile, scale

    def heads(self, x):
        return ops.transpose(ops.reshape(x, (-1, 5, x.shape[-1] // 4, 4)), (0, 2, 1, 3))

    def call(self, x):
        q, k, v = (self.heads(each(x)) for each in (self.query, self.key, self.value))
        k, v = (
            ops.tile(each, (1, 2, 1, 1)) if self.tile else ops.repeat(each, 2, 1) for each in (k, v)
        )
        weights = ops.softmax(ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) * self.scale)
        y = ops.transpose(ops.matmul(weights, v), (0, 2, 1, 3))
        return self.out(ops.reshape(y, (-1, 5, 16)))


class Einsum(layers.Layer):
    """Heads have an axis of their own."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (
            layers.EinsumDense("btd,dhk->bthk", (None, heads, 4), bias_axes="hk")
            for heads in (4, 2, 2)
        )
        self.out = layers.EinsumDense("bthk,hkd->btd", (None, 12), bias_axes="d")

    def call(self, x):
        q, k, v = (each(x) for each in (self.query, self.key, self.value))
        k, v = (ops.repeat(each, 2, 2) for each in (k, v))
        weights = ops.softmax(ops.einsum("bqhk,bthk->bhqt", q, k) * 0.5)
        return self.out(ops.einsum("bhqt,bthk->bqhk", weights, v))


def build(attention):
    x = keras.Input((5, 12))
    y = layers.LayerNormalization(epsilon=1e-3)(x)
    y = attention(y, y) if isinstance(attention, layers.GroupQueryAttention) else attention(y)
    return keras.Model(x, layers.Dense(3)(x + y))


def make():
    return build(layers.GroupQueryAttention(4, 4, 2))


def other_groups():
    return build(layers.GroupQueryAttention(8, 2, 1))


def written():
    return build(Attention())


def einsum():
    return build(Einsum())


def tiled():
    return build(Attention(tile=True))
