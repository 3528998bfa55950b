"""Printing: a table for people, or one JSON document."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

__all__ = ["json_option", "note", "print_json", "print_table", "print_warnings", "set_option"]

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document and nothing else."
)

set_option = click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="FIELD=VALUE",
    help="Change a field of the workload, as optimizer.learning_rate=0.01; repeat for several.",
)


def print_json(document: Any) -> None:
    """The one document on standard output."""
    import msgspec

    # Not json.dumps, which writes NaN as NaN; here it becomes null, as JSON has none.
    encoded = msgspec.json.encode(document, enc_hook=str)
    click.echo(msgspec.json.format(encoded, indent=1).decode())


def note(text: str) -> None:
    """A line on standard error."""
    click.echo(text, err=True)


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    title: str = "",
    right: Sequence[str] = (),
) -> None:
    """A table on standard output: as wide as the terminal, or as it needs when it is none.

    Args:
        right: columns of numbers, which are aligned right.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left")
    for row in rows:
        # Text, not markup: what is shown may come from a stranger's file.
        table.add_row(*[Text(cell, style=_STYLES.get(cell, "")) for cell in row])
    width = None if sys.stdout is not None and sys.stdout.isatty() else 200
    console = Console(width=width, highlight=False)
    # Not the table's own title, which is folded to the width of the table.
    if title:
        console.print(Text(title, style="italic"))
    console.print(table)


_STYLES = {
    "proven": "bold green",
    "deviates": "bold red",
    "unproven": "yellow",
    "passed": "green",
    "failed": "red",
    "not run": "yellow",
    "ok": "green",
    "error": "red",
    "warning": "yellow",
}


def print_warnings() -> None:
    """Name the plugins that were left out."""
    from dlb_worker.plugins import load_plugins

    for broken in load_plugins().broken:
        note(f"dlb: {broken}")
