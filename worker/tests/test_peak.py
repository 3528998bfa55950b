"""The most that a machine does, by NumPy's work and by work whose time is known."""

import time

import pytest

from dlb_worker import UnsupportedError
from dlb_worker.contract import Clock, PeakRequest
from dlb_worker.peak import ARRAY_BYTES, FEWEST_ROWS, FEWEST_RUNS, measure, numpy_work


@pytest.mark.parametrize("work", ["product", "copy"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numpy_has_both_kinds_of_work(work, dtype):
    found = measure(numpy_work, Clock(), PeakRequest(work, dtype, "cpu", 2), 0.01)
    assert len(found["rates"]) >= FEWEST_RUNS and min(found["rates"]) > 0
    bytes_of_a_number = 4 if dtype == "float32" else 8
    if work == "copy":
        assert found["size"] == ARRAY_BYTES // bytes_of_a_number
    else:
        assert found["size"] >= FEWEST_ROWS


def test_a_slow_machine_multiplies_small_matrices():
    """A run takes at least as long as it sleeps."""
    found = measure(
        lambda request: lambda: time.sleep(0.1),
        Clock(),
        PeakRequest("product", "float32", "cpu", 1),
        0.01,
    )
    assert found["size"] == FEWEST_ROWS
    assert max(found["rates"]) <= 2 * FEWEST_ROWS**3 / 0.1


def test_the_clock_waits_for_what_the_work_returns():
    waited = []
    measure(
        lambda request: lambda: request.size,
        Clock(waited.append),
        PeakRequest("copy", "float32", "cpu", 1),
        0.0,
    )
    assert set(waited) == {None, ARRAY_BYTES // 4}


@pytest.mark.parametrize(("dtype", "device"), [("bfloat16", "cpu"), ("float32", "cuda")])
def test_what_numpy_cannot_do_is_said(dtype, device):
    with pytest.raises(UnsupportedError, match=f"{dtype} on device '{device}'"):
        numpy_work(PeakRequest("product", dtype, device, 1))
