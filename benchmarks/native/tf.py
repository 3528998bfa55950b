"""LeNet-5 in TensorFlow as its users write it: what the adapter's step is compared with."""

from __future__ import annotations

from collections.abc import Iterator

import keras
import numpy as np
import tensorflow as tf


class Native:
    """LeNet-5 of Keras layers and a training step under tf.function, float32."""

    def __init__(
        self,
        weights: dict[str, np.ndarray],
        batch_size: int,
        learning_rate: float,
        momentum: float,
        inputs: np.ndarray,
        labels: np.ndarray,
    ) -> None:
        layers = {
            "conv1": keras.layers.Conv2D(32, 5, padding="same"),
            "conv2": keras.layers.Conv2D(64, 5, padding="same"),
            "fc1": keras.layers.Dense(512),
            "fc2": keras.layers.Dense(10),
        }
        self.model = keras.Sequential(
            [
                keras.Input((28, 28, 1)),
                layers["conv1"],
                keras.layers.ReLU(),
                keras.layers.MaxPooling2D(2),
                layers["conv2"],
                keras.layers.ReLU(),
                keras.layers.MaxPooling2D(2),
                keras.layers.Flatten(),
                layers["fc1"],
                keras.layers.ReLU(),
                layers["fc2"],
            ]
        )
        for name, layer in layers.items():
            kernel = weights[f"{name}.weight"]
            if kernel.ndim == 4:
                kernel = kernel.transpose(2, 3, 1, 0)
            elif name == "fc1":  # the features come in NHWC order here
                kernel = kernel.reshape(512, 64, 7, 7).transpose(2, 3, 1, 0).reshape(-1, 512)
            else:
                kernel = kernel.T
            layer.set_weights([kernel, weights[f"{name}.bias"]])
        self.optimizer = keras.optimizers.SGD(learning_rate, momentum)
        self.inputs = tf.constant(inputs.transpose(0, 2, 3, 1))
        self.labels = tf.constant(labels)

    def batches(self, order: np.ndarray) -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
        """The samples of each row of the order."""
        for row in tf.constant(order):
            yield tf.gather(self.inputs, row), tf.gather(self.labels, row)

    @tf.function
    def step(self, inputs: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """One update; the mean loss."""
        with tf.GradientTape() as tape:
            logits = self.model(inputs, training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        gradients = tape.gradient(loss, self.model.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.model.trainable_variables))
        return loss

    def synchronise(self) -> None:
        """A function on CPU returns when it is done."""
