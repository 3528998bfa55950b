"""MultiWorkerMirroredStrategy: https://www.tensorflow.org/tutorials/distribute/multi_worker_with_ctl."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from dlb_worker.native import StrategySession


class MultiWorkerSession(StrategySession):
    """``distribute`` takes a function that makes whatever holds variables. It returns what that made
    under the strategy's scope, and the ``tf.distribute.Strategy`` to run steps under.

    The strategy sums gradients over workers; a step divides its loss by their number, and each
    has an equal share of the global batch, so the sum is the gradient of the global mean.
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
            return native(), self.strategy

    def leave(self) -> None:
        """Wait for the others: the first to go would take the connections away from them."""

        @tf.function
        def count() -> tf.Tensor:
            return tf.distribute.get_replica_context().all_reduce("SUM", tf.constant(1))

        self.strategy.run(count)
