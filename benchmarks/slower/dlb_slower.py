"""A clock that keeps the processor busy for ``DLB_SLOWER`` times as long as a step took, and counts that."""

import os
import time

from dlb_worker import hookimpl
from dlb_worker.contract import Clock

SHARE = float(os.environ.get("DLB_SLOWER", "0"))


class SlowerClock(Clock):
    def stop(self, result=None):
        seconds = super().stop(result)
        until = time.perf_counter() + SHARE * seconds
        while time.perf_counter() < until:
            pass
        return time.perf_counter() - self._started


@hookimpl(tryfirst=True)
def dlb_clock(framework, device):
    return SlowerClock() if SHARE and device == "cpu" else None
