"""Batches through torch's DataLoader, or from tensors already on the device."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from dlb_torch.framework import laid_out
from dlb_worker.batches import from_memory
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
        inputs, labels = self.request.batch(*steps)
        return _native(self.request, inputs), _native(self.request, labels)


def load(request: DataRequest) -> Batches:
    """(inputs, labels) on the device, for each row of the order."""
    device = torch.device(request.device)
    if request.input_mode == "memory":
        order = torch.from_numpy(request.order).to(device)
        return from_memory(request, lambda array: _native(request, array).to(device), order=order)
    samples: Samples | Augmented
    if request.crops is None:
        inputs, labels = _native(request, request.inputs), _native(request, request.labels)
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


def _native(request: DataRequest, array: np.ndarray) -> Tensor:
    """As the model reads it, without a copy where the layout is the canonical one."""
    native = torch.from_numpy(array)
    layout = request.variant.get("layout")
    return native if layout is None else laid_out(native, layout)
