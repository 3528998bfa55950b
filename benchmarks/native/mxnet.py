"""LeNet-5 in MXNet as its users write it, with nothing of dlb."""

from __future__ import annotations

from collections.abc import Iterator

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon import nn


class Loss:
    """What the log of a training loop reads; an NDArray itself is no number."""

    def __init__(self, array: mx.nd.NDArray) -> None:
        self.array = array

    def __float__(self) -> float:
        return float(self.array.asscalar())


class Native:
    """Training from memory: weights by canonical name, inputs [N, 1, 28, 28], labels [N]."""

    def __init__(
        self,
        weights: dict[str, np.ndarray],
        batch_size: int,
        learning_rate: float,
        momentum: float,
        inputs: np.ndarray,
        labels: np.ndarray,
    ) -> None:
        self.batch_size = batch_size
        layers = {
            "conv1": nn.Conv2D(32, 5, padding=2, activation="relu", in_channels=1),
            "pool1": nn.MaxPool2D(2, 2),
            "conv2": nn.Conv2D(64, 5, padding=2, activation="relu", in_channels=32),
            "pool2": nn.MaxPool2D(2, 2),
            "fc1": nn.Dense(512, activation="relu", in_units=64 * 7 * 7),
            "fc2": nn.Dense(10, in_units=512),
        }
        self.network = nn.HybridSequential()
        self.network.add(*layers.values())
        self.network.initialize()
        for name, each in weights.items():
            layer, parameter = name.split(".")
            getattr(layers[layer], parameter).set_data(mx.nd.array(each))
        self.network.hybridize(static_alloc=True, static_shape=True)
        self.loss = gluon.loss.SoftmaxCrossEntropyLoss()
        self.loss.hybridize(static_alloc=True, static_shape=True)
        self.trainer = gluon.Trainer(
            self.network.collect_params(),
            "sgd",
            {"learning_rate": learning_rate, "momentum": momentum},
        )
        self.inputs = mx.nd.array(inputs, dtype=inputs.dtype)
        self.labels = mx.nd.array(labels, dtype=labels.dtype)

    def batches(self, order: np.ndarray) -> Iterator[tuple[mx.nd.NDArray, mx.nd.NDArray]]:
        """The samples of each row of the order."""
        for row in mx.nd.array(order, dtype=order.dtype):
            yield mx.nd.take(self.inputs, row), mx.nd.take(self.labels, row)

    def step(self, x: mx.nd.NDArray, y: mx.nd.NDArray) -> Loss:
        """One update; the mean loss."""
        with autograd.record():
            loss = self.loss(self.network(x), y)
        loss.backward()
        self.trainer.step(self.batch_size)
        return Loss(loss.mean())

    def synchronise(self) -> None:
        """Operators run behind the caller's back."""
        mx.nd.waitall()
