"""MXNet's KVStores.

Of several processes: https://mxnet.apache.org/api/faq/distributed_training. Of several devices of one process:
https://mxnet.apache.org/api/python/docs/api/kvstore/.
"""

from __future__ import annotations

from typing import Any

import mxnet as mx
import numpy as np
from mxnet import gluon

from dlb_worker.native import StrategySession


class ModelStore(mx.kvstore.KVStoreBase):
    """A model's share of the process's distributed KVStore, with keys of its own.

    gluon's Trainer numbers parameters from 0, so a second model would use the keys of the first.
    """

    def __init__(self, store: mx.kvstore.KVStore, first: int) -> None:
        self.store: Any = store
        self.first = first

    def broadcast(self, key: int, value: Any, out: Any, priority: int = 0) -> None:
        # Every worker has loaded the same weights, so only the server needs them, and from
        # a plain copy: an array that oneDNN keeps in a layout of its own (as it does a weight that
        # a forward pass has used) is not always sent, and the server ends at the first question.
        plain = mx.nd.array(value.asnumpy(), dtype=value.dtype)
        self.store.init(self.first + key, plain)
        mx.nd.waitall()
        self.store._barrier()

    def pushpull(self, key: int, value: Any, out: Any = None, priority: int = 0) -> None:
        self.store.pushpull(self.first + key, value, out, priority)

    def is_capable(self, capability: str) -> bool:
        return self.store.is_capable(capability)

    @property
    def type(self) -> str:
        return self.store.type


class KVStoreSession(StrategySession):
    """``distribute`` takes (parameters, optimizer) and returns a gluon Trainer.

    The server sums the gradients, and every worker updates its own copy of the parameters: an
    optimizer on the server, MXNet's other way, could not take a new learning rate. The sum over
    all samples is divided by their number, whatever shares the workers have.
    """

    def __init__(self, rank: int, workers: int) -> None:
        self.rank, self.workers = rank, workers
        self.store = mx.kvstore.create("dist_sync")
        self.stores: list[ModelStore] = []
        self.keys = 0

    def distribute(self, native: Any) -> Any:
        parameters, optimizer = native
        store = ModelStore(self.store, self.keys)
        self.stores.append(store)
        self.keys += len(parameters)
        optimizer.rescale_grad = 1 / self.workers
        self.optimizer = optimizer
        return gluon.Trainer(parameters, optimizer, kvstore=store, update_on_kvstore=False)

    def gradient_after_reduction(self, native: Any) -> np.ndarray:
        return native.grad().asnumpy() * self.optimizer.rescale_grad

    def leave(self) -> None:
        """The last to let go of the store waits for its peers and ends server and scheduler."""
        for store in self.stores:
            store.store = None
        self.store = None


class LocalSession(StrategySession):
    """The KVStore ``local``: one process, with a replica on each of several contexts.

    ``distribute`` takes (parameters, optimizer), the parameters on all of ``contexts``, and returns a gluon
    Trainer. The store sums the gradients, and each replica updates its own copy of the parameters. Each
    has batch statistics of its own share.
    """

    store = "local"

    def __init__(self, rank: int, workers: int) -> None:
        self.rank, self.workers, self.replicas = rank, workers, workers
        self.contexts = [mx.cpu(number) for number in range(workers)]

    def distribute(self, native: Any) -> gluon.Trainer:
        parameters, self.optimizer = native
        return gluon.Trainer(
            parameters, self.optimizer, kvstore=self.store, update_on_kvstore=False
        )

    def gradient_after_reduction(self, native: Any) -> np.ndarray:
        gradient = native.grad(self.contexts[self.replica])
        return gradient.asnumpy() * self.optimizer.rescale_grad

    def leave(self) -> None:
        """Nobody waits for this process."""


class DeviceSession(LocalSession):
    """The KVStore ``device``."""

    store = "device"
