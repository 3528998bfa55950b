"""The processes of one adapter, and the output of those that failed."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from dlb.proof.certificate import CheckResult
from dlb.proof.findings import Finding
from dlb.proof.findings.common import CannotRun
from dlb.supervision.group import Group, Launch, worker_group
from dlb.supervision.remote import start

__all__ = ["Workers", "keep_output", "start_workers", "with_kept_logs"]

#: The end of what a failed worker printed, kept with the records.
KEPT_OUTPUT_BYTES = 1_000_000


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


def keep_output(scratch: Path, kept: Path | None, adapter: str) -> dict[str, str]:
    """Copy what the workers printed to a folder that outlives the run.

    Args:
        scratch: folder with one folder per worker.
        kept: folder of the records; None makes a temporary folder that is not removed.

    Returns:
        path of each copy, by the path of its log. A log that cannot be copied is left out.
    """
    logs = sorted(scratch.glob("*/*.log"))
    if not logs:
        return {}
    try:
        folder = kept or Path(tempfile.mkdtemp(prefix="dlb-output-"))
    except OSError:
        return {}  # No folder can be made. The error itself is still shown.
    copies = {}
    for log in logs:
        copy = folder / f"{adapter}-{log.parent.name}-{log.name}"
        try:
            copy.write_bytes(log.read_bytes()[-KEPT_OUTPUT_BYTES:])
        except OSError:
            continue
        copies[str(log)] = str(copy)
    return copies


def with_kept_logs(result: CheckResult, copies: Mapping[str, str]) -> CheckResult:
    """A result whose errors point to the copies of the logs."""
    replace = msgspec.structs.replace

    def with_kept_log(finding: Finding) -> Finding:
        cause = finding.cause
        if not isinstance(cause, CannotRun) or cause.failure.log not in copies:
            return finding
        failure = replace(cause.failure, log=copies[cause.failure.log])
        return replace(finding, cause=replace(cause, failure=failure))

    return replace(result, findings=tuple(map(with_kept_log, result.findings)))
