"""The command, imported when it is called: this module is loaded at every command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlb_worker import hookimpl


@hookimpl
def dlb_commands() -> Sequence[Any]:
    from dlb.cli.output import LazyCommand

    text = "Prove the ONNX files and workloads that changed in a git repository."
    return [LazyCommand("changed", "dlb_ci.command:changed_command", text)]
