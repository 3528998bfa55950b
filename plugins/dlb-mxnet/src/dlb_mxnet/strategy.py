"""MXNet's KVStores.

Of several processes: https://mxnet.apache.org/api/faq/distributed_training. Of several devices of one process:
https://mxnet.apache.org/api/python/docs/api/kvstore/.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import gluon

from dlb_mxnet.modules import Part
from dlb_worker.errors import UnsupportedError
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


class ServerStore(ModelStore):
    """A model's share of the asynchronous KVStore, whose server updates the weights and counts its updates.

    Workers meet as it is made, for they come to their first steps when they will.
    """

    def __init__(self, store: mx.kvstore.KVStore, first: int, optimizer: Any, values: Any) -> None:
        super().__init__(store, first)
        self.counter = len(values)
        #: How many pushes the server had after each of this worker's.
        self.counts = [mx.nd.zeros(1)]
        # MXNet pickles the optimizer, and has the server's process make it again.
        store.set_optimizer(Counting(optimizer, first + self.counter))
        for key, value in enumerate((*values, self.counts[0])):
            super().broadcast(key, value, None)

    def set_optimizer(self, optimizer: Any) -> None:
        """Nothing: the server has it."""

    def broadcast(self, key: int, value: Any, out: Any, priority: int = 0) -> None:
        """Nothing: the server has it."""

    def pushpull(self, key: int, value: Any, out: Any = None, priority: int = 0) -> None:
        if key == 0:
            self.counts.append(mx.nd.zeros(1))
            super().pushpull(self.counter, mx.nd.ones(1), self.counts[-1], priority)
        super().pushpull(key, value, out, priority)


class Counting(mx.optimizer.Optimizer):
    """An optimizer on the server, and a number that each push raises by what was pushed."""

    def __init__(self, optimizer: mx.optimizer.Optimizer, counter: int) -> None:
        super().__init__()
        self.optimizer, self.counter = optimizer, counter

    def create_state_multi_precision(self, index: int, weight: Any) -> Any:
        if index == self.counter:
            return None
        return self.optimizer.create_state_multi_precision(index, weight)

    def update_multi_precision(self, index: int, weight: Any, grad: Any, state: Any) -> None:
        if index == self.counter:
            weight += grad
        else:
            self.optimizer.update_multi_precision(index, weight, grad, state)


class ServerTrainer(gluon.Trainer):
    """gluon's Trainer where the server takes a step at each push: workers reduce nothing.

    MXNet lets the server's answer lie in the memory of the gradients too. Copies of them take time, so only
    those in float64 are kept, for proofs.
    """

    def __init__(self, parameters: Any, *arguments: Any, **options: Any) -> None:
        super().__init__(parameters, *arguments, **options)
        self.pushed: dict[Any, Any] = dict.fromkeys(parameters)

    def step(self, batch_size: int, ignore_stale_grad: bool = False) -> None:
        for each in self.pushed:
            if np.dtype(each.dtype) == np.float64:
                self.pushed[each] = each.grad().copy()
        mx.nd.waitall()
        super().step(batch_size, ignore_stale_grad)

    def allreduce_grads(self) -> None:
        """Nothing: gradients stay the worker's own, and may be clipped."""

    def update(self, batch_size: int, ignore_stale_grad: bool = False) -> None:
        self.step(batch_size, ignore_stale_grad)

    def set_learning_rate(self, lr: float) -> None:
        if lr != self.learning_rate:
            raise UnsupportedError(
                "strategy 'dist_async' keeps one learning rate, for MXNet's server cannot be given another; "
                "leave out the workload's schedule"
            )


class KVStoreSession(StrategySession):
    """``distribute`` takes (parameters, optimizer) and returns a gluon Trainer.

    The server sums the gradients, and every worker updates its own copy of the parameters: an
    optimizer on the server, MXNet's other way, could not take a new learning rate. The sum over
    all samples is divided by their number, whatever shares the workers have.
    """

    make = gluon.Trainer

    def __init__(self, rank: int, workers: int, kind: str = "dist_sync") -> None:
        self.rank, self.workers = rank, workers
        self.store = mx.kvstore.create(kind)
        self.stores: list[ModelStore] = []
        self.keys = 0

    def distribute(self, native: Any) -> Any:
        parameters, optimizer = native
        store = self.share(parameters, optimizer)
        self.stores.append(store)
        self.keys += len(parameters) + 1
        self.optimizer = optimizer
        self.trainer = self.make(
            parameters, optimizer, kvstore=store, update_on_kvstore=self.make is ServerTrainer
        )
        return self.trainer

    def share(self, parameters: Any, optimizer: Any) -> ModelStore:
        """A model's share of the store."""
        optimizer.rescale_grad /= self.workers
        return ModelStore(self.store, self.keys)

    def gradient_after_reduction(self, native: Any) -> np.ndarray:
        return native.grad().asnumpy() * self.optimizer.rescale_grad

    def leave(self) -> None:
        """The last to let go of the store waits for its peers and ends server and scheduler."""
        for store in self.stores:
            store.store = None
        self.store = None


class AsyncSession(KVStoreSession):
    """The server takes a step at each worker's gradients, and answers with the weights after it."""

    make = ServerTrainer

    def __init__(self, rank: int, workers: int) -> None:
        super().__init__(rank, workers, "dist_async")

    def share(self, parameters: Any, optimizer: Any) -> ModelStore:
        # By the store's keys: what gluon's parameters say themselves does not reach the server.
        decays = {self.keys + key: each.wd_mult for key, each in enumerate(parameters)}
        optimizer.set_wd_mult(decays)
        values = [each.list_data()[0] for each in parameters]
        return ServerStore(self.store, self.keys, optimizer, values)

    def gradient_after_reduction(self, native: Any) -> np.ndarray:
        part = native if isinstance(native, Part) else Part(native)
        pushed = self.trainer.pushed[part.parameter]
        if pushed is None:
            raise UnsupportedError("gradients are kept in float64 alone")
        return part.view(pushed).asnumpy() * self.optimizer.rescale_grad

    def staleness(self) -> list[int]:
        counts = [int(each.asscalar()) for each in self.stores[-1].counts]
        return [after - before - 1 for before, after in pairwise(counts)]


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
