"""What a machine does at most: measured in a worker of each adapter, before the first trial."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dlb.errors import DlbError, WorkerError
from dlb.execution.workers import start_workers
from dlb.provenance import OtherWork
from dlb.request import Reporter, Request
from dlb.supervision.group import Launch
from dlb_measure.results.measurement import Cell, Peak

__all__ = ["measure_peaks"]

#: Seconds for the products, and for the copies, of one adapter.
PEAK_SECONDS = 0.4


def measure_peaks(
    cells: Sequence[tuple[Cell, Request]], folder: Path, reporter: Reporter
) -> tuple[Peak, ...]:
    """Time a large matrix product and a large copy for each adapter, device, dtype and number of threads.

    What cannot be measured is null, with the reason.

    Args:
        cells: what is measured, each with its request.
        folder: for the workers' files.
    """
    peaks: dict[tuple[str, str, str, int], Peak] = {}
    for cell, request in cells:
        key = (cell.adapter, request.device, cell.computed_in, request.threads)
        if key not in peaks:
            own = folder / f"peak-{len(peaks)}"
            own.mkdir()
            adapter, device, dtype, threads = key
            peak = Peak(adapter=adapter, device=device, dtype=dtype, threads=threads)
            peaks[key] = _measured(peak, request, own, reporter)
    return tuple(peaks.values())


def _measured(peak: Peak, request: Request, folder: Path, reporter: Reporter) -> Peak:
    reporter.phase(peak.adapter, "measuring what the machine does at most")
    launch = Launch(
        adapter=peak.adapter,
        python=request.environments[0].python,
        scratch=folder,
        threads=peak.threads,
        device=peak.device,
        call_seconds=request.call_seconds,
        stop=threading.Event(),
    )
    asked = {
        "dtype": peak.dtype,
        "device": peak.device,
        "threads": peak.threads,
        "seconds": PEAK_SECONDS,
    }
    found: dict[str, Any] = {}
    reasons = []
    try:
        with start_workers(launch, request.seed) as workers:
            other_work = OtherWork()
            for work, name in (("product", "operations"), ("copy", "bytes")):
                try:
                    (told,) = workers.group.call("peak", {"work": work, **asked})
                    size, rates = _checked(told)
                except DlbError as error:
                    reasons.append(str(error))
                    continue
                found[f"{name}_per_second"] = float(rates.max())
                found[f"{name}_spread"] = 1 - float(np.median(rates) / rates.max())
                if work == "product":
                    found["rows"] = size
            found["other_cores"] = other_work.cores()
    except DlbError as error:
        reasons.append(str(error))
    return msgspec.structs.replace(peak, reason="; ".join(dict.fromkeys(reasons)), **found)


def _checked(told: Mapping[str, Any]) -> tuple[int, npt.NDArray[np.float64]]:
    """Size and rates that a worker tells.

    Raises:
        WorkerError: they are none.
    """
    try:
        size, rates = int(told["size"]), np.array(told["rates"], float)
    except (KeyError, TypeError, ValueError):
        size, rates = 0, np.zeros(1)
    if not rates.size or not np.isfinite(rates).all() or rates.min() <= 0:
        raise WorkerError("its answer to 'peak' has no size and rates")
    return size, rates
