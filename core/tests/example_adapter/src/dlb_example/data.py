"""Batches in the order that the core has set: gathered at once, or one step ahead."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.contract import LoadRequest

Batch = tuple[npt.NDArray[Any], npt.NDArray[Any]]


def at_once(request: LoadRequest) -> Iterator[Batch]:
    """Each batch is gathered when it is asked for."""
    for row in request.order:
        yield request.inputs[row], request.labels[row]


def ahead(request: LoadRequest) -> Iterator[Batch]:
    """The next batch is gathered in a thread while a step runs."""

    def gather(row: npt.NDArray[np.int64]) -> Batch:
        return request.inputs[row], request.labels[row]

    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(gather, request.order[0])
        for row in request.order[1:]:
            ready, coming = coming, pool.submit(gather, row)
            yield ready.result()
        yield coming.result()
