"""Work that shows what a device does at most."""

from __future__ import annotations

import math
from typing import Any

import pytest

from dlb_worker.contract import PeakRequest
from dlb_worker.errors import UnsupportedError
from dlb_worker.peak import measure

from .subject import Adapter


@pytest.mark.parametrize("work", ["product", "copy"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_peak_work_can_be_timed_again_and_again(adapter: Adapter, work: str, dtype: str) -> None:
    """Of an adapter that has none, or none in a dtype, UnsupportedError says so."""

    def prepare(request: PeakRequest) -> Any:
        return adapter.hook.dlb_peak_work(framework=adapter.name, request=request)

    if dtype in adapter.described.dtypes:
        assert prepare(PeakRequest(work, dtype, "cpu", 1, 64)) is not None
    try:
        found = measure(prepare, adapter.clock(), PeakRequest(work, dtype, "cpu", 1), 0.01)
    except UnsupportedError as error:
        assert dtype not in adapter.described.dtypes, error
        return
    assert all(math.isfinite(rate) and rate > 0 for rate in found["rates"])
