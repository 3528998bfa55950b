"""ChainerMN, data parallel: https://docs.chainer.org/en/stable/chainermn/index.html."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chainer

# Importing it initialises MPI.
import chainermn
import numpy as np
from mpi4py import MPI

from dlb_chainer.framework import host_copy
from dlb_chainer.modules import Part
from dlb_worker.errors import UnsupportedError
from dlb_worker.native import StrategySession


class ChainerMNSession(StrategySession):
    """``distribute`` takes (chain, optimizer set up on it) and returns (chain, wrapped optimizer).

    The communicator averages gradients over workers. The model multiplies its loss by
    ``BuildRequest.share``, so the mean of the workers' means is the global mean.
    """

    def __init__(self, rank: int, workers: int) -> None:
        self.rank, self.workers = rank, workers
        self.communicator = chainermn.create_communicator("naive")
        place = (self.communicator.rank, self.communicator.size)
        if place != (rank, workers):
            raise UnsupportedError(
                f"MPI says rank {place[0]} of {place[1]}, and this is rank {rank} of {workers}; "
                "start the workers together, through the launcher of the plan"
            )
        MPI.COMM_WORLD.Barrier()  # from here on, all have mapped what they share
        if rank == 0:
            for path in shared_memory():
                path.unlink()

    def distribute(self, native: Any) -> Any:
        network, optimizer = native
        self.reduced: dict[int, np.ndarray] | None = None
        if next(network.params()).dtype == np.float64:  # a model of the proof: copies take time
            optimizer.add_hook(self.keep, "dlb_reduced", timing="pre")
            optimizer._hookable._pre_update_hooks.move_to_end("dlb_reduced", last=False)
        optimizer = chainermn.create_multi_node_optimizer(optimizer, self.communicator)
        # The first update only gives every worker the weights of rank 0.
        optimizer.update()
        return network, optimizer

    def keep(self, optimizer: chainer.Optimizer) -> None:
        """A hook between the mean over workers and what clips and updates: keep the gradients."""
        found = ((each, each.grad) for each in optimizer.target.params())
        self.reduced = {id(each): host_copy(grad) for each, grad in found if grad is not None}

    def gradient_after_reduction(self, native: Any) -> np.ndarray:
        whole, rows = (native.whole, native.rows) if isinstance(native, Part) else (native, ...)
        if self.reduced is None:
            raise UnsupportedError("gradients after the reduction are kept in float64 alone")
        found = self.reduced.get(id(whole))
        array: np.ndarray = np.zeros_like(host_copy(whole.array)) if found is None else found
        return array[rows]

    def leave(self) -> None:
        self.communicator.finalize()
        MPI.Finalize()


def shared_memory() -> Iterator[Path]:
    """The segments of MPICH that this process has mapped, as far as they have names.

    A process that is killed would leave its segment in memory, for good. Without a name it goes with the last
    process that has mapped it.
    """
    maps = Path("/proc/self/maps")
    lines = maps.read_text(encoding="utf-8").splitlines() if maps.exists() else []
    paths = {Path(line.split(maxsplit=5)[-1]) for line in lines if "/dev/shm/mpich_shm_" in line}
    yield from (path for path in sorted(paths) if path.exists())
