"""The same with a Trainer, which divides by the batch."""

from mxnet import autograd, gluon
from mxnet.gluon import nn


def make():
    net = nn.HybridSequential()
    net.add(nn.Dense(9, activation="tanh", in_units=6), nn.Dropout(0.1), nn.Dense(3, in_units=9))
    return net


def momentum(model):
    entropy = gluon.loss.SoftmaxCrossEntropyLoss()
    options = {"learning_rate": 0.1, "momentum": 0.9}
    trainer = gluon.Trainer(model.collect_params(), "sgd", options)

    def step(batch):
        with autograd.record():
            loss = entropy(model(batch["x"]), batch["y"])
        loss.backward()
        trainer.step(len(batch["x"]))
        return loss

    return step
