"""Data sets, readers of the user's own data, and the command ``dlb data``; loaded at every command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dlb_worker import hookimpl


@hookimpl
def dlb_datasets() -> Sequence[Any]:
    from dlb_data.catalogue import DATA_SETS

    return DATA_SETS


@hookimpl
def dlb_own_data() -> Mapping[str, str]:
    kinds = ("folder", "imagenet", "npz", "idx", "words", "characters")
    return {kind: f"dlb_data.own:{kind.upper()}" for kind in kinds}


@hookimpl
def dlb_commands() -> Sequence[Any]:
    from dlb.cli.output import LazyCommand

    return [LazyCommand("data", "dlb_data.command:data_command", "Data sets: list, fetch, find.")]
