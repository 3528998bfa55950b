"""The same; ``other_rate`` keeps what it should drop."""

import chainer
import chainer.functions as F
import chainer.links as L


class Net(chainer.Chain):
    def __init__(self, rate):
        super().__init__()
        self.rate = rate
        with self.init_scope():
            self.hidden = L.Linear(6, 9)
            self.out = L.Linear(9, 2)

    def forward(self, x):
        return self.out(F.dropout(F.relu(self.hidden(x)), self.rate))


def make():
    return Net(0.25)


def other_rate():
    return Net(0.75)
