"""Asynchronous training by TensorFlow's coordinator: https://www.tensorflow.org/tutorials/distribute/parameter_server_training.

The variables lie on a server. The coordinator, which is dlb's one process, deals functions out, each to
whichever of TensorFlow's workers is free. A worker of dlb is a share of the batch, and no process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from dlb_tf.model import Made, TFModel
from dlb_tf.modules import MaskedDropout
from dlb_worker.contract import BuildRequest
from dlb_worker.errors import UnsupportedError
from dlb_worker.native import StrategySession

#: The counter of pushes ends here.
LIMIT = np.iinfo(np.int64).max


def serve(role: str, rank: int) -> None:
    """Be one of TensorFlow's servers: it does not end by itself."""
    found = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    threads = int(os.environ["OMP_NUM_THREADS"])
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=threads, device_count={"GPU": 0})
    tf.distribute.Server(
        found.cluster_spec(), found.task_type, found.task_id, "grpc", config
    ).join()


class ServedModel(TFModel):
    """A model whose variables lie on the server. A share of a batch is one function, or for gates two."""

    def __init__(self, request: BuildRequest, **variant: str) -> None:
        self.served: ParameterServerSession = request.session
        super().__init__(request, **variant)
        replicas = range(len(self.sizes))
        self._shares = [self._dealt(replica, self._share) for replica in replicas]
        self._pulls = [self._dealt(replica, self._pull) for replica in replicas]
        self._pushes = self._dealt(0, self._push)

    def _make(self, request: BuildRequest) -> Made:
        #: How many pushes there were.
        self.count = tf.Variable(0, trainable=False, dtype=tf.int64)
        return super()._make(request)

    def _dealt(self, replica: int, work: Any) -> Any:
        """What computes a replica's share, with its masks."""
        first = sum(self.sizes[:replica])

        def traced(*arguments: Any) -> Any:
            masked = [e for e in self.network.model.layers if isinstance(e, MaskedDropout)]
            for layer in masked:
                layer.firsts = (first,)
            try:
                return self.strategy.run(work, arguments)
            finally:
                for layer in masked:
                    layer.firsts = (0,)

        return self._compiled(traced)

    def _pull(self, inputs: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """The loss, how many pushes there were, and gradients at the weights that the server had then."""
        pulled = self.count.read_value()
        with tf.control_dependencies([pulled]):
            tape, loss, share = self._record(inputs, labels)
        return loss, pulled, *self._backward(tape, share)

    def _push(self, *gradients: Any) -> tf.Tensor:
        """How many pushes there were before this one, which moves the weights."""
        # Keras's own count of steps is read and then written, so pushes at one time may count once.
        before = tf.raw_ops.ResourceCountUpTo(resource=self.count.handle, limit=LIMIT, T=tf.int64)
        # TensorFlow adds them up where they are, and a function's arguments are nowhere.
        self._apply([tf.identity(each) for each in gradients])
        return before

    def _share(self, inputs: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """A whole step of a share: the loss, the push's staleness, and, in float64, what was pushed."""
        loss, pulled, *gradients = self._pull(inputs, labels)
        before = self._push(*gradients)
        kept = map(tf.convert_to_tensor, gradients if self.dtype == "float64" else ())
        return loss, before - pulled, *kept

    def _deal(self, function: Any, *arguments: Any) -> Any:
        return self.served.coordinator.schedule(function, args=arguments)

    def _part(self, replica: int, *batch: tf.Tensor) -> list[tf.Tensor]:
        return [tf.split(array, self.sizes)[replica] for array in batch]

    def read_batch(self, inputs: tf.Tensor, labels: tf.Tensor) -> tuple[np.ndarray, np.ndarray]:
        own = self._part(self.replica, inputs, labels)
        return super().read_batch(*own)

    def train_step(self, inputs: tf.Tensor, labels: tf.Tensor) -> Any:
        dealt = [
            self._deal(share, *self._part(replica, inputs, labels))
            for replica, share in enumerate(self._shares)
        ]
        losses = []
        for replica, each in enumerate(dealt):
            loss, lag, *pushed = each.fetch()
            self.served.note(replica, lag, dict(zip(map(id, self.trained), pushed)))
            losses.append(loss)
        return np.average(losses, weights=self.sizes)

    def step_phases(self, inputs: tf.Tensor, labels: tf.Tensor) -> Iterator[tuple[str, Any]]:
        replica = self.replica
        own = self._part(replica, inputs, labels)
        loss, pulled, *gradients = self._deal(self._pulls[replica], *own).get()
        yield "forward", loss
        yield "backward", loss
        before = self._deal(self._pushes, *gradients).fetch()
        self.served.note(replica, before - pulled, {})
        yield "update", loss


class ParameterServerSession(StrategySession):
    """ParameterServerStrategy with its ClusterCoordinator.

    ``distribute`` is as that of :class:`dlb_tf.strategy.MultiWorkerSession`.
    """

    model = ServedModel

    def __init__(self, rank: int, workers: int) -> None:
        self.rank, self.workers, self.replicas = rank, workers, workers
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver(rpc_layer="grpc")
        self.strategy = tf.distribute.ParameterServerStrategy(resolver)
        self.coordinator = tf.distribute.coordinator.ClusterCoordinator(self.strategy)

    def distribute(self, native: Any) -> Any:
        #: Of each replica, the staleness of its pushes, and what it pushed last.
        self.lags: list[list[int]] = [[] for _ in range(self.replicas)]
        self.pushed: list[dict[int, np.ndarray]] = [{} for _ in self.lags]
        with self.strategy.scope():
            return native(), self.strategy

    def note(self, replica: int, lag: int, pushed: dict[int, np.ndarray]) -> None:
        """Keep what a push is told of."""
        self.lags[replica].append(int(lag))
        self.pushed[replica] = pushed

    def gradient_after_reduction(self, native: Any) -> np.ndarray:
        if id(native) not in self.pushed[self.replica]:
            raise UnsupportedError("gradients are kept in float64 alone")
        return self.pushed[self.replica][id(native)]

    def staleness(self) -> list[int]:
        return self.lags[self.replica]

    def leave(self) -> None:
        """The supervisor ends TensorFlow's servers, which do not end by themselves."""
