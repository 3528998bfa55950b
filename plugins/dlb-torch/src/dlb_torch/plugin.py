"""dlb-torch's adapter. torch is imported inside its methods, never when this is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dlb_torch.registry import LAYERS
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

if TYPE_CHECKING:
    from dlb_torch.model import TorchModel
    from dlb_torch.strategy import DDPSession
    from dlb_torch.user_model import UserModule


class DDP(Strategy):
    """DistributedDataParallel: https://docs.pytorch.org/docs/stable/notes/ddp.html."""

    name = "ddp"
    title = "DistributedDataParallel"
    frameworks = ("torch",)
    synchronous = True
    backends = ("gloo", "nccl")
    devices = ("cpu", "cuda")

    def plan(self, request: PlanRequest) -> LaunchPlan:
        """One process for each worker; they meet at a port of rank 0."""
        meeting = {
            "MASTER_ADDR": request.host,
            "MASTER_PORT": str(request.ports[0]),
            "DLB_TORCH_BACKEND": "nccl" if request.device == "cuda" else "gloo",
        }
        ranks = range(request.workers)
        return LaunchPlan(
            tuple(Process("worker", rank, {**meeting, "LOCAL_RANK": str(rank)}) for rank in ranks)
        )

    def join(self, rank: int, workers: int) -> DDPSession:
        from dlb_torch.strategy import DDPSession

        return DDPSession(rank, workers)


class TorchAdapter(Adapter):
    """PyTorch."""

    name = "torch"
    title = "PyTorch"
    distribution = "dlb-torch"
    framework = ("torch",)
    contract = (2, 0)
    layers = LAYERS
    optimizers = {"sgd": "native", "adam": "native"}
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
    exporter = "torch.onnx.export(dynamo=True)"
    variants = {"compile": ("no", "inductor"), "layout": ("contiguous", "channels_last")}
    strategies = (DDP(),)

    def start(self, request: StartRequest) -> FrameworkFacts:
        from dlb_torch.framework import start

        return start(request)

    def build_model(self, request: BuildRequest, **variant: str) -> TorchModel:
        from dlb_torch.model import TorchModel

        return TorchModel(request, **variant)

    def load_data(self, request: DataRequest) -> Batches:
        from dlb_torch.data import load

        return load(request)

    def clock(self, device: str) -> Clock:
        from dlb_torch.framework import clock

        return clock(device)

    def export_onnx(self, model: TorchModel | UserModule, path: Path) -> str:
        from dlb_torch.export import export

        return export(model, path)

    def load_user_model(self, request: UserModelRequest) -> UserModule:
        from dlb_torch.user_model import UserModule

        return UserModule(request)


adapter = TorchAdapter()
