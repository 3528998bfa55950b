"""Computing beside what is computed already: NumPy's operations leave other threads their core."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from dlb.provenance import available_cores

__all__ = ["ahead", "limited_products", "together"]

T = TypeVar("T")
S = TypeVar("S")


@contextmanager
def limited_products(at_once: int) -> Iterator[None]:
    """Give NumPy's matrix products the threads that two computations at a time leave each other.

    With more threads than cores they take several times longer. What is fewer already stays so.

    Args:
        at_once: proofs that run at the same time.
    """
    found = ThreadpoolController().select(user_api="blas")
    own = [library["num_threads"] for library in found.info()]
    with found.limit(limits=min([*own, max(1, available_cores() // max(2, at_once))])):
        yield


def together(first: Callable[[], T], second: Callable[[], S]) -> tuple[T, S]:
    """What two functions return, of which the second runs in a thread of its own.

    An error of the first comes before one of the second.
    """
    if available_cores() < 2:
        return first(), second()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(_with_state(second))
        return first(), waiting.result()


def ahead(items: Iterator[T]) -> Iterator[T]:
    """The items, each computed in a thread of its own while the one before is used."""
    if available_cores() < 2:
        yield from items
        return
    end = object()
    following = _with_state(lambda: next(items, end))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(following)
        while (item := waiting.result()) is not end:
            waiting = pool.submit(following)
            yield item


def _with_state(function: Callable[[], Any]) -> Callable[[], Any]:
    """The function with this thread's treatment of overflow and the like, which is each thread's own."""
    state = np.geterr()

    def run() -> Any:
        with np.errstate(**state):
            return function()

    return run
