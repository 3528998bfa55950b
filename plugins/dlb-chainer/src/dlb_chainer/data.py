"""Batches through Chainer's SerialIterator, or from arrays already on the device."""

from __future__ import annotations

import numpy as np
from chainer.dataset import concat_examples
from chainer.datasets import TupleDataset
from chainer.iterators import SerialIterator

from dlb_chainer.framework import get_device
from dlb_worker.batches import from_memory
from dlb_worker.contract import Batches, DataRequest


def load(request: DataRequest) -> Batches:
    """(inputs, labels) on the device, for each row of the order."""
    device = get_device(request.device)
    if request.input_mode == "memory":
        order = device.send(request.order)
        return from_memory(request, lambda array: device.send(_narrow(array)), order=order)
    if request.crops is not None:
        steps = SerialIterator(range(len(request.order)), 1, repeat=False, shuffle=False)
        batches = (request.batch(step) for (step,) in steps)
        return ((device.send(x), device.send(_narrow(y))) for x, y in batches)
    # One epoch of the iterator is the whole order, sample by sample.
    samples = request.order.ravel()
    iterator = SerialIterator(
        TupleDataset(_narrow(request.inputs), _narrow(request.labels)),
        request.order.shape[1],
        repeat=False,
        order_sampler=lambda order, position: samples,
    )
    return (concat_examples(batch, device) for batch in iterator)


def _narrow(array: np.ndarray) -> np.ndarray:
    """Chainer's own indices and labels are int32."""
    return array.astype(np.int32) if array.dtype.kind in "iu" else array
