"""The processes of one adapter, with their framework started."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from dlb.supervision.group import Group, Launch, worker_group
from dlb.supervision.remote import start

__all__ = ["Workers", "start_workers"]


@dataclass(frozen=True)
class Workers:
    """The processes of one adapter, each with its framework started.

    Attributes:
        group: the processes.
        facts: what the framework and its worker report about themselves.
        described: what the environment holds.
        seconds: time to start the processes.
    """

    group: Group
    facts: dict[str, Any]
    described: dict[str, Any]
    seconds: float


@contextmanager
def start_workers(launch: Launch, seed: int) -> Iterator[Workers]:
    """Start processes and the framework in each. At the end of the block all of them end.

    Raises:
        WorkerError: a process or a framework did not start.
    """
    began = time.perf_counter()
    with worker_group(launch) as group:
        facts = start(group, threads=launch.threads, device=launch.device, seed=seed)[0]
        seconds = time.perf_counter() - began
        yield Workers(group, facts, group.call("describe")[0], seconds)
        group.call("leave")
