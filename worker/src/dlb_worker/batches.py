"""Input pipelines for frameworks that have none of their own."""

import operator
import queue
import sys
import threading
from typing import Any, Callable, Iterable, Iterator, Optional, Tuple

from dlb_worker.contract import DataRequest

__all__ = ["from_memory", "prefetched"]

#: Batches that are made ahead of the step that takes them.
AHEAD = 2


def prefetched(
    request: DataRequest, to_native: Callable[[Any], Any] = lambda array: array
) -> Iterator[Tuple[Any, Any]]:
    """Batches that a thread gathers and makes native while the step before is computed.

    Args:
        to_native: makes an array native; called for inputs and for labels, in that thread.
    """
    ready: queue.Queue[Any] = queue.Queue(AHEAD)
    ended, ending = threading.Event(), sys.is_finalizing

    def put(value: Any) -> bool:
        while not ended.is_set():
            try:
                ready.put(value, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def gather() -> None:
        try:
            for step in range(len(request.order)):
                inputs, labels = request.batch(step)
                if not put((to_native(inputs), to_native(labels))):
                    return
            put(None)
        except Exception as error:  # it belongs to the thread that takes the batch
            put(error)

    thread = threading.Thread(target=gather, daemon=True)
    thread.start()
    try:
        while True:
            batch = ready.get()
            if batch is None:
                return
            if isinstance(batch, Exception):
                raise batch
            yield batch
    finally:
        ended.set()
        if not ending():  # then no thread but this one runs any more
            thread.join()


def from_memory(
    request: DataRequest,
    to_native: Callable[[Any], Any] = lambda array: array,
    take: Callable[[Any, Any], Any] = operator.getitem,
    order: Optional[Iterable[Any]] = None,
) -> Iterator[Tuple[Any, Any]]:
    """Batches indexed out of the whole set, which is made native at once.

    Args:
        to_native: makes all inputs and all labels native.
        take: returns the samples of a native array at a row of the order.
        order: the rows as ``take`` needs them; by default those of the request.
    """
    inputs, labels = to_native(request.inputs), to_native(request.labels)
    rows = request.order if order is None else order
    return ((take(inputs, row), take(labels, row)) for row in rows)
