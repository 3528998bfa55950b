"""dlb-cntk's adapter. Its methods import CNTK; loading it does not."""

import os
import shutil

from dlb_cntk.registry import LAYERS
from dlb_worker.adapter import Adapter, Strategy, lazy_method
from dlb_worker.contract import LaunchPlan, PlanRequest, Process
from dlb_worker.errors import UnsupportedError


class DataParallel(Strategy):
    """CNTK's ``data_parallel_distributed_learner``: see :mod:`dlb_cntk.strategy`."""

    name = "data_parallel"
    title = "data_parallel_distributed_learner"
    frameworks = ("cntk",)
    synchronous = True
    backends = ("mpi",)
    cases = (
        "equal_shares",
        "unequal_shares",
        "clip_binds",
        "clip_idle",
        "tied_weights",
        "weight_decay",
        "dropout",
        "adam",
    )
    join = lazy_method("dlb_cntk.strategy", "DataParallelSession")

    def plan(self, request: PlanRequest) -> LaunchPlan:
        """One process for each worker, started by Open MPI's own launcher, on this machine.

        ``plm isolated`` keeps it from ssh and from a batch system it may be in; ``--bind-to none`` leaves the
        placing of threads to the operating system, as without MPI.
        """
        launcher = shutil.which("orterun")
        if launcher is None:
            raise UnsupportedError(
                "there is no orterun, with which Open MPI starts workers; install it "
                "(Debian and Ubuntu: apt-get install openmpi-bin)"
            )
        options = [
            "--mca",
            "plm",
            "isolated",
            "--mca",
            "mpi_yield_when_idle",
            "1",
            "--bind-to",
            "none",
        ]
        if os.geteuid() == 0:  # it refuses root otherwise
            options.append("--allow-run-as-root")
        workers = str(request.workers)
        return LaunchPlan(
            tuple(Process("worker", rank) for rank in range(request.workers)),
            launcher=(launcher, *options, "--host", f"{request.host}:{workers}", "-n", workers),
            rank_variables=("OMPI_COMM_WORLD_RANK",),
        )


class CntkAdapter(Adapter):
    """Microsoft Cognitive Toolkit."""

    name = "cntk"
    title = "CNTK"
    distribution = "dlb-cntk"
    framework = ("cntk",)
    contract = (2, 1)
    layers = LAYERS
    optimizers = {
        "sgd": "native: the velocity, which has the rate in it, is scaled when the rate changes; "
        "with clip_norm, or weight decay of some, composed as a universal learner",
        "adam": "composed as a universal learner: CNTK's own adds epsilon before the correction",
    }
    features = (
        "augmentation",
        "clip_norm",
        "export",
        "label_smoothing",
        "masks",
        "tied_weights",
        "unequal_shares",
        "weight_decay_on",
    )
    exporter = "Function.save(format=ModelFormat.ONNX)"
    strategies = (DataParallel(),)

    start = lazy_method("dlb_cntk.framework", "start")
    build_model = lazy_method("dlb_cntk.model", "CntkModel")
    load_data = lazy_method("dlb_cntk.data", "load")
    export_onnx = lazy_method("dlb_cntk.export", "export")


adapter = CntkAdapter()
