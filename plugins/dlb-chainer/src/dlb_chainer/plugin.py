"""dlb-chainer's adapter. Chainer is imported inside its methods, never when this is loaded."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

from dlb_chainer.registry import LAYERS
from dlb_worker import Adapter, Strategy
from dlb_worker.contract import (
    Batches,
    BuildRequest,
    Clock,
    DataRequest,
    FrameworkFacts,
    LaunchPlan,
    PlanRequest,
    Process,
    StartRequest,
    UserModelRequest,
)
from dlb_worker.errors import UnsupportedError

if TYPE_CHECKING:
    from dlb_chainer.model import ChainerModel
    from dlb_chainer.strategy import ChainerMNSession
    from dlb_chainer.user_model import UserLink


class ChainerMN(Strategy):
    """ChainerMN: https://docs.chainer.org/en/stable/chainermn/index.html."""

    name = "chainermn"
    title = "ChainerMN"
    frameworks = ("chainer",)
    synchronous = True
    backends = ("mpi",)

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

    def join(self, rank: int, workers: int) -> ChainerMNSession:
        from dlb_chainer.strategy import ChainerMNSession

        return ChainerMNSession(rank, workers)


class ChainerAdapter(Adapter):
    """Chainer."""

    name = "chainer"
    title = "Chainer"
    distribution = "dlb-chainer"
    framework = ("chainer",)
    contract = (2, 0)
    layers = LAYERS
    optimizers = {
        "sgd": "native: SGD, MomentumSGD, WeightDecay; the velocity, which Chainer keeps times the "
        "learning rate, is scaled when the rate changes; Nesterov by an update rule of our own, "
        "since NesterovAG puts the new velocity where its formula has the old",
        "adam": "native; its epsilon is set before each update to what it is after the bias "
        "correction",
    }
    features = (
        "augmentation",
        "clip_norm",
        "export",
        "export_user_models",
        "label_smoothing",
        "masks",
        "tied_weights",
        "user_models",
    )
    devices = ("cpu", "cuda")
    exporter = "onnx_chainer.export"
    strategies = (ChainerMN(),)

    def start(self, request: StartRequest) -> FrameworkFacts:
        from dlb_chainer.framework import start

        return start(request)

    def build_model(self, request: BuildRequest, **variant: str) -> ChainerModel:
        from dlb_chainer.model import ChainerModel

        return ChainerModel(request, **variant)

    def load_data(self, request: DataRequest) -> Batches:
        from dlb_chainer.data import load

        return load(request)

    def clock(self, device: str) -> Clock:
        from dlb_chainer.framework import clock

        return clock(device)

    def export_onnx(self, model: ChainerModel | UserLink, path: Path) -> str:
        from dlb_chainer.export import export

        return export(model, path)

    def load_user_model(self, request: UserModelRequest) -> UserLink:
        from dlb_chainer.user_model import UserLink

        return UserLink(request)


adapter = ChainerAdapter()
