"""ONNX by torch's own exporter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from dlb_torch.framework import whole
from dlb_torch.model import Network, TorchModel
from dlb_torch.user_model import UserModule
from dlb_worker.onnx_file import write_model
from dlb_worker.user_layers import bound

#: Bytes of a constant that shapes may be computed from, which ONNX's checker has to know.
SMALL = 1024
#: Numbers up to this are 0 to the exporter's rules, which leave an addition of 0 out.
NOTHING = 1e-8


def export(model: TorchModel | UserModule, path: Path) -> str:
    """Write a network in evaluation mode, weights inside.

    The batch axis of a workload's model is free; a user's model has that of its example.
    """
    if isinstance(model, UserModule):
        assert model.example is not None
        natives = model.natives(model.example)
        arguments, named = bound(model.model.forward, natives)
        names = [name or "input" for name in natives]
        return _export(model.model, arguments, path, kwargs=named, input_names=names)
    described = model.workload.model.input
    dtype = model.type if described.kind == "real" else torch.int64
    # A batch of 1 would be taken for a constant.
    sample = torch.zeros(
        (max(2, model.batch_size), *described.shape), dtype=dtype, device=model.device
    )
    return _export(
        _gathered(model),
        (sample,),
        path,
        input_names=["input"],
        output_names=["logits"],
        dynamic_shapes=({0: torch.export.Dim("batch")},),
        optimize=not _adds_little(model),
    )


def _gathered(model: TorchModel) -> nn.Module:
    """The network; where workers hold parts of its parameters, one like it with the whole ones."""
    held, gather = model.network.state_dict(keep_vars=True), whole
    if model.is_pipeline:
        gather = model.module.whole
    elif not any(hasattr(each, "to_local") for each in held.values()):
        return model.network
    plain = Network(model.workload.model, {}).to(model.device, model.type)
    plain.load_state_dict({name: gather(each) for name, each in held.items()})
    return plain


def _adds_little(model: TorchModel) -> bool:
    """Whether a layer adds a number that the exporter's rules would leave out."""
    return any(
        node.kind == "elementwise" and node.function == "affine" and 0 < abs(node.beta) <= NOTHING
        for node in model.workload.model.nodes
    )


def _export(network: nn.Module, samples: tuple[Any, ...], path: Path, **options: Any) -> str:
    network.eval()
    try:
        program = torch.onnx.export(network, samples, dynamo=True, verbose=False, **options)
    finally:
        network.train()
    assert program is not None
    graph = program.model.graph
    weights = {
        name: value.const_value.numpy
        for name, value in graph.initializers.items()
        if value.const_value.nbytes > SMALL
    }
    graph.inputs.extend(graph.initializers.pop(name) for name in weights)
    write_model(path, program.model_proto, weights)
    rules = "" if options.get("optimize", True) else ", optimize=False"
    return f"torch.onnx.export(dynamo=True{rules}) {torch.__version__}"
