"""Synchronous data parallelism: rank 0 averages every worker's gradients and sends the mean back."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb_worker.native import StrategySession

Array = npt.NDArray[Any]
#: A peer that never comes is the supervisor's to notice; this only bounds the attempts.
JOIN_SECONDS = 600.0


class Averaging(StrategySession):
    """``distribute`` takes a function from a batch to (loss, gradients by name), and gives one
    whose gradients are the mean over workers. The loss stays each worker's own."""

    def __init__(self, rank: int, workers: int) -> None:
        self.rank, self.workers = rank, workers
        host, _, port = os.environ["DLB_EXAMPLE_MEETING"].rpartition(":")
        if rank == 0:
            with socket.create_server((host, int(port)), backlog=workers) as listener:
                listener.settimeout(JOIN_SECONDS)
                self.peers = [listener.accept()[0] for _ in range(workers - 1)]
        else:
            self.peers = [reach(host, int(port))]
        for peer in self.peers:
            peer.settimeout(None)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def distribute(self, native: Callable[..., Any]) -> Callable[..., Any]:
        def averaged(inputs: Array, labels: Array) -> Any:
            loss, gradients = native(inputs, labels)
            flat = self.mean(np.concatenate([one.ravel() for one in gradients.values()]))
            ends = np.cumsum([one.size for one in gradients.values()])[:-1]
            parts = np.split(flat, ends)
            self.last = {
                name: part.reshape(gradients[name].shape) for name, part in zip(gradients, parts)
            }
            return loss, self.last

        return averaged

    def mean(self, own: Array) -> Array:
        """The mean of one vector over workers, the same bits for all."""
        if self.rank > 0:
            self.peers[0].sendall(own.tobytes())
            return receive(self.peers[0], own)
        mean = sum((receive(peer, own) for peer in self.peers), own) / self.workers
        for peer in self.peers:
            peer.sendall(mean.tobytes())
        return mean

    def gradient_after_reduction(self, native: str) -> Array:
        return self.last[native]

    def leave(self) -> None:
        for peer in self.peers:
            peer.close()


def reach(host: str, port: int) -> socket.socket:
    """Connect to rank 0, which may not listen yet."""
    deadline = time.monotonic() + JOIN_SECONDS
    while True:
        try:
            return socket.create_connection((host, port))
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def receive(peer: socket.socket, like: Array) -> Array:
    """A vector of the size and type of another."""
    content = bytearray(like.nbytes)
    view = memoryview(content)
    while view:
        count = peer.recv_into(view)
        if not count:
            raise ConnectionError("a peer has gone")
        view = view[count:]
    return np.frombuffer(content, like.dtype)
