"""DistributedDataParallel: https://docs.pytorch.org/docs/stable/notes/ddp.html."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from dlb_worker.native import StrategySession

#: Longer than the supervisor waits for a dead or stuck peer, so that it is the one to decide.
TIMEOUT = timedelta(minutes=10)


class DDPSession(StrategySession):
    """``distribute`` takes (module, optimizer) and returns (wrapped module, optimizer).

    DistributedDataParallel averages gradients over workers; each has an equal share of the global
    batch, so the mean of their means is the global mean.
    """

    def __init__(self, rank: int, workers: int) -> None:
        self.rank, self.workers = rank, workers
        backend = os.environ["DLB_TORCH_BACKEND"]
        if backend == "nccl":
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        dist.init_process_group(
            backend, init_method="env://", rank=rank, world_size=workers, timeout=TIMEOUT
        )

    def distribute(self, native: Any) -> Any:
        module, optimizer = native
        return DistributedDataParallel(module), optimizer

    def leave(self) -> None:
        dist.destroy_process_group()
