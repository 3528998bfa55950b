"""Operations that dlb counts on the description, next to those that torch counts while it computes."""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from dlb.catalogue import load_workload
from dlb.measure.work import step_work
from dlb.workload.initial import initial_weights
from dlb.workload.lower import lower
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
    workload = load_workload(name)
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
    if name not in OTHERWISE:
        assert counted.backward.operations == backward.get_total_flops()
