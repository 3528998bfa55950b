"""The models as a user of Keras writes them, and each with one error."""

import keras
from keras import layers, ops


def image(epsilon=1e-5, momentum=0.9, activation="relu", same=False, permute=True):
    second = [layers.Conv2D(16, 3, strides=2, padding="same", use_bias=False, name="conv2")]
    if not same:  # pads of 1 on each side, which "same" does not mean where the stride is 2
        conv = layers.Conv2D(16, 3, strides=2, use_bias=False, name="conv2")
        second = [layers.ZeroPadding2D(1), conv]
    return keras.Sequential(
        [
            keras.Input((16, 16, 3)),
            layers.Conv2D(8, 3, padding="same", name="conv1"),
            layers.BatchNormalization(epsilon=epsilon, momentum=momentum, name="bn1"),
            layers.Activation(activation, name="act1"),
            layers.MaxPooling2D(2),
            *second,
            layers.ReLU(),
            *([layers.Permute((3, 1, 2))] if permute else []),
            layers.Flatten(),
            layers.Dense(20, activation="tanh", name="fc1"),
            layers.Dense(10, name="fc2"),
        ]
    )


def flat():
    return image(permute=False)


def epsilon():
    return image(epsilon=1e-3)


def momentum():
    return image(momentum=0.99)


def padding():
    return image(same=True)


def activation():
    return image(activation="elu")


def gated():
    gru = layers.GRU(5, return_sequences=True)
    return keras.Sequential([gru, layers.SimpleRNN(4, return_sequences=True), layers.Dense(3)])


class Encoder(layers.Layer):
    """torch's TransformerEncoderLayer(8, 2, 16), normalised before each part."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = (layers.LayerNormalization(epsilon=1e-5) for _ in range(2))
        self.attention = layers.MultiHeadAttention(2, 4)
        self.hidden = layers.Dense(16, activation="relu")
        self.back = layers.Dense(8)

    def call(self, x):
        normal = self.norm1(x)
        x = x + self.attention(normal, normal)
        return x + self.back(self.hidden(self.norm2(x)))


def encoder():
    return keras.Sequential([Encoder(), layers.Dense(3)])


class Attends(layers.Layer):
    def __init__(self):
        super().__init__()
        self.attention = layers.MultiHeadAttention(2, 4, use_bias=False)
        self.out = layers.Dense(3)

    def call(self, x):
        return self.out(self.attention(x, x))


def attends():
    return Attends()


def text():
    return keras.Sequential([layers.Embedding(50, 8), layers.LSTM(12), layers.Dense(4)])


class HandLSTM(layers.Layer):
    def __init__(self, order):
        super().__init__()
        self.order = order
        self.x2h = layers.Dense(20)
        self.h2h = layers.Dense(20, use_bias=False)

    def call(self, x):
        hidden = cell = ops.zeros((x.shape[0], 5), x.dtype)
        for step in range(x.shape[1]):
            gates = ops.split(self.x2h(x[:, step]) + self.h2h(hidden), 4, axis=1)
            i, f, g, o = (gates[place] for place in self.order)
            cell = ops.sigmoid(f) * cell + ops.sigmoid(i) * ops.tanh(g)
            hidden = ops.sigmoid(o) * ops.tanh(cell)
        return hidden


class Cell(keras.Model):
    def __init__(self, order=(0, 1, 2, 3)):
        super().__init__()
        self.lstm = HandLSTM(order)
        self.head = layers.Dense(3)

    def call(self, x):
        return self.head(self.lstm(x))


def cell():
    return Cell()


def gates():
    return Cell((0, 2, 1, 3))
