"""ONNX by torch's own exporter."""

from __future__ import annotations

from pathlib import Path

import torch

from dlb_torch.model import TorchModel
from dlb_worker.onnx_file import write_model

#: Bytes of a constant that shapes may be computed from, which ONNX's checker has to know.
SMALL = 1024


def export(model: TorchModel, path: Path) -> str:
    """Write the network in evaluation mode, weights inside, the batch axis free."""
    described = model.workload.model.input
    dtype = model.type if described.kind == "real" else torch.int64
    # A batch of 1 would be taken for a constant.
    sample = torch.zeros(
        (max(2, model.batch_size), *described.shape), dtype=dtype, device=model.device
    )
    model.network.eval()
    try:
        program = torch.onnx.export(
            model.network,
            (sample,),
            dynamo=True,
            input_names=["input"],
            output_names=["logits"],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            verbose=False,
        )
    finally:
        model.network.train()
    assert program is not None
    graph = program.model.graph
    weights = {
        name: value.const_value.numpy
        for name, value in graph.initializers.items()
        if value.const_value.nbytes > SMALL
    }
    graph.inputs.extend(graph.initializers.pop(name) for name in weights)
    write_model(path, program.model_proto, weights)
    return f"torch.onnx.export(dynamo=True) {torch.__version__}"
