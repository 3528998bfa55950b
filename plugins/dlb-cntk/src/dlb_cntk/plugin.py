"""dlb-cntk's adapter. Its methods import CNTK; loading it does not."""

from dlb_cntk.registry import LAYERS
from dlb_worker.adapter import Adapter, lazy_method


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
        "with clip_norm composed as a universal learner",
        "adam": "composed as a universal learner: CNTK's own adds epsilon before the correction",
    }
    features = ("augmentation", "clip_norm", "export", "label_smoothing", "masks", "tied_weights")
    exporter = "Function.save(format=ModelFormat.ONNX)"

    start = lazy_method("dlb_cntk.framework", "start")
    build_model = lazy_method("dlb_cntk.model", "CntkModel")
    load_data = lazy_method("dlb_cntk.data", "load")
    export_onnx = lazy_method("dlb_cntk.export", "export")


adapter = CntkAdapter()
