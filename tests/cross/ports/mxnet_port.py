"""The models as a user of gluon writes them, and each with one error."""

from mxnet import nd
from mxnet.gluon import Block, HybridBlock, nn, rnn


class Pad(HybridBlock):
    def hybrid_forward(self, F, x):
        width = (0, 0, 0, 0, 0, 1, 0, 1)
        return F.pad(x, mode="constant", pad_width=width, constant_value=0)


def image(epsilon=1e-5, momentum=0.9, activation="relu", padded=True):
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(8, 3, padding=1),
        nn.BatchNorm(epsilon=epsilon, momentum=momentum),
        nn.Activation(activation),
        nn.MaxPool2D(2),
    )
    if not padded:
        net.add(Pad())
    net.add(
        nn.Conv2D(16, 3, strides=2, padding=int(padded), use_bias=False, activation="relu"),
        nn.Flatten(),
        nn.Dense(20, activation="tanh"),
        nn.Dense(10),
    )
    net.initialize()
    net.hybridize()
    return net


def epsilon():
    return image(epsilon=1e-3)


def momentum():
    """torch's own number."""
    return image(momentum=0.1)


def padding():
    return image(padded=False)


def activation():
    return image(activation="softrelu")


class Text(Block):
    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.embed = nn.Embedding(50, 8)
            self.lstm = rnn.LSTM(12, layout="NTC")
            self.out = nn.Dense(4)

    def forward(self, tokens):
        return self.out(self.lstm(self.embed(tokens))[:, -1])


def gated():
    net = nn.Sequential()
    units = rnn.RNN(4, activation="tanh", layout="NTC")
    net.add(rnn.GRU(5, layout="NTC"), units, nn.Dense(3, flatten=False))
    return net


def text():
    return Text()


class HandLSTM(Block):
    def __init__(self, order):
        super().__init__()
        self.order = order
        with self.name_scope():
            self.x2h = nn.Dense(20)
            self.h2h = nn.Dense(20, use_bias=False)

    def forward(self, x):
        hidden = cell = nd.zeros((x.shape[0], 5), dtype=x.dtype)
        for step in range(x.shape[1]):
            gates = nd.split(self.x2h(x[:, step]) + self.h2h(hidden), 4, axis=1)
            i, f, g, o = (gates[place] for place in self.order)
            cell = nd.sigmoid(f) * cell + nd.sigmoid(i) * nd.tanh(g)
            hidden = nd.sigmoid(o) * nd.tanh(cell)
        return hidden


class Cell(Block):
    def __init__(self, order=(0, 1, 2, 3)):
        super().__init__()
        with self.name_scope():
            self.lstm = HandLSTM(order)
            self.out = nn.Dense(3)

    def forward(self, x):
        return self.out(self.lstm(x))


def cell():
    return Cell()


def gates():
    return Cell((0, 2, 1, 3))
