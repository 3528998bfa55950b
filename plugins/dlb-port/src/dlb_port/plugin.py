"""The commands, imported when they are called: this module is loaded at every command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dlb_worker import hookimpl

COMMANDS = {
    "port": "Prove that models of your own in several frameworks are the same.",
    "capture": "Write what a model of your own computes, to compare ports with.",
    "diff": "Prove that two ONNX files compute the same.",
}


@hookimpl
def dlb_findings() -> Mapping[str, str]:
    return {"dlb-port": "dlb_port.vocabulary"}


@hookimpl
def dlb_commands() -> Sequence[Any]:
    from dlb.cli.output import LazyCommand

    return [
        LazyCommand(name, f"dlb_port.cli.{name}:{name}_command", text)
        for name, text in COMMANDS.items()
    ]
