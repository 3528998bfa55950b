"""TensorFlow's distributed strategies: https://www.tensorflow.org/guide/distributed_training."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from dlb_worker.errors import UnsupportedError
from dlb_worker.native import StrategySession


class MultiWorkerSession(StrategySession):
    """``distribute`` takes a function that makes whatever holds variables, and returns the optimizer, the
    trained variables and their decays. It returns what that made under the strategy's scope, and the
    ``tf.distribute.Strategy`` to run steps under.

    The strategy sums gradients over workers; a step multiplies its loss by the worker's share of the
    global batch, so the sum is the gradient of the global mean.
    Batch normalisation sees its own worker's samples, and keeps its own running statistics.
    """

    def __init__(self, rank: int, workers: int) -> None:
        self.rank, self.workers = rank, workers
        backends = tf.distribute.experimental.CommunicationImplementation
        gpus = tf.config.get_visible_devices("GPU")
        self.strategy = tf.distribute.MultiWorkerMirroredStrategy(
            communication_options=tf.distribute.experimental.CommunicationOptions(
                implementation=backends.NCCL if gpus else backends.RING
            )
        )

    def distribute(self, native: Any) -> Any:
        with self.strategy.scope():
            made = native()
        self.reduced: dict[int, tf.Variable] = {}
        if made.trained and made.trained[0].dtype == "float64":  # of the proof: copies take time
            self._keep_reduced(made)
        return made, self.strategy

    def _keep_reduced(self, made: Any) -> None:
        """Let Keras's optimizer keep what it moves each replica's variables by, less what decay added."""
        optimizer = made.optimizer
        own = {"trainable": False, "synchronization": tf.VariableSynchronization.ON_READ}
        with (
            self.strategy.scope()
        ):  # each replica has one of its own, if it has variables of its own
            kept = [tf.Variable(tf.zeros_like(each.value), **own) for each in made.trained]
        self.reduced = dict(zip(map(id, made.trained), kept))
        update = optimizer.update_step

        def keep_and_update(gradient: Any, variable: Any, learning_rate: Any) -> None:
            index = optimizer._get_variable_index(variable)
            found = tf.convert_to_tensor(gradient) - made.decays[index] * variable
            kept[index].assign(found)
            update(gradient, variable, learning_rate)

        optimizer.update_step = keep_and_update

    def gradient_after_reduction(self, native: Any) -> np.ndarray:
        if id(native) not in self.reduced:
            raise UnsupportedError("gradients after the reduction are kept in float64 alone")
        kept = self.strategy.experimental_local_results(self.reduced[id(native)])
        array: np.ndarray = kept[self.replica % len(kept)].numpy()
        return array

    def leave(self) -> None:
        """Wait for the others: the first to go would take the connections away from them."""

        @tf.function
        def count() -> tf.Tensor:
            return tf.distribute.get_replica_context().all_reduce("SUM", tf.constant(1))

        self.strategy.run(count)


class MirroredSession(MultiWorkerSession):
    """MirroredStrategy: one process, with a replica for each logical device.

    ``distribute`` is as that of :class:`MultiWorkerSession`. The model divides its batches by ``replicas``.
    Batch normalisation uses the statistics of all replicas, so their running statistics are one and the same.
    """

    def __init__(self, rank: int, workers: int) -> None:
        self.rank, self.workers, self.replicas = rank, workers, workers
        self.strategy = self.over([each.name for each in tf.config.list_logical_devices("CPU")])

    @staticmethod
    def over(devices: list[str]) -> tf.distribute.Strategy:
        """TensorFlow's strategy."""
        return tf.distribute.MirroredStrategy(devices)

    def leave(self) -> None:
        """Nobody waits for this process."""


class CentralStorageSession(MirroredSession):
    """CentralStorageStrategy: the same, where the replicas have one set of variables, on the first device."""

    @staticmethod
    def over(devices: list[str]) -> tf.distribute.Strategy:
        return tf.distribute.experimental.CentralStorageStrategy(devices, devices[0])
