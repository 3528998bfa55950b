"""The shipped studies, and the command ``dlb study``; this module is loaded at every command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dlb_worker import hookimpl


@hookimpl
def dlb_studies() -> Mapping[str, Path]:
    return {path.stem: path for path in (Path(__file__).parent / "shipped").glob("*.toml")}


@hookimpl
def dlb_commands() -> Sequence[Any]:
    from dlb.cli.output import LazyCommand

    text = "Tables and figures of papers, measured again here."
    return [LazyCommand("study", "dlb_studies.command:study_command", text)]
