"""dlb-chainer's adapter. Its methods import Chainer; loading it does not."""

from __future__ import annotations

import sysconfig
from pathlib import Path

from dlb_chainer.registry import LAYERS
from dlb_worker.adapter import Adapter, Strategy, lazy_method
from dlb_worker.contract import CASES, LaunchPlan, PlanRequest, Process
from dlb_worker.errors import UnsupportedError


class ChainerMN(Strategy):
    """ChainerMN: https://docs.chainer.org/en/stable/chainermn/index.html."""

    name = "chainermn"
    title = "ChainerMN"
    frameworks = ("chainer",)
    synchronous = True
    backends = ("mpi",)
    cases = tuple(case for case in CASES if case != "global_statistics")
    join = lazy_method("dlb_chainer.strategy", "ChainerMNSession")

    def plan(self, request: PlanRequest) -> LaunchPlan:
        """One process for each worker, started by this environment's own mpiexec, on this machine.

        ``-launcher fork`` and ``-rmk user`` keep it from ssh and from a batch system it may be in;
        ``-bind-to none`` leaves the placing of threads to the operating system, as without MPI.
        """
        mpiexec = Path(sysconfig.get_path("scripts")) / "mpiexec"
        if not mpiexec.exists():
            raise UnsupportedError(
                f"there is no {mpiexec}; ChainerMN needs the mpich package: pip install mpich"
            )
        options = ["-launcher", "fork", "-rmk", "user", "-bind-to", "none", "-localhost"]
        return LaunchPlan(
            tuple(Process("worker", rank) for rank in range(request.workers)),
            launcher=(str(mpiexec), *options, request.host, "-n", str(request.workers)),
            rank_variables=("PMI_RANK",),
        )


class ChainerAdapter(Adapter):
    """Chainer."""

    name = "chainer"
    title = "Chainer"
    distribution = "dlb-chainer"
    framework = ("chainer",)
    contract = (2, 1)
    layers = LAYERS
    optimizers = {
        "sgd": "native: SGD, MomentumSGD, WeightDecay; the velocity, which Chainer keeps times the "
        "learning rate, is scaled when the rate changes; Nesterov by an update rule of our own, "
        "since NesterovAG puts the new velocity where its formula has the old",
        "adam": "native; its epsilon is set before each update to what it is after the bias "
        "correction",
        "adamw": "native, as adam; Chainer's weight_decay_rate is set to the decay times the learning rate",
        "rmsprop": "native; with momentum, composed of array operations",
        "adagrad": "native with epsilon outside, its sums filled at the start; with epsilon inside, "
        "composed of array operations",
        "adadelta": "composed of array operations: Chainer's has no learning rate",
        "adamax": "composed of array operations: Chainer has none",
    }
    losses = {
        "softmax_cross_entropy": "native; without one label, averaged after it; "
        "with smoothed labels, composed of functions",
        "binary_cross_entropy": "composed of functions: Chainer's reads integers",
        "squared_error": "native",
        "absolute_error": "native",
        "huber": "native",
        "ctc": "composed of the forward variables: Chainer's own loses large logits",
    }
    features = (
        "accumulate",
        "amsgrad",
        "augmentation",
        "class_weights",
        "clip_norm",
        "clip_value",
        "clip_variable_norm",
        "dilated_max_pool",
        "export",
        "export_user_models",
        "ignore_index",
        "label_smoothing",
        "losses_of_maps",
        "masks",
        "repeatable_dropout",
        "shared_layers",
        "three_axes",
        "tied_weights",
        "unequal_shares",
        "user_models",
        "weight_decay_on",
    )
    devices = ("cpu", "cuda")
    exporter = "onnx_chainer.export"
    strategies = (ChainerMN(),)

    start = lazy_method("dlb_chainer.framework", "start")
    clock = lazy_method("dlb_chainer.framework", "clock")
    peak_work = lazy_method("dlb_chainer.framework", "peak_work")
    build_model = lazy_method("dlb_chainer.model", "ChainerModel")
    load_data = lazy_method("dlb_chainer.data", "load")
    export_onnx = lazy_method("dlb_chainer.export", "export")
    load_user_model = lazy_method("dlb_chainer.user_model", "UserLink")


adapter = ChainerAdapter()
