"""Keras' own training loop on PyTorch, with Keras' own optimizers and nothing of dlb."""

from __future__ import annotations

import os

import numpy as np

# Read when Keras is imported; without it Keras is TensorFlow's.
os.environ["KERAS_BACKEND"] = "torch"

import keras
from native.keras_networks import built, fitted


class Fit:
    """Training from memory; arguments are those of ``Native`` in native/torch.py.

    Keras' weight decay is apart from the gradient, and its Adam adds epsilon before the bias
    correction: of a step's time that is nothing.
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
    ) -> None:
        self.inputs = inputs.transpose(0, 2, 3, 1) if inputs.ndim == 4 else inputs
        self.labels, self.batch_size = labels, batch_size
        shape, dtype = self.inputs.shape[1:], self.inputs.dtype.name
        self.model = built(workload, weights, shape, dtype, batch_size, drop=drop)
        shared = {
            "weight_decay": settings["weight_decay"] or None,
            "global_clipnorm": settings["clip_norm"] or None,
        }
        rate = settings["learning_rate"]
        if "beta1" in settings:
            betas = settings["beta1"], settings["beta2"]
            self.optimizer: keras.optimizers.Optimizer = keras.optimizers.Adam(
                rate, *betas, settings["epsilon"], **shared
            )
        else:
            nesterov = bool(settings["nesterov"])
            self.optimizer = keras.optimizers.SGD(rate, settings["momentum"], nesterov, **shared)

    def fit(self, order: np.ndarray) -> tuple[list[float], list[float]]:
        """Keras' own loop on the rows of the order: seconds of each step, mean losses up to it."""
        samples = order.flatten()
        return fitted(
            self.model,
            self.optimizer,
            self.inputs[samples],
            self.labels[samples],
            batch_size=self.batch_size,
        )
