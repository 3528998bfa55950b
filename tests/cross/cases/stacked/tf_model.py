"""Slices of stacked weights, and layers."""

import keras
from keras import layers, ops


class Stack(layers.Layer):
    def __init__(self, order=(0, 1, 2), activation=ops.tanh):
        super().__init__()
        self.order, self.apply = order, activation
        self.kernel = self.add_weight(shape=(3, 8, 8), name="kernel")
        self.bias = self.add_weight(shape=(3, 8), name="bias")

    def call(self, x):
        for place in self.order:
            x = self.apply(ops.matmul(x, self.kernel[place]) + self.bias[place])
        return x


def build(*middle):
    return keras.Sequential([keras.Input((8,)), *middle, layers.Dense(2)])


def make():
    return build(Stack())


def swapped():
    return build(Stack((1, 0, 2)))


def relu():
    return build(Stack(activation=ops.relu))


def separate():
    return build(*(layers.Dense(8, activation="tanh") for _ in range(3)))
