"""Sweeps: a JSON document that says which cells there are, and what came of each.

It is ``sweeps/NAME.json`` in a results folder, and is written when a cell ends. The figures are in records and
in one measurement; a sweep that was killed goes on where it was.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dlb import documents
from dlb.errors import RequestError
from dlb.failure import Failure
from dlb_measure.results import measurement as measurements
from dlb_measure.results.measurement import Measurement, Part

__all__ = [
    "FORMAT",
    "CellState",
    "Sweep",
    "alone",
    "find_measurement",
    "find_unfinished",
    "read",
    "write",
]

FORMAT = 1


class CellState(Part, frozen=True, kw_only=True):
    """One cell of a sweep.

    Attributes:
        adapter, workload_name: what is run.
        varied: the settings that tell it from other cells, by name.
        record: name of its record; empty before its run has ended, and if it ended without one.
        failure: what ended its run; null if nothing did.
        measurement: name of its measurement, if it was measured by itself (``--executor``); empty elsewhere.
    """

    adapter: str
    workload_name: str
    varied: dict[str, Any]
    record: str = ""
    failure: Failure | None = None
    measurement: str = ""

    @property
    def ended(self) -> bool:
        """Whether it was run."""
        return bool(self.record) or self.failure is not None


class Sweep(Part, frozen=True, kw_only=True):
    """A sweep.

    Attributes:
        format: version of this document.
        name: its file is ``NAME.json``.
        key: hash of the cells and of how they are measured; an unfinished one of the same key is gone on with.
        started: start time, ISO 8601, UTC.
        cells: every cell, in the order of the matrix.
        measurements: names of the measurements of the cells that did not fail, one for each group of cells.
        ended: whether everything was done.
    """

    format: int
    name: str
    key: str
    started: str
    cells: tuple[CellState, ...]
    measurements: tuple[str, ...] = ()
    ended: bool = False


def write(sweep: Sweep, folder: Path) -> Path:
    """Write a sweep atomically into a results folder.

    Raises:
        RecordError: it cannot be written; the old file is unchanged.
    """
    return measurements.keep(sweep, folder / "sweeps" / f"{sweep.name}.json")


def read(path: Path) -> Sweep:
    """Read a sweep, and validate it.

    Raises:
        RecordError: the file cannot be read, is not a sweep, or has a later format.
    """
    return documents.read(path, "sweep", FORMAT, Sweep)


def find_unfinished(folder: Path, key: str) -> Sweep | None:
    """The last sweep of a results folder that has a key and was not finished; None if there is none."""
    for each in measurements.readable(folder / "sweeps", read):
        if key and each.key == key and not each.ended:
            return each
    return None


def find_measurement(folder: Path, records: list[str]) -> Measurement | None:
    """The finished measurement whose cells have these records, in order; None if there is none.

    A record belongs to one sweep, so the measurement does too.
    """
    for each in measurements.readable(folder / "measurements", measurements.read):
        own = [cell.record for cell in each.cells]
        if own == records and each.ended not in ("", "interrupted"):
            return each
    return None


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keep a results folder's sweeps for this process: two that run at once would disturb each other.

    The system gives the lock up when the process ends, however it ends.

    Raises:
        RequestError: another process has it.
    """
    import fcntl

    path = folder / "sweeps"
    path.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path / ".lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RequestError(
                f"another sweep runs in {folder} now; wait for it, or choose another folder with --out"
            ) from None
        yield
    finally:
        os.close(descriptor)
