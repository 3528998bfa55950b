"""The most that a machine does: a large matrix product, or a large copy, again and again for some time.

Sizes follow from the times, so that a slow machine ends in time and a fast one is kept busy.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, List, Tuple

import numpy as np

from dlb_worker.contract import Clock, PeakRequest
from dlb_worker.errors import UnsupportedError

__all__ = ["ARRAY_BYTES", "measure", "numpy_work"]

#: Rows of the first matrices, and the most rows. They are doubled until a product takes so many seconds.
FEWEST_ROWS, MOST_ROWS, LONG_SECONDS = 256, 8192, 0.05
#: Bytes of the array that is copied: more than the caches of most processors hold.
ARRAY_BYTES = 1 << 28
#: So many runs of each size are timed, and more of the last one.
FEWEST_RUNS = 3
#: Bytes of a number.
NUMBER_BYTES = {"float32": 4, "float64": 8, "bfloat16": 2}


def measure(
    prepare: Callable[[PeakRequest], Callable[[], Any]],
    clock: Clock,
    request: PeakRequest,
    seconds: float,
) -> Dict[str, Any]:
    """Time the work that an adapter offers.

    Args:
        prepare: returns what does the work once, for a request.
        request: what work; its size is chosen here.
        seconds: how long, beside what it takes to find a size; three runs at least.

    Returns:
        ``size``: rows of the matrices or numbers of the array; ``rates``: of each run, operations (a
        multiply-add counts as 2) or bytes (read and written) a second.
    """
    work, size, times = _sized(prepare, clock, request)
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        times.append(_timed(work, clock))
    amount = 2 * size**3 if request.work == "product" else 2 * size * NUMBER_BYTES[request.dtype]
    return {"size": size, "rates": [amount / each for each in times]}


def _sized(
    prepare: Callable[[PeakRequest], Callable[[], Any]], clock: Clock, request: PeakRequest
) -> Tuple[Callable[[], Any], int, List[float]]:
    """The work, its size, and the seconds of its first runs."""
    size = FEWEST_ROWS
    if request.work == "copy":
        size = ARRAY_BYTES // NUMBER_BYTES[request.dtype]
    while True:
        work = prepare(request._replace(size=size))
        work()  # kernels are chosen, and pages are taken from the system
        times = [_timed(work, clock) for _ in range(FEWEST_RUNS)]
        # The fastest counts: other processes may take the processors in any run.
        if request.work == "copy" or min(times) > LONG_SECONDS or size == MOST_ROWS:
            return work, size, times
        size *= 2


def _timed(work: Callable[[], Any], clock: Clock) -> float:
    clock.start()
    return max(clock.stop(work()), 1e-9)


def numpy_work(request: PeakRequest) -> Callable[[], Any]:
    """The work in NumPy, on the processor, with the threads of its BLAS or of a pool.

    Raises:
        UnsupportedError: another device, or a dtype that NumPy has not.
    """
    if request.device != "cpu" or request.dtype not in ("float32", "float64"):
        raise UnsupportedError(
            "NumPy has no {} in {} on device '{}'".format(
                request.work, request.dtype, request.device
            )
        )
    if request.work == "copy":
        source, target = np.ones(request.size, request.dtype), np.zeros(request.size, request.dtype)
        parts = list(
            zip(np.array_split(target, request.threads), np.array_split(source, request.threads))
        )
        pool = ThreadPoolExecutor(request.threads)
        return lambda: [each.result() for each in [pool.submit(np.copyto, *part) for part in parts]]
    generator = np.random.RandomState(0)
    first, second = (
        generator.standard_normal((request.size, request.size)).astype(request.dtype)
        for _ in range(2)
    )
    product = np.zeros_like(first)
    return lambda: np.dot(first, second, out=product)
