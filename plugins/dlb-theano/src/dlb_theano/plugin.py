"""dlb-theano's adapter. Theano is imported inside its methods, never when this is loaded."""

from pathlib import Path
from typing import TYPE_CHECKING

from dlb_theano.layers import LAYERS
from dlb_worker import Adapter
from dlb_worker.batches import from_memory, prefetched
from dlb_worker.contract import (
    Batches,
    BuildRequest,
    DataRequest,
    FrameworkFacts,
    StartRequest,
    UserModelRequest,
)

if TYPE_CHECKING:
    from dlb_theano.model import TheanoModel
    from dlb_theano.user_model import UserGraph


class TheanoAdapter(Adapter):
    """Theano."""

    name = "theano"
    title = "Theano"
    distribution = "dlb-theano"
    framework = ("Theano",)
    contract = (2, 0)
    layers = LAYERS
    optimizers = {
        "sgd": "composed: Theano has no optimizers; updates of theano.function",
        "adam": "composed, as sgd; bias corrections in float64",
    }
    features = (
        "augmentation",
        "clip_norm",
        "export",
        "label_smoothing",
        "masks",
        "tied_weights",
        "user_models",
    )
    exporter = "onnx.helper, by the adapter: Theano has no exporter"

    def start(self, request: StartRequest) -> FrameworkFacts:
        from dlb_theano.framework import start

        return start(request)

    def build_model(self, request: BuildRequest, **variant: str) -> "TheanoModel":
        from dlb_theano.model import TheanoModel

        return TheanoModel(request)

    def load_data(self, request: DataRequest) -> Batches:
        """NumPy arrays, which functions on a CPU read in place; Theano has no input pipeline."""
        return from_memory(request) if request.input_mode == "memory" else prefetched(request)

    def export_onnx(self, model: "TheanoModel", path: Path) -> str:
        from dlb_theano.export import export

        return export(model, path)

    def load_user_model(self, request: UserModelRequest) -> "UserGraph":
        from dlb_theano.user_model import UserGraph

        return UserGraph(request)


adapter = TheanoAdapter()
