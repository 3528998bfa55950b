"""The command ``dlb report``, imported when it is called: this module is loaded at every command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlb_worker import hookimpl


@hookimpl
def dlb_commands() -> Sequence[Any]:
    from dlb.cli.output import LazyCommand

    text = "Write a report on results, as one HTML page or as tables."
    return [LazyCommand("report", "dlb_report.command:report_command", text)]
