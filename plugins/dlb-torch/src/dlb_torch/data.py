"""Batches through torch's DataLoader, or from tensors already on the device."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from dlb.contract import Batches, LoadRequest
from dlb_torch.framework import MEMORY_FORMATS


class Samples(Dataset):
    """Samples in memory; a batch is gathered at once (``__getitems__``), not one by one."""

    def __init__(self, inputs: Tensor, labels: Tensor) -> None:
        self.inputs, self.labels = inputs, labels

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitems__(self, indices: list[int]) -> tuple[Tensor, Tensor]:
        return self.inputs[indices], self.labels[indices]


def load(request: LoadRequest) -> Batches:
    """(inputs, labels) on the device, for each row of the order."""
    device = torch.device(request.device)
    inputs, labels = torch.from_numpy(request.inputs), torch.from_numpy(request.labels)
    if inputs.ndim == 4 and "layout" in request.variant:
        inputs = inputs.to(memory_format=MEMORY_FORMATS[request.variant["layout"]])
    if request.via == "memory":
        return _from_memory(inputs.to(device), labels.to(device), torch.from_numpy(request.order))
    loader = DataLoader(
        Samples(inputs, labels),
        batch_sampler=request.order.tolist(),
        collate_fn=lambda batch: batch,
        pin_memory=device.type == "cuda",
    )
    return ((x.to(device, non_blocking=True), y.to(device, non_blocking=True)) for x, y in loader)


def _from_memory(inputs: Tensor, labels: Tensor, order: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    for row in order.to(inputs.device):
        yield inputs[row], labels[row]
