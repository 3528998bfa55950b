"""Batches as CNTK values. CNTK holds no integers: labels and indices are real numbers."""

from typing import Any

import cntk
import numpy as np

from dlb_worker.batches import prefetched
from dlb_worker.contract import Batches, DataRequest


def load(request: DataRequest) -> Batches:
    """(inputs, labels) for each row of the order.

    CNTK's readers decide the order themselves, and its values cannot be indexed by rows. So batches
    are gathered by NumPy: ahead of the step in a thread, or with ``memory`` as they are asked for.
    """
    if request.input_mode == "memory":
        inputs, labels = (array.astype(request.dtype) for array in (request.inputs, request.labels))
        return ((value(inputs[row]), value(labels[row])) for row in request.order)
    return prefetched(request, lambda array: value(np.asarray(array, request.dtype)))


def value(array: np.ndarray) -> Any:
    """A batch as CNTK takes it, which is a copy."""
    return cntk.Value(batch=np.ascontiguousarray(array))
