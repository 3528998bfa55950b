"""ChainerMN, data parallel: https://docs.chainer.org/en/stable/chainermn/index.html."""

from __future__ import annotations

from typing import Any

# Importing it initialises MPI.
import chainermn
from mpi4py import MPI

from dlb_worker.errors import UnsupportedError
from dlb_worker.native import StrategySession


class ChainerMNSession(StrategySession):
    """``distribute`` takes (chain, optimizer set up on it) and returns (chain, wrapped optimizer).

    The communicator averages gradients over workers; each worker has an equal share of the global batch,
    so the mean of their means is the global mean.
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

    def distribute(self, native: Any) -> Any:
        network, optimizer = native
        optimizer = chainermn.create_multi_node_optimizer(optimizer, self.communicator)
        # The first update only gives every worker the weights of rank 0.
        optimizer.update()
        return network, optimizer

    def leave(self) -> None:
        self.communicator.finalize()
        MPI.Finalize()
