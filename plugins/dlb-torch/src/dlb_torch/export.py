"""ONNX by torch's own exporter."""

from __future__ import annotations

from pathlib import Path

import torch

from dlb.contract import TrainableModel
from dlb_torch.model import TorchModel


def export(model: TrainableModel, path: Path) -> str:
    """Write the network in evaluation mode, weights inside, the batch axis free."""
    assert isinstance(model, TorchModel)
    described = model.workload.model.input
    dtype = model.dtype if described.kind == "real" else torch.int64
    # A batch of 1 would be taken for a constant.
    sample = torch.zeros(
        (max(2, model.batch_size), *described.shape), dtype=dtype, device=model.device
    )
    model.network.eval()
    try:
        torch.onnx.export(
            model.network,
            (sample,),
            str(path),
            dynamo=True,
            external_data=False,
            input_names=["input"],
            output_names=["logits"],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            verbose=False,
        )
    finally:
        model.network.train()
    return f"torch.onnx.export(dynamo=True) {torch.__version__}"
