"""dlb-theano's adapter. Its methods import Theano; loading it does not."""

from dlb_theano.registry import LAYERS
from dlb_worker.adapter import Adapter, lazy_method
from dlb_worker.batches import from_memory, prefetched
from dlb_worker.contract import Batches, DataRequest


class TheanoAdapter(Adapter):
    """Theano."""

    name = "theano"
    title = "Theano"
    distribution = "dlb-theano"
    framework = ("Theano",)
    contract = (2, 1)
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
        "repeatable_dropout",
        "tied_weights",
        "user_models",
    )
    exporter = "onnx.helper, by the adapter: Theano has no exporter"

    start = lazy_method("dlb_theano.framework", "start")
    build_model = lazy_method("dlb_theano.model", "TheanoModel")
    export_onnx = lazy_method("dlb_theano.export", "export")
    load_user_model = lazy_method("dlb_theano.user_model", "UserGraph")

    def load_data(self, request: DataRequest) -> Batches:
        """NumPy arrays, which functions on a CPU read in place; Theano has no input pipeline."""
        return from_memory(request) if request.input_mode == "memory" else prefetched(request)


adapter = TheanoAdapter()
