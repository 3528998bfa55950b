"""A worker of the faulty adapter, which serves one fault after another."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dlb.adapters import find_adapters
from dlb.execution.workers import Workers, start_workers
from dlb.supervision.group import Launch
from dlb_seeded_faults.plugin import NAME


@contextmanager
def started(strategy: str = "", workers: int = 1) -> Iterator[tuple[Workers, Path]]:
    """Workers, and the file whose text is the name of the fault of their next models."""
    (environment,) = find_adapters([NAME])
    with tempfile.TemporaryDirectory() as folder:
        fault = Path(folder) / "fault"
        fault.touch()
        variables = {"DLB_SEEDED_FAULT": str(fault)}
        launch = Launch(
            NAME,
            environment.python,
            Path(folder),
            strategy=strategy,
            workers=workers,
            variables=variables,
        )
        with start_workers(launch, seed=0) as running:
            yield running, fault
