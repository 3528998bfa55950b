"""Batches as CNTK values. CNTK holds no integers: labels and indices are real numbers."""

from functools import partial
from typing import Any

import cntk
import numpy as np

from dlb_worker.batches import from_memory, prefetched
from dlb_worker.contract import Batches, DataRequest


def load(request: DataRequest) -> Batches:
    """(inputs, labels) for each row of the order.

    CNTK's readers decide the order themselves, and its values cannot be indexed by rows. So batches
    are gathered by NumPy: ahead of the step in a thread, or with ``memory`` as they are asked for.
    """
    if request.input_mode == "memory":
        convert = partial(np.asarray, dtype=request.dtype)
        return from_memory(request, convert, lambda array, row: value(array[row]))
    return prefetched(request, lambda array: value(np.asarray(array, request.dtype)))


def value(array: np.ndarray) -> Any:
    """A batch as CNTK takes it, which is a copy."""
    return cntk.Value(batch=np.ascontiguousarray(array))
