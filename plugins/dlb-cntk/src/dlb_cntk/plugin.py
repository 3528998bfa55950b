"""dlb-cntk's adapter. CNTK is imported inside its methods, never when this is loaded."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlb_cntk.registry import LAYERS
from dlb_worker import Adapter
from dlb_worker.contract import Batches, BuildRequest, DataRequest, FrameworkFacts, StartRequest

if TYPE_CHECKING:
    from dlb_cntk.model import CntkModel


class CntkAdapter(Adapter):
    """Microsoft Cognitive Toolkit."""

    name = "cntk"
    title = "CNTK"
    distribution = "dlb-cntk"
    framework = ("cntk",)
    contract = (2, 0)
    layers = LAYERS
    optimizers = {
        "sgd": "native: the velocity, which has the rate in it, is scaled when the rate changes; "
        "with clip_norm composed as a universal learner",
        "adam": "composed as a universal learner: CNTK's own adds epsilon before the correction",
    }
    features = ("augmentation", "clip_norm", "export", "label_smoothing", "masks", "tied_weights")
    exporter = "Function.save(format=ModelFormat.ONNX)"

    def start(self, request: StartRequest) -> FrameworkFacts:
        from dlb_cntk.framework import start

        return start(request)

    def build_model(self, request: BuildRequest, **variant: str) -> "CntkModel":
        from dlb_cntk.model import CntkModel

        return CntkModel(request)

    def load_data(self, request: DataRequest) -> Batches:
        from dlb_cntk.data import load

        return load(request)

    def export_onnx(self, model: Any, path: Path) -> str:
        from dlb_cntk.export import export

        return export(model, path)


adapter = CntkAdapter()
