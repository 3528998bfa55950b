"""The same."""

import chainer
import chainer.functions as F
import chainer.links as L


class Net(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.hidden = L.Linear(6, 9)
            self.out = L.Linear(9, 3)

    def forward(self, x):
        return self.out(F.dropout(F.tanh(self.hidden(x)), 0.1))


def make():
    return Net()


def momentum(model):
    optimizer = chainer.optimizers.MomentumSGD(lr=0.1, momentum=0.9).setup(model)

    def step(batch):
        model.cleargrads()
        loss = F.softmax_cross_entropy(model(batch["x"]), batch["y"].astype("int32"))
        loss.backward()
        optimizer.update()
        return loss

    return step
