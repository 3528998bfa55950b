"""Batches through gluon's DataLoader, or from arrays already on the device."""

from __future__ import annotations

from collections.abc import Iterator

import mxnet as mx
import numpy as np
from mxnet.gluon.data import DataLoader, SimpleDataset

from dlb_mxnet.framework import context
from dlb_worker.contract import Batches, DataRequest

Batch = tuple[mx.nd.NDArray, mx.nd.NDArray]


def load(request: DataRequest) -> Batches:
    """(inputs, labels) on the device, for each row of the order."""
    device = context(request.device)
    if request.input_mode == "memory":
        inputs = mx.nd.array(request.inputs, ctx=device, dtype=request.inputs.dtype)
        labels = mx.nd.array(request.labels, ctx=device, dtype="int64")
        return _from_memory(inputs, labels, mx.nd.array(request.order, ctx=device, dtype="int64"))

    def gather(steps: list[int]) -> Batch:
        """A batch at once, not sample by sample."""
        inputs, labels = request.batch(*steps)
        return mx.nd.array(inputs, dtype=inputs.dtype), mx.nd.array(labels, dtype=labels.dtype)

    loader = DataLoader(
        SimpleDataset(np.arange(len(request.order))),
        batch_sampler=[[step] for step in range(len(request.order))],
        batchify_fn=gather,
        num_workers=1,
        thread_pool=True,
        pin_memory=request.device == "cuda",
    )
    return ((x.as_in_context(device), y.as_in_context(device)) for x, y in loader)


def _from_memory(
    inputs: mx.nd.NDArray, labels: mx.nd.NDArray, order: mx.nd.NDArray
) -> Iterator[Batch]:
    for row in order:
        yield mx.nd.take(inputs, row), mx.nd.take(labels, row)
