"""CNTK's data-parallel learner, over MPI:
https://learn.microsoft.com/cognitive-toolkit/multiple-gpus-and-machines.
"""

from pathlib import Path
from typing import Any, Dict, Sequence, Set

import cntk as C
import numpy as np
from cntk.train import distributed

from dlb_worker.errors import UnsupportedError
from dlb_worker.native import StrategySession


class DataParallelSession(StrategySession):
    """``distribute`` takes a learner of CNTK, and returns the one that a trainer takes.

    Each worker's gradients are sums over its samples. CNTK adds them, and divides by the samples of all. So
    shares that are unequal need no factor.
    """

    def __init__(self, rank: int, workers: int) -> None:
        self.rank, self.workers = rank, workers
        # The first question initialises MPI.
        place = (distributed.Communicator.rank(), distributed.Communicator.num_workers())
        if place != (rank, workers):
            raise UnsupportedError(
                f"MPI says rank {place[0]} of {place[1]}, and this is rank {rank} of {workers}; "
                "start the workers together, through the launcher of the plan"
            )
        distributed.mpi_communicator().barrier()  # from here on, all have mapped what they share
        if rank == 0:
            for path in shared_memory():
                path.unlink()

    def distribute(self, native: Any) -> Any:
        self.reduced: Dict[str, np.ndarray] = {}
        if native.parameters[0].dtype == np.float64:  # a model of the proof: copies take time
            native = KeepingLearner(native, self.reduced)
        return distributed.data_parallel_distributed_learner(native)

    def gradient_after_reduction(self, native: Any) -> np.ndarray:
        if native.uid not in self.reduced:
            raise UnsupportedError("gradients after the reduction are kept in float64 alone")
        return self.reduced[native.uid]

    def leave(self) -> None:
        distributed.Communicator.finalize()


class KeepingLearner(C.learners.UserLearner):
    """Another learner, and a copy of the mean gradients that it got last, by the parameter's uid."""

    def __init__(self, learner: Any, kept: Dict[str, np.ndarray]) -> None:
        # It is not asked for its own rate.
        super().__init__(learner.parameters, C.learning_parameter_schedule(1.0), as_numpy=False)
        self.learner, self.kept = learner, kept

    def update(self, sums: Any, samples: int, sweep_end: bool) -> bool:
        self.kept.update({each.uid: array.asarray() / samples for each, array in sums.items()})
        return bool(self.learner.update(sums, samples, sweep_end))


def shared_memory() -> "Sequence[Path]":
    """The segments of Open MPI that this process has mapped, as far as they have names.

    A process that is killed would leave its segment in memory, for good. Without a name it goes with the last
    process that has mapped it.
    """
    maps = Path("/proc/self/maps")
    lines = maps.read_text(encoding="utf-8").splitlines() if maps.exists() else []
    paths: Set[Path] = {Path(line.split()[-1]) for line in lines if "/dev/shm/vader_" in line}
    return [path for path in sorted(paths) if path.exists()]
