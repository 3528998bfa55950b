"""The commands, imported when they are called: this module is loaded at every command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlb_worker import hookimpl

COMMANDS = {
    "run": "Train, time, export and prove a workload on adapters, then measure it in rounds.",
    "sweep": "Measure a workload in every combination of some settings.",
    "scale": "Measure several workers next to one: throughput, speed-up, efficiency.",
    "tune": "Find the fastest way to run a workload on this machine, under proof.",
    "results": "List, show and export what was run and measured.",
    "compare": "Compare what was measured in rounds.",
}


@hookimpl
def dlb_commands() -> Sequence[Any]:
    from dlb.cli.output import LazyCommand

    return [
        LazyCommand(name, f"dlb_measure.cli.{name}:{name}_command", text)
        for name, text in COMMANDS.items()
    ]
