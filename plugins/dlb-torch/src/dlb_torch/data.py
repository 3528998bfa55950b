"""Batches through torch's DataLoader, or from tensors already on the device."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from dlb_torch.framework import MEMORY_FORMATS
from dlb_worker.contract import Batches, DataRequest


class Samples(Dataset):
    """Samples in memory; a batch is gathered at once (``__getitems__``), not one by one."""

    def __init__(self, inputs: Tensor, labels: Tensor) -> None:
        self.inputs, self.labels = inputs, labels

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitems__(self, indices: list[int]) -> tuple[Tensor, Tensor]:
        return self.inputs[indices], self.labels[indices]


class Augmented(Dataset):
    """Steps, each a batch that the core gathers and augments."""

    def __init__(self, request: DataRequest) -> None:
        self.request = request

    def __len__(self) -> int:
        return len(self.request.order)

    def __getitems__(self, steps: list[int]) -> tuple[Tensor, Tensor]:
        return _native(self.request, *self.request.batch(*steps))


def load(request: DataRequest) -> Batches:
    """(inputs, labels) on the device, for each row of the order."""
    device = torch.device(request.device)
    if request.crops is None:
        inputs, labels = _native(request, request.inputs, request.labels)
        if request.input_mode == "memory":
            order = torch.from_numpy(request.order)
            return _from_memory(inputs.to(device), labels.to(device), order)
        samples, rows = Samples(inputs, labels), request.order.tolist()
    else:
        samples, rows = Augmented(request), [[step] for step in range(len(request.order))]
    loader = DataLoader(
        samples,
        batch_sampler=rows,
        collate_fn=lambda batch: batch,
        pin_memory=device.type == "cuda",
    )
    return ((x.to(device, non_blocking=True), y.to(device, non_blocking=True)) for x, y in loader)


def _native(request: DataRequest, inputs: np.ndarray, labels: np.ndarray) -> tuple[Tensor, Tensor]:
    """As the model takes them, without a copy where the layout is the canonical one."""
    native = torch.from_numpy(inputs)
    if native.ndim == 4 and "layout" in request.variant:
        native = native.to(memory_format=MEMORY_FORMATS[request.variant["layout"]])
    return native, torch.from_numpy(labels)


def _from_memory(inputs: Tensor, labels: Tensor, order: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    for row in order.to(inputs.device):
        yield inputs[row], labels[row]
