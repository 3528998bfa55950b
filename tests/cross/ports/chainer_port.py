"""The models as a user of Chainer writes them, and each with one error."""

import chainer
import chainer.functions as F
import chainer.links as L


class Image(chainer.Chain):
    def __init__(self, epsilon=1e-5, momentum=0.9, activate=F.relu, padded=True):
        super().__init__()
        self.activate, self.padded = activate, padded
        with self.init_scope():
            self.conv1 = L.Convolution2D(3, 8, 3, pad=1)
            self.bn1 = L.BatchNormalization(8, decay=momentum, eps=epsilon)
            self.conv2 = L.Convolution2D(8, 16, 3, stride=2, pad=int(padded), nobias=True)
            self.fc1 = L.Linear(None, 20)
            self.fc2 = L.Linear(20, 10)

    def forward(self, x):
        h = F.max_pooling_2d(self.activate(self.bn1(self.conv1(x))), 2)
        if not self.padded:
            h = F.pad(h, ((0, 0), (0, 0), (0, 1), (0, 1)), "constant")
        h = F.relu(self.conv2(h))
        return self.fc2(F.tanh(self.fc1(h)))


def image():
    return Image()


def epsilon():
    return L.Classifier(Image(epsilon=2e-5)).predictor


def momentum():
    """torch's own number."""
    return Image(momentum=0.1)


def padding():
    return Image(padded=False)


def activation():
    return Image(activate=F.elu)


class Text(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.embed = L.EmbedID(50, 8)
            self.lstm = L.LSTM(8, 12)
            self.out = L.Linear(12, 4)

    def forward(self, tokens):
        self.lstm.reset_state()
        for step in F.separate(self.embed(tokens), axis=1):
            hidden = self.lstm(step)
        return self.out(hidden)


def text():
    return Text()


class TextSteps(chainer.Chain):
    """The same by Chainer's link of several layers over sequences."""

    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.embed = L.EmbedID(50, 8)
            self.lstm = L.NStepLSTM(1, 8, 12, 0.0)
            self.out = L.Linear(12, 4)

    def forward(self, tokens):
        hidden, _, _ = self.lstm(None, None, list(F.separate(self.embed(tokens), axis=0)))
        return self.out(hidden[-1])


def text_steps():
    return TextSteps()


class HandLSTM(chainer.Chain):
    def __init__(self, order):
        super().__init__()
        self.order = order
        with self.init_scope():
            self.x2h = L.Linear(6, 20)
            self.h2h = L.Linear(5, 20, nobias=True)

    def forward(self, x):
        hidden = cell = self.xp.zeros((len(x), 5), x.dtype)
        for step in F.separate(chainer.as_variable(x), axis=1):
            gates = F.split_axis(self.x2h(step) + self.h2h(hidden), 4, axis=1)
            i, f, g, o = (gates[place] for place in self.order)
            cell = F.sigmoid(f) * cell + F.sigmoid(i) * F.tanh(g)
            hidden = F.sigmoid(o) * F.tanh(cell)
        return hidden


class Cell(chainer.Chain):
    def __init__(self, order=(0, 1, 2, 3)):
        super().__init__()
        with self.init_scope():
            self.lstm = HandLSTM(order)
            self.out = L.Linear(5, 3)

    def forward(self, x):
        return self.out(self.lstm(x))


def cell():
    return Cell()


def gates():
    return Cell((0, 2, 1, 3))
