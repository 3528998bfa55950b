"""Batches through gluon's DataLoader, or from arrays already on the device."""

from __future__ import annotations

import mxnet as mx
import numpy as np
from mxnet.gluon.data import DataLoader, SimpleDataset

from dlb_mxnet.framework import context
from dlb_worker.batches import from_memory
from dlb_worker.contract import Batches, DataRequest

Batch = tuple[mx.nd.NDArray, mx.nd.NDArray]


def load(request: DataRequest) -> Batches:
    """(inputs, labels) on the device, for each row of the order."""
    device = context(request.device)
    if request.input_mode == "memory":
        order = _native(request.order, device)
        return from_memory(request, lambda array: _native(array, device), mx.nd.take, order)

    def gather(steps: list[int]) -> Batch:
        """A batch at once, not sample by sample."""
        inputs, labels = request.batch(*steps)
        return _native(inputs), _native(labels)

    loader = DataLoader(
        SimpleDataset(np.arange(len(request.order))),
        batch_sampler=[[step] for step in range(len(request.order))],
        batchify_fn=gather,
        num_workers=1,
        thread_pool=True,
        pin_memory=request.device == "cuda",
    )
    return ((x.as_in_context(device), y.as_in_context(device)) for x, y in loader)


def _native(array: np.ndarray, device: mx.Context | None = None) -> mx.nd.NDArray:
    return mx.nd.array(array, ctx=device, dtype=array.dtype)
