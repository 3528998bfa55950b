"""LeNet-5 in Chainer as its users write it, with nothing of dlb."""

from __future__ import annotations

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np


class LeNet5(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.conv1 = L.Convolution2D(1, 32, 5, pad=2)
            self.conv2 = L.Convolution2D(32, 64, 5, pad=2)
            self.fc1 = L.Linear(64 * 7 * 7, 512)
            self.fc2 = L.Linear(512, 10)

    def forward(self, x):
        h = F.max_pooling_2d(F.relu(self.conv1(x)), 2, 2)
        h = F.max_pooling_2d(F.relu(self.conv2(h)), 2, 2)
        return self.fc2(F.relu(self.fc1(h)))


class Native:
    """Training from memory: weights by canonical name, inputs [N, 1, 28, 28], labels [N]."""

    def __init__(self, weights, batch_size, learning_rate, momentum, inputs, labels):
        self.model = LeNet5()
        for layer in ("conv1", "conv2", "fc1", "fc2"):
            self.model[layer].W.array[...] = weights[f"{layer}.weight"]
            self.model[layer].b.array[...] = weights[f"{layer}.bias"]
        self.optimizer = chainer.optimizers.MomentumSGD(learning_rate, momentum)
        self.optimizer.setup(self.model)
        self.inputs, self.labels = inputs.astype(np.float32), labels.astype(np.int32)

    def batches(self, order):
        for row in order:
            yield self.inputs[row], self.labels[row]

    def step(self, x, t):
        loss = F.softmax_cross_entropy(self.model(x), t)
        self.model.cleargrads()
        loss.backward()
        self.optimizer.update()
        return loss.array

    def synchronise(self):
        """Operators on a CPU return when they are done."""
