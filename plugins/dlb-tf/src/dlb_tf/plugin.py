"""dlb-tf's adapter. TensorFlow is imported inside its methods, never when this is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from dlb_tf.registry import LAYERS
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
    from dlb_tf.model import TFModel
    from dlb_tf.strategy import MultiWorkerSession
    from dlb_tf.user_model import UserKerasModel


class MultiWorkerMirrored(Strategy):
    """MultiWorkerMirroredStrategy; see :mod:`dlb_tf.strategy`."""

    name = "multi_worker_mirrored"
    title = "MultiWorkerMirroredStrategy"
    frameworks = ("tf",)
    synchronous = True
    backends = ("ring", "nccl")
    devices = ("cpu", "cuda")

    def plan(self, request: PlanRequest) -> LaunchPlan:
        """One process for each worker, with a port of its own that all the others know."""
        workers = [f"{request.host}:{port}" for port in request.ports[: request.workers]]

        def environment(rank: int) -> dict[str, str]:
            task = {"type": "worker", "index": rank}
            config = json.dumps({"cluster": {"worker": workers}, "task": task})
            return {"TF_CONFIG": config, "DLB_TF_RANK": str(rank)}

        ranks = range(request.workers)
        return LaunchPlan(tuple(Process("worker", rank, environment(rank)) for rank in ranks))

    def join(self, rank: int, workers: int) -> MultiWorkerSession:
        from dlb_tf.strategy import MultiWorkerSession

        return MultiWorkerSession(rank, workers)


class TFAdapter(Adapter):
    """TensorFlow, through Keras."""

    name = "tf"
    title = "TensorFlow"
    distribution = "dlb-tf"
    framework = ("tensorflow", "tensorflow-cpu")
    contract = (2, 0)
    layers = LAYERS
    optimizers = {
        "sgd": "native; Keras's velocity is scaled by the learning rate, so it is rescaled when that "
        "changes; coupled weight decay is added to the gradients",
        "adam": "native, with an epsilon that follows the step so that it comes after the bias "
        "correction, and an embedding's gradient summed by row, which Keras forgets before it "
        "squares; coupled weight decay is added to the gradients",
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
    exporter = "tf2onnx.convert.from_function"
    variants = {"compile": ("graph", "xla", "no")}
    strategies = (MultiWorkerMirrored(),)

    def start(self, request: StartRequest) -> FrameworkFacts:
        from dlb_tf.framework import start

        return start(request)

    def build_model(self, request: BuildRequest, **variant: str) -> TFModel:
        from dlb_tf.model import TFModel

        return TFModel(request, **variant)

    def load_data(self, request: DataRequest) -> Batches:
        from dlb_tf.data import load

        return load(request)

    def clock(self, device: str) -> Clock:
        from dlb_tf.framework import clock

        return clock(device)

    def export_onnx(self, model: TFModel | UserKerasModel, path: Path) -> str:
        from dlb_tf.export import export

        return export(model, path)

    def load_user_model(self, request: UserModelRequest) -> UserKerasModel:
        from dlb_tf.user_model import UserKerasModel

        return UserKerasModel(request)


adapter = TFAdapter()
