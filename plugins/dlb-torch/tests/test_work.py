"""Operations that dlb counts on the description, next to those that torch counts while it computes."""

from __future__ import annotations

import msgspec
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from dlb.catalogue import load_workload
from dlb_graph import workload as W
from dlb_graph.workload.initial import initial_weights
from dlb_graph.workload.lower import lower
from dlb_graph.workload.work import step_work
from dlb_torch.losses import mean_loss
from dlb_torch.model import TorchModel
from dlb_worker.contract import BuildRequest

BATCH = 2
#: Convolutions with groups and strides, linear layers with and without a time axis, a tied weight, recurrences,
#: attention with and without a mask, branches.
WORKLOADS = (
    "lenet5",
    "mobilenet-v1",
    "resnet-56",
    "googlenet",
    "ptb-lstm",
    "transformer",
    "gpt-small",
    "vit-tiny",
)
#: torch 2.13 counts the backward pass of a convolution as if it had no groups.
OTHERWISE = ("mobilenet-v1",)


@pytest.mark.parametrize("name", WORKLOADS)
def test_operations_are_those_that_torch_counts(name: str) -> None:
    compare(load_workload(name))


@pytest.mark.parametrize(
    "layer",
    [
        W.GRU(hidden=9, linear_before_reset=True),
        W.GRU(hidden=9, linear_before_reset=False),
        W.RNN(hidden=9),
    ],
    ids=repr,
)
def test_operations_of_recurrences_are_those_that_torch_counts(layer: W.Layer) -> None:
    described = load_workload("ptb-lstm")
    layers = (W.Embedding(entries=20, features=8), layer, layer, W.Linear(out_features=20))
    nodes = tuple(W.Node(name=f"n{n}", layer=each) for n, each in enumerate(layers))
    model = W.Model(input=W.Input(shape=(6,), kind="index"), nodes=nodes)
    compare(msgspec.structs.replace(described, model=model))


def compare(workload: W.Workload) -> None:
    request = BuildRequest(
        workload=lower(workload),
        weights=initial_weights(workload.model, 0),
        dtype="float32",
        device="cpu",
        batch_size=BATCH,
    )
    model = TorchModel(request, compile="no", layout="contiguous")
    shape = (BATCH, *workload.model.input.shape)
    whole = workload.model.input.kind == "index"
    inputs = torch.zeros(shape, dtype=torch.int64) if whole else torch.randn(shape)
    # Fused kernels of recurrences are not counted, and those of attention compute a product twice.
    with torch.backends.mkldnn.flags(enabled=False), sdpa_kernel(SDPBackend.MATH):
        with FlopCounterMode(display=False) as forward:
            logits = model.run(inputs)
        labels = torch.zeros(logits.shape[:-1], dtype=torch.int64)
        loss = mean_loss(logits, labels, request.workload.loss)
        with FlopCounterMode(display=False) as backward:
            loss.backward()
    counted = step_work(workload, BATCH)
    assert counted.forward.operations == forward.get_total_flops()
    if workload.name not in OTHERWISE:
        assert counted.backward.operations == backward.get_total_flops()
