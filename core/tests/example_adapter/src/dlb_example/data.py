"""Batches in the order that the core has set: gathered at once, or one step ahead."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy.typing as npt

from dlb.contract import LoadRequest

Batch = tuple[npt.NDArray[Any], npt.NDArray[Any]]


def at_once(request: LoadRequest) -> Iterator[Batch]:
    """Each batch is gathered when it is asked for."""
    for row in request.order:
        yield request.inputs[row], request.labels[row]


def ahead(request: LoadRequest) -> Iterator[Batch]:
    """The next batch is gathered, and augmented, in a thread while a step runs."""
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(request.batch, 0)
        for step in range(1, len(request.order)):
            ready, coming = coming, pool.submit(request.batch, step)
            yield ready.result()
        yield coming.result()
