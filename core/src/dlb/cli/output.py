"""Output: a table for people, or one JSON document for programs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from dlb.printable import printable

if TYPE_CHECKING:
    from dlb.report.table import Table

__all__ = [
    "Group",
    "echo",
    "json_option",
    "note",
    "print_json",
    "print_table",
    "print_warnings",
    "set_option",
    "show_table",
]

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


class Group(click.Group):
    """A group of commands that proposes the nearest name for one that it has not."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            from dlb.errors import UnknownNameError

            hint = f"see: {ctx.command_path} --help"
            raise UnknownNameError("command", args[0], self.list_commands(ctx), hint)
        return super().resolve_command(ctx, args)


def print_json(document: Any) -> None:
    """Print the JSON document on standard output."""
    import msgspec

    # Not json.dumps, which writes NaN as NaN; here it becomes null, as JSON has none.
    encoded = msgspec.json.encode(document, enc_hook=str)
    echo(msgspec.json.format(encoded, indent=1).decode())


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print text, of which a terminal obeys nothing: any part of it may come from a stranger."""
    click.echo(printable(text), err=err, nl=nl)


def note(text: str) -> None:
    """Print a line on standard error."""
    echo(text, err=True)


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    title: str = "",
    right: Sequence[str] = (),
) -> None:
    """Print a table on standard output, as wide as the terminal; in a file or pipe, up to 200 characters.

    Args:
        right: columns that are aligned right.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(Text(printable(column)), justify="right" if column in right else "left")
    for row in rows:
        # Text, not markup: a cell may come from a file of unknown origin.
        table.add_row(*[Text(printable(cell), style=_STYLES.get(cell, "")) for cell in row])
    width = None if sys.stdout is not None and sys.stdout.isatty() else 200
    console = Console(width=width, highlight=False)
    # Not the table's own title, which is wrapped to the width of the table.
    if title:
        console.print(Text(printable(title), style="italic"))
    console.print(table)


def show_table(table: Table) -> None:
    """Print a table that was made from results."""
    print_table(table.columns, table.rows, table.title, table.right)


_STYLES = {
    "proven": "bold green",
    "deviates": "bold red",
    "unproven": "yellow",
    "within rounding": "bold green",
    "diverged": "bold yellow",
    "passed": "green",
    "failed": "red",
    "not run": "yellow",
    "ok": "green",
    "error": "red",
    "warning": "yellow",
}


def print_warnings() -> None:
    """Print the plugins that could not be loaded."""
    from dlb_worker.plugins import load_plugins

    for broken in load_plugins().broken:
        note(f"dlb: {broken}")
