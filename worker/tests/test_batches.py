"""Batches: in order, ahead of the step, and nothing left running."""

import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from dlb_worker.batches import AHEAD, from_memory, prefetched
from dlb_worker.contract import DataRequest
from dlb_worker.crops import cut

INPUTS = np.arange(40.0).reshape(10, 4)
LABELS = np.arange(10)
ORDER = np.array([[3, 1], [0, 0], [9, 2], [4, 5], [6, 7], [8, 1]])


def request(**given):
    arguments = {
        "inputs": INPUTS,
        "labels": LABELS,
        "order": ORDER,
        "input_mode": "pipeline",
        "device": "cpu",
        "dtype": "float64",
    }
    arguments.update(given)
    return DataRequest(**arguments)


@pytest.mark.parametrize("batches", [prefetched, from_memory])
def test_batches_come_in_the_order_of_the_rows(batches):
    found = list(batches(request(), lambda array: array + 1))
    assert len(found) == len(ORDER)
    for row, (inputs, labels) in zip(ORDER, found):
        assert np.array_equal(inputs, INPUTS[row] + 1) and np.array_equal(labels, LABELS[row] + 1)


def counted(seen):
    def to_native(array):
        seen.append(threading.current_thread())
        return array

    return to_native


def test_batches_are_made_in_a_thread_and_only_so_far_ahead():
    seen = []
    batches = prefetched(request(), counted(seen))
    next(batches)
    until(lambda: len(seen) >= 2 * (1 + AHEAD))
    time.sleep(0.05)
    # One was taken, some wait, and one more is in the thread's hands.
    assert len(seen) <= 2 * (2 + AHEAD)
    assert threading.current_thread() not in seen
    batches.close()


def test_a_thread_ends_when_nobody_takes_its_batches():
    before = threading.active_count()
    batches = prefetched(request(order=np.tile(ORDER, (100, 1))))
    next(batches)
    assert threading.active_count() == before + 1
    batches.close()
    assert threading.active_count() == before


def test_what_a_thread_raises_reaches_who_takes_the_batch():
    before = threading.active_count()
    batches = prefetched(request(order=np.array([[0], [99]])))
    next(batches)
    with pytest.raises(IndexError):
        next(batches)
    assert threading.active_count() == before


def test_crops_are_cut_before_they_are_native():
    images = np.random.RandomState(0).random_sample((10, 2, 4, 4))
    crops = np.zeros((6, 2, 3), np.int32)
    crops[0, 1] = (1, -1, 1)
    (inputs, _), *_ = prefetched(request(inputs=images, crops=crops))
    assert np.array_equal(inputs, cut(images[ORDER[0]], crops[0]))
    window = np.zeros((2, 4, 4))
    window[:, :3, 1:] = images[1][:, 1:, :3]
    assert np.array_equal(inputs[1], window[:, :, ::-1])
    assert np.array_equal(inputs[0], images[3])


def until(condition):
    limit = time.time() + 10
    while not condition():
        assert time.time() < limit
        time.sleep(0.005)


LEFT_OPEN = """
import numpy as np
from dlb_worker.batches import prefetched
from dlb_worker.contract import DataRequest

order = np.zeros((100, 2), "int64")
batches = prefetched(DataRequest(np.ones((4, 2)), np.ones(4), order, "pipeline", "cpu", "float64"))
next(batches)
"""


def test_a_process_ends_that_left_its_batches_open():
    """Its other threads are stopped by then, and can not be waited for."""
    assert subprocess.run([sys.executable, "-c", LEFT_OPEN], timeout=20).returncode == 0
