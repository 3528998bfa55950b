"""What workers printed, kept where findings and errors can still point to it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from dlb.documents import write_atomically
from dlb.proof.certificate import CheckResult
from dlb.proof.findings import Finding
from dlb.proof.findings.common import CannotRun
from dlb_graph.regular_files import read_end

__all__ = ["keep_output", "names_log", "with_kept_logs"]

#: The end of what a worker printed that is kept.
KEPT_OUTPUT_BYTES = 1_000_000


def names_log(result: CheckResult) -> bool:
    """Whether a finding of a result points to a worker's log."""
    return any(
        isinstance(finding.cause, CannotRun) and bool(finding.cause.failure.log)
        for finding in result.findings
    )


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
            write_atomically(copy, read_end(log, KEPT_OUTPUT_BYTES, follow=False))
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
