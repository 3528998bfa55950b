"""Keras's optimizers, changed to do what :class:`dlb.workload.SGD` and ``Adam`` define."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from dlb_tf.framework import default_dtype
from dlb_worker.model import Optimizer


class Adam(keras.optimizers.Adam):
    """Keras's Adam, corrected twice.

    It adds epsilon before the bias correction of ``v``; multiplied by that correction's square
    root, it is as if added after. And it squares each slice of an embedding's gradient by itself,
    also where several fall on one row; they have to be summed before.
    """

    @property
    def epsilon(self) -> Any:
        rate_type = self.learning_rate.dtype
        step = ops.cast(self.iterations + 1, rate_type)
        beta = ops.convert_to_tensor(self.beta_2, rate_type)
        return self._epsilon * ops.sqrt(1 - ops.power(beta, step))

    @epsilon.setter
    def epsilon(self, value: float) -> None:
        self._epsilon = value

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        super().update_step(tf.convert_to_tensor(gradient), variable, learning_rate)


def make_optimizer(optimizer: Optimizer, dtype: str) -> keras.optimizers.Optimizer:
    """The workload's optimizer, whose every number is of the model's type."""
    # Keras casts a Python float through float32, and a NumPy one not.
    number = np.float64 if dtype == "float64" else float
    with default_dtype(dtype):
        if optimizer.kind == "adam":
            return Adam(
                optimizer.learning_rate,
                beta_1=number(optimizer.beta1),
                beta_2=number(optimizer.beta2),
                epsilon=optimizer.epsilon,
            )
        return keras.optimizers.SGD(
            optimizer.learning_rate, number(optimizer.momentum), optimizer.nesterov
        )
