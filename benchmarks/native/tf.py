"""Training the shipped networks in TensorFlow and Keras as their users write it, with nothing of dlb."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from native.keras_networks import built, fitted


class Coupled:
    """What an optimizer of Keras does otherwise: weight decay as a part of the gradient.

    An embedding's gradient, slices of which may fall on the same row, is summed before anything is
    squared.
    """

    decay = 0.0

    def apply(self, grads: list[Any], trainable_variables: list[Any] | None = None) -> None:
        super().apply([tf.convert_to_tensor(each) for each in grads], trainable_variables)

    def update_step(self, gradient: tf.Tensor, variable: Any, learning_rate: Any) -> None:
        if self.decay:
            gradient = gradient + self.decay * variable
        super().update_step(gradient, variable, learning_rate)


class SGD(Coupled, keras.optimizers.SGD):
    """Keras' own, with coupled decay."""


class Adam(Coupled, keras.optimizers.Adam):
    """Keras' own, with epsilon after the bias correction, as in the paper's algorithm."""

    def update_step(self, gradient: tf.Tensor, variable: Any, learning_rate: Any) -> None:
        after, step = self.epsilon, tf.cast(self.iterations + 1, tf.float32)
        self.epsilon = after * tf.sqrt(1 - self.beta_2**step)
        super().update_step(gradient, variable, learning_rate)
        self.epsilon = after


def join(rank: int, workers: int) -> tf.distribute.Strategy:
    """The strategy of the processes that TF_CONFIG names."""
    return tf.distribute.MultiWorkerMirroredStrategy()


class Native:
    """Training from memory.

    Args:
        workload: its name, one of NETWORKS.
        weights: by canonical name, in the order of the description.
        settings: of the optimizer: learning_rate, weight_decay and clip_norm, and momentum and
            nesterov of SGD, or beta1, beta2 and epsilon of Adam.
        drop: whether dropout is to drop.
        inputs: [N, ...] in canonical layout; labels: [N] or [N, T].
        peers: what :func:`join` gives, to train with them.
    """

    def __init__(
        self,
        workload: str,
        weights: dict[str, np.ndarray],
        batch_size: int,
        settings: dict[str, float],
        inputs: np.ndarray,
        labels: np.ndarray,
        *,
        drop: bool,
        peers: tf.distribute.Strategy | None = None,
    ) -> None:
        maps = inputs.ndim == 4
        self.inputs = tf.constant(inputs.transpose(0, 2, 3, 1) if maps else inputs)
        self.labels = tf.constant(labels)
        shape, dtype = self.inputs.shape[1:], self.inputs.dtype.name
        keras.utils.clear_session()
        self.peers = peers or tf.distribute.get_strategy()
        with self.peers.scope():
            self.model = built(workload, weights, shape, dtype, batch_size, drop=drop)
            rate, clip = settings["learning_rate"], settings["clip_norm"] or None
            if "beta1" in settings:
                betas = settings["beta1"], settings["beta2"]
                self.optimizer: Coupled = Adam(
                    rate, *betas, settings["epsilon"], global_clipnorm=clip
                )
            else:
                nesterov = bool(settings["nesterov"])
                self.optimizer = SGD(rate, settings["momentum"], nesterov, global_clipnorm=clip)
            self.optimizer.decay = settings["weight_decay"]
            self.optimizer.build(self.model.trainable_variables)

    def batches(self, order: np.ndarray) -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
        """The samples of each row of the order."""
        for row in tf.constant(order):
            yield tf.gather(self.inputs, row), tf.gather(self.labels, row)

    @tf.function
    def step(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        """One update; the mean loss."""
        if self.peers.num_replicas_in_sync == 1:
            return self.own_step(x, y)
        return self.peers.run(self.own_step, (x, y))

    def own_step(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        """A step of this process; the optimizer adds gradients over the peers."""
        variables = self.model.trainable_variables
        with tf.GradientTape() as tape:
            logits = self.model(x, training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))
            shared = loss / self.peers.num_replicas_in_sync
        self.optimizer.apply(tape.gradient(shared, variables), variables)
        return loss

    def fit(self, order: np.ndarray) -> tuple[list[float], list[float]]:
        """Keras' own loop on the rows of the order: seconds of each step, mean losses up to it."""
        rows = tf.data.Dataset.from_tensor_slices(order)
        batches = rows.map(lambda row: (tf.gather(self.inputs, row), tf.gather(self.labels, row)))
        return fitted(self.model, self.optimizer, batches.prefetch(tf.data.AUTOTUNE))

    def synchronise(self) -> None:
        """A function on a CPU returns when it is done."""

    def __del__(self) -> None:
        # TensorFlow never forgets the graph of a step, and with it all variables in it: the memory of
        # each model that was built would be kept. Python may end one while another's graph is made.
        with tf.init_scope():
            for variable in (*self.model.variables, *self.optimizer.variables):
                tf.raw_ops.AssignVariableOp(
                    resource=variable.value.handle,
                    value=tf.zeros([0], variable.value.dtype),
                    validate_shape=False,
                )


#: Keras' own loop is on the same model and optimizer.
Fit = Native
