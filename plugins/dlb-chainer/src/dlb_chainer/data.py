"""Batches through Chainer's SerialIterator, or from arrays already on the device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from chainer.dataset import concat_examples
from chainer.datasets import TupleDataset
from chainer.iterators import SerialIterator

from dlb_chainer.framework import get_device
from dlb_worker.contract import Batches, DataRequest


def load(request: DataRequest) -> Batches:
    """(inputs, labels) on the device, for each row of the order."""
    device = get_device(request.device)
    inputs, labels = _narrow(request.inputs), _narrow(request.labels)
    if request.input_mode == "memory":
        return _from_memory(device.send(inputs), device.send(labels), device.send(request.order))
    if request.crops is not None:
        steps = SerialIterator(range(len(request.order)), 1, repeat=False, shuffle=False)
        batches = (request.batch(step) for (step,) in steps)
        return ((device.send(x), device.send(_narrow(y))) for x, y in batches)
    # One epoch of the iterator is the whole order, sample by sample.
    samples = request.order.ravel()
    iterator = SerialIterator(
        TupleDataset(inputs, labels),
        request.order.shape[1],
        repeat=False,
        order_sampler=lambda order, position: samples,
    )
    return (concat_examples(batch, device) for batch in iterator)


def _narrow(array: np.ndarray) -> np.ndarray:
    """Chainer's own indices and labels are int32."""
    return array.astype(np.int32) if array.dtype.kind in "iu" else array


def _from_memory(inputs: Any, labels: Any, order: Any) -> Iterator[tuple[Any, Any]]:
    for row in order:
        yield inputs[row], labels[row]
