"""The adapter. What it needs is imported inside its methods: this module is loaded at every command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dlb_example.registry import LAYERS
from dlb_worker import Adapter, Strategy, UnsupportedError
from dlb_worker.batches import from_memory, prefetched
from dlb_worker.contract import (
    Batches,
    BuildRequest,
    DataRequest,
    FrameworkFacts,
    LaunchPlan,
    PlanRequest,
    Process,
    StartRequest,
    UserModelRequest,
)

if TYPE_CHECKING:
    from dlb_example.model import ExampleModel
    from dlb_example.strategy import Averaging
    from dlb_example.user_model import UserNet


class ExampleSync(Strategy):
    """Rank 0 averages every worker's gradients."""

    name = "example_sync"
    title = "gradients averaged by rank 0 over TCP"
    frameworks = ("example",)
    synchronous = True
    backends = ("tcp",)
    cases = ("equal_shares", "unequal_shares", "clip_binds", "clip_idle", "dropout")

    def plan(self, request: PlanRequest) -> LaunchPlan:
        meeting = {"DLB_EXAMPLE_MEETING": f"{request.host}:{request.ports[0]}"}
        ranks = range(request.workers)
        return LaunchPlan(tuple(Process("worker", rank, meeting) for rank in ranks))

    def join(self, rank: int, workers: int) -> Averaging:
        from dlb_example.strategy import Averaging

        return Averaging(rank, workers)


class ExampleAdapter(Adapter):
    """NumPy as a framework."""

    name = "example"
    title = "NumPy"
    distribution = "dlb-example"
    framework = ("numpy",)
    contract = (2, 1)
    layers = LAYERS
    optimizers = {"sgd": "composed"}
    losses = dict.fromkeys(
        (
            "softmax_cross_entropy",
            "binary_cross_entropy",
            "squared_error",
            "absolute_error",
            "huber",
        ),
        "composed",
    )
    features = (
        "augmentation",
        "clip_norm",
        "export",
        "label_smoothing",
        "masks",
        "repeatable_dropout",
        "unequal_shares",
        "user_models",
    )
    exporter = "onnx.helper"
    variants = {"layout": ("rows", "columns"), "precision": ("full", "bfloat16")}
    strategies: tuple[Strategy, ...] = (ExampleSync(),)

    def start(self, request: StartRequest) -> FrameworkFacts:
        if request.device != "cpu":
            raise UnsupportedError(f"NumPy has no device '{request.device}'; choose --device cpu")
        import numpy as np
        import threadpoolctl

        threadpoolctl.threadpool_limits(request.threads)
        pools = threadpoolctl.threadpool_info()
        return FrameworkFacts(
            version=np.__version__,
            threads=max((pool["num_threads"] for pool in pools), default=1),
            device="cpu",
            build={pool["internal_api"]: str(pool["version"]) for pool in pools},
        )

    def build_model(self, request: BuildRequest, **variant: str) -> ExampleModel:
        from dlb_example.model import ExampleModel

        return ExampleModel(request, **variant)

    def load_data(self, request: DataRequest) -> Batches:
        return from_memory(request) if request.input_mode == "memory" else prefetched(request)

    def export_onnx(self, model: ExampleModel, path: Path) -> str:
        from dlb_example.export import export

        return export(model, path)

    def load_user_model(self, request: UserModelRequest) -> UserNet:
        from dlb_example.user_model import UserNet

        return UserNet(request)


adapter = ExampleAdapter()
